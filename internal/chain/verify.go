package chain

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"math"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// Source is a database, or an export of one.
type Source interface {
	// Installation is its id, and At when it was looked at: for an export, when it was made.
	Installation() string
	At() core.Instant
	// Partitions are the numbers of all partitions, in order.
	Partitions() []int
	// LeftOut are the numbers of partitions that an export of others leaves out.
	LeftOut() []int
	// View opens one partition as it was at one moment.
	View(ctx context.Context, partition int) (View, error)
}

// View is one partition at one moment. Each method calls yield in order of height, of
// number and seq, or of number, and returns its error; yield must not call the View.
type View interface {
	Links(ctx context.Context, from int64, yield func(*Link) error) error
	// Rows and Tasks are those of numbers from low on and below high.
	Rows(ctx context.Context, low, high int64, yield func(*Row) error) error
	Tasks(ctx context.Context, low, high int64, yield func(*Row) error) error
	Close() error
}

// Options say what is checked, and against what.
type Options struct {
	Partition int   // -1: all
	From, To  int64 // heights of the links whose rows are checked; 0: from the first, to the last
	Heads     []Head
	Key       ed25519.PublicKey // heads have to be signed by it; nil: signatures are not looked at
	// How long retention keeps what a task was made of, and its row; 0: for ever.
	RetainDetail, RetainRow time.Duration
	// EntriesMax bounds how many rows are held in memory at a time; 0: defaultEntriesMax.
	EntriesMax int
}

// defaultEntriesMax is some 200 MB.
const defaultEntriesMax = 2_000_000

const (
	// findingsMax bounds what a report names; the rest is counted.
	findingsMax = 1000
	// clockSlack is how far the clocks of nodes may be apart.
	clockSlack = 5 * time.Minute
)

// Finding is something that does not fit.
type Finding struct {
	What      string `json:"what"` // changed, removed, inserted, link, truncated, head
	Partition int    `json:"partition"`
	Height    int64  `json:"height,omitempty"` // of the link that names it
	Commit    int64  `json:"commit,omitempty"`
	Table     string `json:"table,omitempty"` // journal or tasks
	Number    int64  `json:"number,omitempty"`
	Task      string `json:"task,omitempty"` // its id, where its row is there
	Seq       int64  `json:"seq,omitempty"`
	Text      string `json:"text"`
}

// What a finding is.
const (
	Changed   = "changed"
	Removed   = "removed"
	Inserted  = "inserted"
	BadLink   = "link"
	Truncated = "truncated"
	BadHead   = "head"
)

// Checked is what was checked of one partition.
type Checked struct {
	Partition int          `json:"partition"`
	First     int64        `json:"first"` // heights of the first and last link; 0: there is no chain
	Last      int64        `json:"last"`
	Commit    int64        `json:"commit"` // of the last link
	Hash      Hash         `json:"hash"`
	Since     core.Instant `json:"since,omitempty"`     // of the first link: when the chain, or what is left of it, begins
	Began     int          `json:"began"`               // how often it began, also again
	WentBack  core.Instant `json:"went_back,omitempty"` // when an owner last found that the database had gone back
	Rows      int64        `json:"rows"`                // journal rows that fit
	Tasks     int64        `json:"tasks"`               // rows of tasks that fit
	Purged    int64        `json:"purged"`              // rows that retention removed
	Before    int64        `json:"before"`              // rows that are older than the chain, or written while none was kept
	Heads     int          `json:"heads"`               // heads that fit
	HeadAt    core.Instant `json:"head_at,omitempty"`   // of the newest of these
	HeadsOld  int          `json:"heads_old,omitempty"` // heads of links that are not kept any more
}

