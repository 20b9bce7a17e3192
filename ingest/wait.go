package ingest

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/submit"
)

const (
	// waitLeast: a shorter wait counts as none. Packs and commit cycles alone make that much.
	waitLeast = 500 * time.Millisecond
	// waitMost is the longest wait with which a submission is let in, whatever its deadline; but see
	// core.Plan.QueueFor.
	waitMost = 10 * time.Minute
	// waitSeen is the longest wait that is computed.
	waitSeen = 2 * core.QueueForMax
	// rateFor is over how long the rate of an owner is averaged.
	rateFor = 2 * time.Second
	// busyLeast is how many submissions must have been waiting throughout an interval for it to show how fast
	// an owner is.
	busyLeast = 16
	// rateSure: the rate of an owner is known after so many submissions, or after rateFor. The first cycles
	// after a start are slow.
	rateSure = 256
	// silentFor is how long an owner may say nothing before its queue counts as standing still.
	silentFor = 1500 * time.Millisecond
	// apartAfter is how long a partition may stand still before its submissions no longer count in its
	// owner's queue: the others go on, and what is known of it may be of a stream that no longer exists.
	apartAfter = 5 * time.Second
	// shareLeast is the part of an owner's submissions that must come from this door for the door to judge
	// the queue by its own.
	shareLeast = 0.2
	// shareKeep is the weight of earlier reports in counting that part.
	shareKeep = 0.9
	// stretchesMost bounds the memory for one partition's queue. Beyond it, neighbours are merged.
	stretchesMost = 4096

	standFor    = 15 * time.Second       // a queue that stands longer is cut
	standTarget = 2 * time.Second        // to this much work, or to
	standPart   = 0.2                    // this part of the time that submissions have, if that is less
	standOver   = 1.05                   // while so many times what begins are asked for,
	standFall   = 0.4                    // by so many seconds of work a second,
	standRise   = 4.0                    // and it opens again by so many
	standOpen   = 0.5                    // when the wait is below this part of the target
	waitSlot    = 5 * time.Minute        // no time to come again is promised beyond it
	retryWait   = 500 * time.Millisecond // the least that is
)

// waits estimates how long a submission waits until it begins: how many are before it in the queue of its
// partition's owner, by how fast that owner begins them. It counts submissions, not messages, of which one
// holds up to [Config.PackItems]. It knows this door's by their positions in the stream, and estimates those
// of other doors from this door's part of what the owner has read lately. The door's goroutine changes it;
// anyone may ask for a wait.
type waits struct {
	lines  []line // by partition
	owners map[string]*queueOwner
}

// line is the queue of one partition. Only the door's goroutine changes it, except that any goroutine may
// count what it lets in.
type line struct {
	// owner is whose queue it is part of; nil: no owner has reported it yet.
	owner atomic.Pointer[queueOwner]
	// moved is when its owner last read on, or when nothing of this door was in it.
	moved atomic.Int64
	// behind is how many submissions are stored while it is apart.
	behind atomic.Int64
	// probed is when a submission was last let in to find out whether the partition still stands still.
	probed atomic.Int64

	// mu guards open, and who the owner is.
	mu sync.Mutex
	// open counts submissions of this door that are let in but not in the stream yet.
	open int64

	// stored counts those that are in the stream and have not begun.
	stored int64
	// apart says that it has stood still for so long that stored does not count in its owner's queue.
	apart bool
	// list has stored by position, from head on.
	list   []stretch
	head   int
	epoch  int64
	cursor uint64
	read   int64
	begun  int64
}

// stretch is n submissions of this door in messages from one position to another.
type stretch struct {
	from, seq uint64
	n         int64
}

// readUpTo removes what of the stretch has been read up to a position before its end, as if its messages were of one size, and
// returns how many submissions that is.
func (s *stretch) readUpTo(cursor uint64) (n int64) {
	if cursor < s.from || s.from >= s.seq {
		return 0
	}
	n = int64(float64(s.n) * float64(cursor-s.from+1) / float64(s.seq-s.from+1))
	s.from, s.n = cursor+1, s.n-n
	return n
}