// Report is what a check came to.
type Report struct {
	Installation string       `json:"installation"`
	At           core.Instant `json:"at"`
	Partitions   []Checked    `json:"partitions"`
	Findings     []Finding    `json:"findings"`           // of each partition broken links first, then rows in the order of the chain
	More         int          `json:"more,omitempty"`     // findings that are not listed
	Unsigned     int          `json:"unsigned,omitempty"` // heads without a signature
	Unheld       int          `json:"unheld,omitempty"`   // heads with a signature that no key was given for
	Range        bool         `json:"range,omitempty"`    // only a part was checked: inserted rows are not looked for
	LeftOut      int          `json:"left_out,omitempty"` // partitions that the export leaves out: their heads are not looked at
}

// Fits reports whether nothing was found.
func (r *Report) Fits() bool { return len(r.Findings) == 0 }

// Verify checks a source. Error: it cannot be read, or ctx has ended; what does not fit is
// in the report.
func Verify(ctx context.Context, s Source, o Options) (*Report, error) {
	if o.EntriesMax == 0 {
		o.EntriesMax = defaultEntriesMax
	}
	r := &Report{Installation: s.Installation(), At: s.At(), Findings: []Finding{}, Range: o.From > 0 || o.To > 0, LeftOut: len(s.LeftOut())}
	heads := r.heads(s, &o)
	for _, p := range s.Partitions() {
		if o.Partition >= 0 && p != o.Partition {
			continue
		}
		if err := r.partition(ctx, s, p, heads[p], &o); err != nil {
			return nil, fmt.Errorf("partition %d: %w", p, err)
		}
		delete(heads, p)
	}
	for p, of := range heads {
		if o.Partition < 0 || p == o.Partition {
			r.add(Finding{What: BadHead, Partition: p, Height: of[0].Height, Text: "there is a head of this partition, and no such partition"})
		}
	}
	return r, nil
}

func (r *Report) add(f Finding) {
	if len(r.Findings) >= findingsMax {
		r.More++
		return
	}
	r.Findings = append(r.Findings, f)
}

// heads are those that may be relied on, by partition.
func (r *Report) heads(s Source, o *Options) map[int][]Head {
	all := map[int][]Head{}
	for _, h := range o.Heads {
		if o.Partition >= 0 && h.Partition != o.Partition || slices.Contains(s.LeftOut(), h.Partition) {
			continue
		}
		bad := func(text string) {
			r.add(Finding{What: BadHead, Partition: h.Partition, Height: h.Height, Commit: h.Commit, Text: text})
		}
		switch err := error(nil); {
		case h.Installation != s.Installation():
			bad(fmt.Sprintf("the head of %s is of installation %s, this is %s", said(h.At), h.Installation, s.Installation()))
			continue
		case o.Key != nil:
			if err = h.Check(o.Key); err != nil {
				bad(err.Error())
				continue
			}
		case h.Signed():
			r.Unheld++
		default:
			r.Unsigned++
		}
		all[h.Partition] = append(all[h.Partition], h)
	}
	for _, of := range all {
		slices.SortFunc(of, func(a, b Head) int { return cmp.Or(cmp.Compare(a.Height, b.Height), cmp.Compare(a.At, b.At)) })
	}
	return all
}

// said is a time in a sentence.
func said(at core.Instant) string { return at.Time().UTC().Format(time.RFC3339) }

// partition checks one partition.
func (r *Report) partition(ctx context.Context, s Source, partition int, heads []Head, o *Options) (err error) {
	view, err := s.View(ctx, partition)
	if err != nil {
		return err
	}
	defer func() {
		if closed := view.Close(); err == nil {
			err = closed
		}
	}()
	c := check{
		view: view, o: o, heads: heads, trims: map[int64]Hash{}, is: Checked{Partition: partition},
		detail: before(s.At(), o.RetainDetail), row: before(s.At(), o.RetainRow),
	}
	if err := c.links(ctx); err != nil {
		return err
	}
	for low := int64(0); ; {
		high, err := c.window(ctx, low)
		if err != nil {
			return err
		}
		if err := c.compare(ctx, low, high); err != nil {
			return err
		}
		if high == math.MaxInt64 {
			break
		}
		low = high
	}
	c.order()
	for _, f := range c.found {
		r.add(f)
	}
	r.More += c.more
	r.Partitions = append(r.Partitions, c.is)
	return nil
}