// queueOwner is the queue of all partitions that one scheduler owns. They are one queue, because it takes
// them in turns.
type queueOwner struct {
	// mine counts submissions of this door in it that have not begun.
	mine atomic.Int64
	// pace is as of the last report.
	pace atomic.Pointer[pace]
	// given is the time that submissions have which were checked against it.
	given timeGiven

	// at is when its last report came.
	at core.Instant
	// own and all count submissions that it read lately: those of this door, and all.
	own, all float64
	// over is since when the wait has been above the target; 0: it is not.
	over core.Instant
	// asked is how many a second were checked against it lately.
	asked float64

	// retryQueue is for those that are refused because of the wait.
	retryQueue virtualQueue
}

// timeGiven averages how much time submissions had of late until their deadline.
type timeGiven struct {
	// asked counts submissions since the last report.
	asked atomic.Int64
	// left is the sum of their time, in milliseconds.
	left atomic.Int64
	// has is the average; 0: not known.
	has time.Duration
}

// note counts a submission with so much time left. It is safe for concurrent use.
func (g *timeGiven) note(left time.Duration) {
	g.asked.Add(1)
	g.left.Add(min(max(0, left), waitMost).Milliseconds())
}

// virtualQueue gives each submission that is refused a time of its own to come again, so that they do not all
// come at once.
type virtualQueue struct {
	mu sync.Mutex
	// slot is the time that the last one got.
	slot core.Instant

	// last is the last refusal: of those that come together most differ only in their times.
	last atomic.Pointer[refusalText]
}

// refusalText is the text of a refusal, and what it was made of.
type refusalText struct {
	why  refusalFacts
	text string
}

// refusalFacts is what the text of a refusal depends on.
type refusalFacts struct {
	id, plan, tenant        string
	wait, needs, left, most time.Duration
	// part and all are submissions a second: the tenant's part, and of all.
	part, all float64
}

// refusal makes the refusal of a submission that is to come again after retry. It is safe for concurrent use.
func (q *virtualQueue) refusal(y refusalFacts, retry time.Duration) *Refusal {
	is := q.last.Load()
	if is == nil || is.why != y {
		text := say.Of(y.id, "wait", y.wait, "plan", y.plan, "needs", y.needs, "left", y.left, "most", y.most,
			"tenant", core.QuoteShort(y.tenant), "part", perSecond(y.part), "all", perSecond(y.all))
		is = &refusalText{y, Refuse(429, CauseBacklog, "%s", text).Description}
		q.last.Store(is)
	}
	return &Refusal{Code: 429, ErrCode: CauseBacklog, Description: is.text, Retry: retry}
}

// pace is how fast an owner works off its queue.
type pace struct {
	// rate is how many submissions a second begin; 0: not known yet.
	rate float64
	// share is this door's part of what it reads.
	share float64
	// waited is how long what it read last had waited.
	waited time.Duration
	// limit is the longest wait with which it takes more; 0: there is none. See limitStanding.
	limit time.Duration
	// has is timeGiven.has.
	has time.Duration

	// seen and begun are, until rate is known, the time in which it was busy, and how many submissions began
	// in it.
	seen  time.Duration
	begun int64
	// still is for how long nothing was read of late, though others were waiting.
	still time.Duration
}

func newWaits(partitions int) waits {
	return waits{lines: make([]line, partitions), owners: map[string]*queueOwner{}}
}

// letIn counts submissions that are let in; a negative n, those of them that go no further. It is safe for
// concurrent use.
func (l *line) letIn(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open += n
	l.count(n)
}

// count adds n to the submissions in the owner's queue; nothing, while no owner is known. The caller holds mu.
func (l *line) count(n int64) {
	if o := l.owner.Load(); o != nil {
		o.mine.Add(n)
	}
}

// put notes at which position of the stream n submissions are that were let in before.
func (l *line) put(seq uint64, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open -= n
	if seq <= l.cursor {
		l.count(-n)
		return
	}
	l.stored += n
	if l.apart {
		l.count(-n)
	}
	l.list = append(l.list, stretch{seq, seq, n})
	if len(l.list)-l.head > stretchesMost {
		l.merge()
	}
}

// merge halves list at least: it merges neighbours, at the later position, into stretches of even length. What is kept of
// the oldest must not become coarse: they are read next.
func (l *line) merge() {
	most := 4 * l.stored / stretchesMost // two neighbours are longer
	kept := l.list[:0]
	for _, is := range l.list[l.head:] {
		if last := len(kept) - 1; last >= 0 && kept[last].n+is.n <= most {
			kept[last] = stretch{kept[last].from, is.seq, kept[last].n + is.n}
			continue
		}
		kept = append(kept, is)
	}
	l.list, l.head = kept, 0
}

// readUpTo removes the submissions up to the position that the owner has read, and returns how many. The
// caller holds mu.
func (l *line) readUpTo(now core.Instant, cursor uint64) (n int64) {
	moved := cursor != l.cursor
	l.cursor = cursor
	if moved {
		l.setApart(false)
	}
	// A stretch before one that has been read has been read too, whatever its position: that may be of an
	// earlier stream.
	for i := l.head; i < len(l.list) && moved; i++ {
		if l.list[i].seq <= cursor {
			for ; l.head <= i; l.head++ {
				n += l.list[l.head].n
			}
		}
	}
	if moved && l.head < len(l.list) {
		n += l.list[l.head].readUpTo(cursor)
	}
	if l.head == len(l.list) {
		l.list, l.head = l.list[:0], 0
	}
	l.stored -= n
	l.count(-n)
	if moved || l.stored == 0 || now < core.Instant(l.moved.Load()) {
		l.moved.Store(int64(now))
	}
	l.setApart(l.standstill(now) > apartAfter)
	return n
}

// setApart takes stored out of what the owner has to do, or puts it back. The caller holds mu.
func (l *line) setApart(apart bool) {
	switch {
	case apart && !l.apart:
		l.count(-l.stored)
	case !apart && l.apart:
		l.count(l.stored)
	}
	if l.apart = apart; apart {
		l.behind.Store(l.stored)
	} else {
		l.behind.Store(0)
	}
}

// progress is what an owner has read of a partition since its last report: of this door, in all, and how many
// began.
type progress struct{ own, read, begun int64 }

// takeReading takes in what an owner reports of the partition. It ignores one that owns it no more.
func (l *line) takeReading(now core.Instant, o *queueOwner, r *core.Reading) (p progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch former := l.owner.Load(); {
	case former != nil && r.Epoch < l.epoch: // of one that owns it no more
		return p
	case former != o || r.Epoch != l.epoch:
		l.adopt(now, o, r)
		return p
	}
	p = progress{own: l.readUpTo(now, r.Cursor), read: max(0, r.Read-l.read), begun: max(0, r.Begun-l.begun)}
	l.read, l.begun = r.Read, r.Begun
	return p
}

// adopt makes the line another owner's, or that of a later epoch of the same. If the new one reads from
// before where it was read to, then it reads another stream, or the database has gone back in time, and the
// positions mean nothing any more. The caller holds mu.
func (l *line) adopt(now core.Instant, o *queueOwner, r *core.Reading) {
	l.setApart(false)
	l.count(-l.open - l.stored)
	if r.Cursor < l.cursor {
		l.stored, l.list, l.head = 0, l.list[:0], 0
	}
	l.owner.Store(o)
	l.epoch, l.read, l.begun = r.Epoch, r.Read, r.Begun
	l.count(l.open + l.stored)
	l.readUpTo(now, r.Cursor)
	l.moved.Store(int64(now)) // it is not known to have stood still before
}

// wait estimates how long a submission that comes now waits until it begins. It is safe for concurrent use.
func (l *line) wait(now core.Instant) time.Duration {
	o := l.owner.Load()
	if o == nil {
		return 0
	}
	return o.pace.Load().wait(o.mine.Load()+l.behind.Load()) + l.standstill(now)
}

// longest is the longest wait of any partition. It is safe for concurrent use.
func (w *waits) longest(now core.Instant) (d time.Duration) {
	for i := range w.lines {
		d = max(d, w.lines[i].wait(now))
	}
	return d
}