// before is what retention of that length may have removed by a time: what ended earlier.
func before(at core.Instant, retain time.Duration) core.Instant {
	if retain == 0 {
		return 0
	}
	return at.Add(clockSlack - retain)
}

// check is that of one partition.
type check struct {
	view        View
	o           *Options
	heads       []Head // by height
	detail, row core.Instant
	is          Checked
	found       []Finding
	more        int

	begins    []Begin
	trims     map[int64]Hash
	firstHash Hash
	count     int // entries of the links

	// Of the numbers that are looked at.
	rows  map[rowKey]named
	tasks map[int64]namedTask
	ids   map[int64]string
}

type rowKey struct{ number, seq int64 }

// named is what a link says of a row.
type named struct {
	digest         Digest
	height, commit int64
}

type namedTask struct {
	named
	seq   int64
	ended core.Instant
}

func (c *check) find(f Finding) {
	f.Partition = c.is.Partition
	if c.found = append(c.found, f); len(c.found) >= 2*findingsMax {
		c.order()
	}
}

// order sorts what was found and keeps the first of it. Where the chain itself is broken, what
// it says of rows is in doubt, so that comes first; then comes what is named in the order of
// the chain, and last what no link names.
func (c *check) order() {
	rank := func(f *Finding) int {
		switch {
		case f.What == BadLink:
			return 0
		case f.Height > 0:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(c.found, func(a, b Finding) int {
		return cmp.Or(rank(&a)-rank(&b), cmp.Compare(a.Height, b.Height), cmp.Compare(a.Number, b.Number), cmp.Compare(a.Seq, b.Seq))
	})
	if most := findingsMax; len(c.found) > most {
		c.more += len(c.found) - most
		c.found = c.found[:most]
	}
}

// links follows the chain and holds it to the heads.
func (c *check) links(ctx context.Context) error {
	var before Link
	heads := c.heads
	fits := int64(0) // height of the last head that does
	err := c.view.Links(ctx, 0, func(l *Link) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch {
		case before.Height == 0:
			c.is.First, c.is.Since, c.firstHash = l.Height, l.At, l.Hash
			if l.Height == 1 && l.Hash != l.HashAfter(Hash{}) {
				c.find(Finding{What: BadLink, Height: 1, Commit: l.Commit, Text: "the hash of the first link does not follow from its content"})
			}
		case l.Height != before.Height+1:
			c.find(Finding{What: BadLink, Height: before.Height + 1, Commit: before.Commit,
				Text: fmt.Sprintf("links %d to %d are gone: those between commit %d and commit %d", before.Height+1, l.Height-1, before.Commit, l.Commit)})
		case l.Hash != l.HashAfter(before.Hash):
			c.find(Finding{What: BadLink, Height: l.Height, Commit: l.Commit,
				Text: fmt.Sprintf("the hash of link %d does not follow from its content and from link %d: the link of commit %d or of commit %d was changed", l.Height, before.Height, before.Commit, l.Commit)})
		}
		c.note(l)
		for len(heads) > 0 && heads[0].Height <= l.Height {
			fits = c.head(&heads[0], l, fits)
			heads = heads[1:]
		}
		before = *l
		before.Content = nil
		return nil
	})
	if err != nil {
		return err
	}
	c.is.Last, c.is.Commit, c.is.Hash = before.Height, before.Commit, before.Hash
	if len(heads) > 0 {
		h := heads[len(heads)-1]
		c.find(Finding{What: Truncated, Height: before.Height + 1, Commit: before.Commit,
			Text: fmt.Sprintf("the chain ends at height %d with commit %d, and the head of %s is at height %d: all that was committed between is gone", before.Height, before.Commit, said(h.At), h.Height)})
	}
	if first := c.is.First; first > 1 {
		if hash, ok := c.trims[first]; !ok || hash != c.firstHash {
			c.find(Finding{What: BadLink, Height: first, Text: fmt.Sprintf("links 1 to %d are gone, and no later link says that retention took them", first-1)})
		}
	}
	return nil
}

// note takes down what a link says of the chain.
func (c *check) note(l *Link) {
	content, err := DecodeContent(l.Content)
	if err != nil {
		c.find(Finding{What: BadLink, Height: l.Height, Commit: l.Commit, Text: fmt.Sprintf("link %d of commit %d: %v", l.Height, l.Commit, err)})
		return
	}
	c.count += len(content.Entries) + len(content.Carried)
	if l.Kind == KindBegin {
		c.is.Began++
	}
	c.begins = append(c.begins, content.Begins...)
	if l.Kind == KindWentBack {
		c.is.WentBack = l.At
	}
	if content.Trim != nil {
		c.trims[content.Trim.Height] = content.Trim.Hash
	}
}

// head holds a link to a head of its height. It returns the height of the last head that
// fits.
func (c *check) head(h *Head, l *Link, fits int64) int64 {
	switch {
	case h.Height < l.Height: // before the first that is kept, or in a gap that was found
		c.is.HeadsOld++
		return fits
	case h.Hash == l.Hash:
		c.is.Heads++
		c.is.HeadAt = max(c.is.HeadAt, h.At)
		return l.Height
	}
	text := fmt.Sprintf("link %d has another hash than the head of %s", l.Height, said(h.At))
	if fits > 0 {
		text += fmt.Sprintf("; the one at height %d fits: what was committed after it was replaced", fits)
	}
	if c.is.WentBack != 0 {
		text += fmt.Sprintf(" (an owner found at %s that the database had gone back)", said(c.is.WentBack))
	}
	c.find(Finding{What: BadHead, Height: l.Height, Commit: l.Commit, Text: text})
	return fits
}

// window takes down what the links say of tasks from a number on, as many as memory is
// meant for. It returns the number after the last of them.
func (c *check) window(ctx context.Context, low int64) (high int64, err error) {
	high = math.MaxInt64
	if c.count > c.o.EntriesMax {
		if high, err = c.end(ctx, low); err != nil {
			return high, err
		}
	}
	c.rows, c.tasks, c.ids = map[rowKey]named{}, map[int64]namedTask{}, map[int64]string{}
	err = c.view.Links(ctx, 0, func(l *Link) error {
		if l.Height == c.is.First && l.Height > 1 {
			return nil // what lives of the first one that is kept is named again
		}
		content, err := DecodeContent(l.Content)
		if err != nil {
			return nil //nolint:nilerr // it is among the findings
		}
		inRange := c.inRange(l.Height)
		for i := range content.Entries {
			c.name(&content.Entries[i], l, low, high, inRange)
		}
		for i := range content.Carried {
			c.name(&content.Carried[i], l, low, high, !c.partial())
		}
		return ctx.Err()
	})
	return high, err
}

// inRange reports whether the rows of a link are checked.
func (c *check) inRange(height int64) bool {
	return height >= c.o.From && (c.o.To == 0 || height <= c.o.To)
}

// partial reports whether only a range is checked.
func (c *check) partial() bool { return c.o.From > 0 || c.o.To > 0 }

// end is the number at which the entries from low on are too many; it counts them by
// thousands of numbers.
func (c *check) end(ctx context.Context, low int64) (int64, error) {
	const group = 1024
	counts := map[int64]int{}
	err := c.view.Links(ctx, 0, func(l *Link) error {
		content, err := DecodeContent(l.Content)
		if err != nil {
			return nil //nolint:nilerr // it is among the findings
		}
		for _, all := range [][]Entry{content.Entries, content.Carried} {
			for i := range all {
				if all[i].Number >= low {
					counts[all[i].Number/group]++
				}
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return 0, err
	}
	groups := make([]int64, 0, len(counts))
	for g := range counts {
		groups = append(groups, g)
	}
	slices.Sort(groups)
	sum := 0
	for i, g := range groups {
		if sum += counts[g]; sum > c.o.EntriesMax && i > 0 {
			return max(g*group, low+1), nil
		}
	}
	return math.MaxInt64, nil
}

// name takes down what a link says of a row.
func (c *check) name(e *Entry, l *Link, low, high int64, inRange bool) {
	if e.Number < low || e.Number >= high {
		return
	}
	is := named{e.Digest, l.Height, l.Commit}
	if e.Task {
		if was, ok := c.tasks[e.Number]; !ok || e.Seq >= was.seq {
			c.tasks[e.Number] = namedTask{is, e.Seq, e.EndedAt}
		}
		return
	}
	if !inRange {
		return
	}
	key := rowKey{e.Number, e.Seq}
	if was, ok := c.rows[key]; ok {
		if was.digest != e.Digest {
			c.find(Finding{What: BadLink, Height: l.Height, Commit: l.Commit, Table: "journal", Number: e.Number, Seq: e.Seq,
				Text: fmt.Sprintf("link %d names row %d of task number %d, which link %d names with other values", l.Height, e.Seq, e.Number, was.height)})
		}
		return
	}
	c.rows[key] = is
}

// compare holds what is stored of the tasks of a window to what the links say.
func (c *check) compare(ctx context.Context, low, high int64) error {
	var h Hasher
	there := map[int64]bool{}
	err := c.view.Tasks(ctx, low, high, func(t *Row) error {
		number, id := t.Int("number"), t.Text("id")
		there[number], c.ids[number] = true, id
		is, ok := c.tasks[number]
		f := Finding{Height: is.height, Commit: is.commit, Table: "tasks", Number: number, Task: id, Seq: t.Int("seq")}
		switch {
		case ok && !c.inRange(is.height):
		case ok && h.Row(t) == is.digest:
			c.is.Tasks++
		case ok:
			f.What, f.Text = Changed, fmt.Sprintf("the row of task %s is not as commit %d wrote it", core.QuoteShort(id), is.commit)
			c.find(f)
		case c.partial():
		case c.olderTask(t):
			c.is.Before++
		default:
			f.What, f.Commit = Inserted, t.Int("commit_id")
			f.Text = fmt.Sprintf("no link names the row of task %s", core.QuoteShort(id))
			c.find(f)
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	err = c.view.Rows(ctx, low, high, func(r *Row) error {
		key := rowKey{r.Int("number"), r.Int("seq")}
		is, ok := c.rows[key]
		f := Finding{Height: is.height, Commit: is.commit, Table: "journal", Number: key.number, Task: c.ids[key.number], Seq: key.seq}
		switch {
		case ok && h.Row(r) == is.digest:
			c.is.Rows++
		case ok:
			f.What, f.Text = Changed, fmt.Sprintf("row %d of task %s is not as commit %d wrote it", key.seq, c.task(key.number), is.commit)
			c.find(f)
		case c.partial():
		case c.olderRow(r):
			c.is.Before++
		default:
			f.What, f.Commit = Inserted, r.Int("commit_id")
			f.Text = fmt.Sprintf("no link names row %d of task %s", key.seq, c.task(key.number))
			c.find(f)
		}
		delete(c.rows, key)
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	c.missing(there)
	return nil
}

// task is a task in a sentence.
func (c *check) task(number int64) string {
	if id, ok := c.ids[number]; ok {
		return core.QuoteShort(id)
	}
	return fmt.Sprintf("number %d", number)
}

// olderTask reports whether a row of tasks is from before the chain, or was left of a task
// whose links retention took.
func (c *check) olderTask(t *Row) bool {
	number, updated, ended := t.Int("number"), core.Instant(t.Int("updated_at")), core.Instant(t.Int("ended_at"))
	for _, b := range c.begins {
		if number < b.NextNumber && updated <= b.At.Add(clockSlack) {
			return true
		}
	}
	return c.trimmed() && ended != 0 && ended < c.detail
}

// olderRow reports whether a journal row may have been written while no chain was kept.
func (c *check) olderRow(r *Row) bool {
	number, at := r.Int("number"), core.Instant(r.Int("at"))
	for _, b := range c.begins {
		if number < b.NextNumber && at <= b.At.Add(clockSlack) && (b.Since == 0 || at >= b.Since.Add(-clockSlack)) {
			return true
		}
	}
	return false
}

// trimmed reports whether retention took links.
func (c *check) trimmed() bool { return c.is.First > 1 }

// missing finds what links name and is not there.
func (c *check) missing(there map[int64]bool) {
	for key, is := range c.rows {
		task, ok := c.tasks[key.number]
		if ok && task.ended != 0 && task.ended < c.detail || !ok && c.trimmed() && c.detail != 0 {
			c.is.Purged++
			continue
		}
		c.find(Finding{What: Removed, Height: is.height, Commit: is.commit, Table: "journal", Number: key.number, Task: c.ids[key.number], Seq: key.seq,
			Text: fmt.Sprintf("row %d of task %s, of commit %d, is gone, and it is too early for retention", key.seq, c.task(key.number), is.commit)})
	}
	for number, is := range c.tasks {
		if there[number] || !c.inRange(is.height) {
			continue
		}
		if is.ended != 0 && is.ended < c.row {
			c.is.Purged++
			continue
		}
		c.find(Finding{What: Removed, Height: is.height, Commit: is.commit, Table: "tasks", Number: number, Seq: is.seq,
			Text: fmt.Sprintf("the row of task number %d, of commit %d, is gone, and it is too early for retention", number, is.commit)})
	}
}

// Proven reports whether there is a chain, and nothing was found that does not fit it.
func (r *Report) Proven() bool { return r.Fits() && r.links() > 0 }

// links is how many partitions have a chain.
func (r *Report) links() (chains int) {
	for i := range r.Partitions {
		if r.Partitions[i].Last > 0 {
			chains++
		}
	}
	return chains
}

// Sentence is the report in a line.
func (r *Report) Sentence() string {
	var rows, purged, before int64
	heads := 0
	for i := range r.Partitions {
		p := &r.Partitions[i]
		rows, purged, before, heads = rows+p.Rows+p.Tasks, purged+p.Purged, before+p.Before, heads+p.Heads
	}
	switch {
	case !r.Fits():
		f := &r.Findings[0]
		return fmt.Sprintf("does not fit: %s; the first is in partition %d: %s", say.Count(int64(len(r.Findings)+r.More), "finding"), f.Partition, f.Text)
	case r.links() == 0:
		return "nothing to check: no partition has a chain"
	}
	text := fmt.Sprintf("fits: %s of %s, ", say.Count(rows, "row"), say.Count(int64(r.links()), "partition"))
	if r.LeftOut > 0 {
		text += fmt.Sprintf("the export leaves %s out, ", say.Count(int64(r.LeftOut), "partition"))
	}
	text += fmt.Sprintf("%d purged by retention, %d older than the chain; ", purged, before)
	switch {
	case heads == 0:
		return text + "no head: what was cut off at the end, or replaced as a whole, would not be seen"
	case r.Unsigned > 0:
		return text + fmt.Sprintf("%s, not signed: %d", say.Count(int64(heads), "head"), r.Unsigned)
	case r.Unheld > 0:
		return text + fmt.Sprintf("%s; signatures were not checked for want of a key", say.Count(int64(heads), "head"))
	}
	return text + say.Count(int64(heads), "signed head")
}