// standstill is for how long nothing has begun although something waits, less silentFor, during which owners
// may be silent.
func (l *line) standstill(now core.Instant) time.Duration {
	return min(max(0, now.Sub(core.Instant(l.moved.Load()))-silentFor), waitSeen)
}

// report takes in what a scheduler says of its partitions, and updates how fast it is.
func (w *waits) report(now core.Instant, node string, all []core.Reading) {
	o := w.owners[node]
	if o == nil {
		o = &queueOwner{at: now}
		o.pace.Store(&pace{share: 1})
		w.owners[node] = o
	}
	before := o.mine.Load()
	var read, begun, own int64
	var waited float64
	for i := range all {
		is := &all[i]
		if is.Partition < 0 || is.Partition >= len(w.lines) {
			continue
		}
		more := w.lines[is.Partition].takeReading(now, o, is)
		own, read, begun = own+more.own, read+more.read, begun+more.begun
		waited += float64(more.read) * float64(is.Waited)
	}
	is, left := *o.pace.Load(), o.mine.Load()
	o.own, o.all = shareKeep*o.own+float64(own), shareKeep*o.all+float64(read)
	if is.share = 1; o.all > busyLeast {
		is.share = min(1, o.own/o.all)
	}
	if read > 0 {
		is.waited = time.Duration(waited / float64(read))
	}
	passed := max(0, now.Sub(o.at)) // the clock may have been set back
	is.learn(passed, read, begun, min(before, left) >= max(busyLeast, own/2))
	o.limitStanding(now, passed, &is)
	is.has = o.given.has
	o.at = now
	o.pace.Store(&is)
	if len(w.owners) > len(w.lines) {
		w.forget()
	}
}

// rate is how many submissions of this door begin a second at all owners, as far as that is known.
func (w *waits) rate() (rate float64) {
	counted := make(map[*queueOwner]bool, len(w.owners))
	for i := range w.lines {
		if o := w.lines[i].owner.Load(); o != nil && !counted[o] {
			counted[o] = true
			is := o.pace.Load()
			rate += is.rate * is.share
		}
	}
	return rate
}

// forget drops owners that have no partition any more.
func (w *waits) forget() {
	for node, o := range w.owners {
		owns := false
		for i := range w.lines {
			owns = owns || w.lines[i].owner.Load() == o
		}
		if !owns {
			delete(w.owners, node)
		}
	}
}

// averageWeight is the weight that what was seen in a time has in an average over about rateFor.
func averageWeight(took time.Duration) float64 {
	return 1 - math.Exp(-took.Seconds()/rateFor.Seconds())
}

// learn takes in that so many submissions were read in a time, and so many of them began. busy: others were
// waiting throughout; if not, the owner might have been faster, so that only a higher rate counts. A time in
// which the owner was silent, or all that was read was over, says nothing about its speed. One in which nothing
// was read belongs to what begins next: messages hold many, and cycles may be long. But what has stood still is
// not slow.
func (p *pace) learn(took time.Duration, read, begun int64, busy bool) {
	switch {
	case took <= 0:
		return
	case read == 0 && begun == 0 && busy && took <= silentFor:
		p.still += took
		return
	}
	still := p.still
	if p.still = 0; begun == 0 || took > silentFor {
		return
	}
	if p.rate != 0 || p.begun != 0 { // else it was not at work yet
		took += still
	}
	rate, by := float64(begun)/took.Seconds(), averageWeight(took)
	switch {
	case p.rate == 0 && busy:
		p.seen, p.begun = p.seen+min(took, silentFor), p.begun+begun
		if p.seen >= rateFor || p.begun >= rateSure {
			p.rate = float64(p.begun) / p.seen.Seconds()
		}
	case p.rate == 0:
	case busy && took <= silentFor || rate > p.rate:
		p.rate += by * (rate - p.rate)
	}
}

// wait estimates how long a submission waits that comes after mine others of this door. They are this door's
// part of the queue, which gives the length of the whole; that, divided by the rate, is the wait.
func (p *pace) wait(mine int64) time.Duration {
	queue := float64(mine) / max(p.share, shareLeast)
	if p.share < shareLeast {
		queue = max(queue, p.rate*p.waited.Seconds())
	}
	if p.rate == 0 {
		return 0
	}
	return time.Duration(min(queue/p.rate, waitSeen.Seconds()) * float64(time.Second))
}

// target is how long a queue that does not shrink may be. As much work gets done from a short queue as from a
// long one, and its length in time is known better. It takes in what was noted since the last call.
func (g *timeGiven) target(passed time.Duration) time.Duration {
	if n := g.asked.Swap(0); n > 0 {
		has := time.Duration(g.left.Swap(0)/n) * time.Millisecond
		if g.has == 0 {
			g.has = has
		}
		g.has += time.Duration(averageWeight(passed) * float64(has-g.has))
	}
	if g.has == 0 {
		return standTarget
	}
	return min(standTarget, max(waitLeast, time.Duration(standPart*float64(g.has))))
}

// limitStanding limits a queue that does not shrink. A burst may fill a queue as far as deadlines allow, and drains if less
// is asked for than begins. But where more is asked for and the queue has been above the target for standFor, it may be no
// longer than it is, and then less and less, down to the target, for as long as more is asked for. When it is short again the
// limit rises and goes.
func (o *queueOwner) limitStanding(now core.Instant, passed time.Duration, p *pace) {
	asked := float64(o.given.asked.Load()) / max(passed, time.Millisecond).Seconds()
	o.asked += averageWeight(passed) * (asked - o.asked)
	wait, target := p.wait(o.mine.Load()), o.given.target(passed)
	if wait <= target {
		o.over = 0
	} else if o.over == 0 {
		o.over = now
	}
	stands := o.asked > standOver*p.rate*p.share
	is := time.Duration(standOver*float64(wait)) + target // one that was longer, or is still opening, limits nothing
	switch {
	case stands && o.over != 0 && now.Sub(o.over) >= standFor && (p.limit == 0 || p.limit > is):
		p.limit = is
	case p.limit == 0:
	case wait < time.Duration(standOpen*float64(target)):
		if p.limit += time.Duration(standRise * float64(passed)); p.limit > waitMost {
			p.limit = 0
		}
	case stands:
		p.limit = max(target, p.limit-time.Duration(standFall*float64(passed)))
	}
}

// next is after how long a refused submission may come again. over is by how much its wait is too long, left the time that it
// has. Each gets the next place in a queue that moves at rate; but one whose place would come when its time is over gets none:
// it will hardly come, and those that do would wait for it. If nothing is known, as of a standstill or of an owner that has
// shown nothing yet, it is retryBacklog.
func (q *virtualQueue) next(now core.Instant, over, left time.Duration, rate float64) time.Duration {
	if rate == 0 || over <= 0 {
		return retryBacklog
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	slot := max(q.slot, now.Add(max(retryWait, over))).Add(time.Duration(float64(time.Second) / max(rate, 1)))
	if most := min(waitSlot, max(left, retryBacklog)); slot.Sub(now) > most {
		return most
	}
	q.slot = slot
	return slot.Sub(now)
}

// mayProbe lets one submission a second in to find out whether the partition still stands still: what is
// known of it may be of a stream that no longer exists. ahead: it is not let in yet, but asked about again.
func (l *line) mayProbe(now core.Instant, ahead bool) bool {
	last := l.probed.Load()
	return core.Instant(last).Elapsed(now, time.Second) && (ahead || l.probed.CompareAndSwap(last, int64(now)))
}

// Report takes in what a scheduler says of its partitions. It acts at the next Flush. It is safe for
// concurrent use.
func (d *Door) Report(node string, all []core.Reading) {
	d.events.put(event{node: node, readings: all})
}

// lineOf is the queue that a submission would be in. The id is unchecked.
func (d *Door) lineOf(id string) *line {
	if id == "" {
		return &d.waits.lines[0]
	}
	return &d.waits.lines[d.cfg.PartitionOf(id, d.cfg.Partitions)]
}

// Late is [Ingest.Late]. It counts the submission if it refuses it; otherwise Admit does.
func (d *Door) Late(now core.Instant, f *submit.Form) *Refusal {
	fl := d.shares.of(f)
	r := d.late(now, d.lineOf(f.ID), f, fl, true)
	if r != nil {
		fl.count(f)
		d.stats.came.Add(1)
		d.stats.refused[r.ErrCode-CauseFirst].Add(1)
	}
	return r
}

// late refuses a submission that would begin too late to be done, or for which a queue that does not shrink
// has no room; nil: it may be let in. It looks at names and times only, so that a refusal costs little. An id
// that was accepted lately is not refused: its submitter asks again. ahead: one that is not refused comes again with its
// input, and counts then. It is safe for concurrent use.
func (d *Door) late(now core.Instant, l *line, f *submit.Form, fl *flow, ahead bool) *Refusal {
	if f.StartAt != "" {
		return nil // it does not wait in the queue until then
	}
	wait := l.wait(now)
	if wait < waitLeast {
		return nil
	}
	version, err := core.ParsePlanVersion(f.Version)
	if err != nil {
		return nil
	}
	plan := d.planOf(f.Type, version)
	if plan == nil || !plan.Admission.Refuses() {
		return nil
	}
	class, owner := classIn(f.Labels), l.owner.Load()
	pace := owner.pace.Load()
	may, bad := d.mayWait(now, plan, f, pace.has)
	if bad {
		return nil
	}
	id, most := may.id, time.Duration(classShare(int64(float64(may.left-may.needs)/core.Weather), class))
	again, rate := &owner.retryQueue, pace.rate
	share := shareless
	if !may.fromTurn {
		limit, stands := pace.limit, "refuse.stands"
		switch share = d.shares.judge(now, fl); share {
		case within:
			limit = 0 // what stands is not this tenant's
		case beyond:
			limit, stands = d.shares.most(), "refuse.share"
		}
		if limit != 0 && limit < most {
			if id, most = stands, time.Duration(classShare(int64(limit), class)); id == "refuse.share" {
				again, rate = &fl.retryQueue, d.shares.part(fl)
			}
		}
		most = min(most, waitMost)
	}
	in := wait <= most || d.ids != nil && d.recent.has(f.ID) || l.standstill(now) > 0 && l.mayProbe(now, ahead)
	if !may.fromTurn && !(in && ahead) {
		owner.given.note(may.left)
		if share == within {
			d.shares.given.note(may.left)
		}
	}
	if in {
		return nil
	}
	y := refusalFacts{
		id: id, plan: plan.Name, wait: say.Rounded(wait), needs: say.Rounded(may.needs), left: say.Rounded(may.left), most: say.Rounded(max(0, most)),
	}
	if id == "refuse.share" {
		y.tenant, y.part, y.all = core.TenantIn(f.Labels, d.shares.label), rate, d.shares.rate()
	}
	return again.refusal(y, again.next(now, pace.wait(owner.mine.Load())-most, may.left, rate))
}

// patience is how long a submission can wait until it begins.
type patience struct {
	// id is of the sentence that refuses it.
	id string
	// left is its time until the deadline, or until its turn must come.
	left time.Duration
	// needs is how much of that the task itself takes.
	needs time.Duration
	// fromTurn says that its deadline counts from when it begins: see core.Plan.QueueFor.
	fromTurn bool
}

// mayWait computes how long a submission can wait until it begins. One that names a deadline is held to it,
// whatever its plan says. bad: the deadline cannot be read.
func (d *Door) mayWait(now core.Instant, plan *core.Plan, f *submit.Form, has time.Duration) (p patience, bad bool) {
	if f.CompleteBy == "" && plan.QueueFor > 0 {
		return patience{id: "refuse.turn", left: plan.QueueFor, fromTurn: true}, false
	}
	by, err := core.ParseCompleteBy(f.CompleteBy, now.Add(-f.Ago), now)
	if err != nil {
		return p, true
	}
	p = patience{id: "refuse.wait", left: plan.CompleteBy - f.Ago}
	if by != 0 {
		p.left = by.Sub(now)
	}
	p.left -= plan.UndoReserve
	if d.cfg.Needs != nil {
		p.needs = plan.Admission.Needs(d.cfg.Needs(plan), max(p.left, has))
	}
	return p, false
}
