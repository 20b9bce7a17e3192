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
	// waitLeast is a wait that is not looked at: packs and commit cycles alone make as much of it.
	waitLeast = 500 * time.Millisecond
	// waitMost is the longest that is promised, whatever the deadline: but see core.Plan.QueueFor.
	waitMost = 10 * time.Minute
	// waitSeen is the longest that is told apart.
	waitSeen = 2 * core.QueueForMax
	// rateFor is over how long the rate of an owner is averaged.
	rateFor = 2 * time.Second
	// busyLeast is how many submissions must have waited all the time for an interval to show how fast an owner is.
	busyLeast = 16
	// rateSure is how many submissions must have begun, if that takes less than rateFor, until the rate of an owner is known:
	// the first cycles after a start are slow.
	rateSure = 256
	// silentFor is how long an owner may say nothing before its queue counts as standing still.
	silentFor = 1500 * time.Millisecond
	// apartAfter is how long a partition may stand still before what it holds is no part of its owner's queue: others go on, and
	// what is known of it may be of a stream that is no more.
	apartAfter = 5 * time.Second
	// shareLeast is the share of an owner's submissions below which what this door has taken says too little of its queue.
	shareLeast = 0.2
	// shareKeep is how much of what was counted for the share is left at each report.
	shareKeep = 0.9
	// stretchesMost bounds what is kept of one partition's queue: with more, neighbours are told as one.
	stretchesMost = 4096

	standFor    = 15 * time.Second       // a queue that stands longer is cut
	standTarget = 2 * time.Second        // to this much work, or to
	standPart   = 0.2                    // this part of the time that submissions have, if that is less
	standFall   = 0.2                    // by so many seconds of work a second
	standRise   = 4.0                    // and it opens again by so many
	standOpen   = 0.5                    // when the wait is below this part of the target
	waitSlot    = 5 * time.Minute        // no time to come again is promised beyond it
	retryWait   = 500 * time.Millisecond // the least that is
)

// waits is what a door knows of how long a submission waits until it begins: what is before it in the queue of the owner of
// its partition, by how fast that owner begins submissions. It counts submissions, never messages, which hold up to
// [Config.PackItems] of them: those that this door has put into the stream it knows by their positions, and those of other
// doors by its share of what the owner has read lately. It belongs to the goroutine of the door; any may ask for the wait.
type waits struct {
	lines  []line // by partition
	owners map[string]*queueOwner
}

// line is one partition's queue. Only the door's goroutine changes it, but that any may add what it lets in.
type line struct {
	owner  atomic.Pointer[queueOwner] // nil: none has said anything yet
	moved  atomic.Int64               // the instant at which it was last read on, or had nothing of this door
	behind atomic.Int64               // what is stored and apart
	probed atomic.Int64               // when one was let in last to see whether it still stands

	mu   sync.Mutex // of open, and of whose it is
	open int64      // submissions of this door that are not in the stream yet

	stored int64     // of this door, in the stream and not begun
	apart  bool      // it stands still for so long that these do not count as their owner's
	list   []stretch // of these, by position
	head   int
	epoch  int64
	cursor uint64
	read   int64
	begun  int64
}

// stretch is submissions of this door up to a position.
type stretch struct {
	seq uint64
	n   int64
}

// queueOwner is the queue of all partitions that one scheduler owns: it takes them in turns, so that it is one.
type queueOwner struct {
	mine  atomic.Int64         // submissions of this door: on their way, or in the stream and not begun
	pace  atomic.Pointer[pace] // as of the last report
	given timeGiven            // to submissions that were looked at

	at       core.Instant  // of the last report
	own, all float64       // submissions read lately: of this door, and of all
	over     core.Instant  // since when the wait has been above the target; 0: it is not
	least    time.Duration // the shortest wait since

	retryQueue virtualQueue
}

// timeGiven is how much time submissions have of late.
type timeGiven struct {
	asked atomic.Int64  // submissions since the last report
	left  atomic.Int64  // the time that they had in all, in milliseconds
	has   time.Duration // on average; 0: not known
}

// note is safe for concurrent use.
func (g *timeGiven) note(left time.Duration) {
	g.asked.Add(1)
	g.left.Add(min(max(0, left), waitMost).Milliseconds())
}

// virtualQueue is the queue of those who are refused: each is told a time of its own.
type virtualQueue struct {
	mu   sync.Mutex
	slot core.Instant // which the last one was told

	last atomic.Pointer[refusalText]
}

// refusalText is a refusal, and what is said of it: most that come together are told the same but for their times.
type refusalText struct {
	why  refusalFacts
	text string
}

// refusalFacts is what a refusal depends on.
type refusalFacts struct {
	id, plan, tenant        string
	wait, needs, left, most time.Duration
	part, all               float64 // submissions a second: of the tenant, and in all
}

// refusal is one of the queue. It is safe for concurrent use.
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

// pace is how fast an owner is.
type pace struct {
	rate   float64       // submissions a second that begin; 0: not known yet
	share  float64       // of what it reads, of this door
	waited time.Duration // by what it read last
	limit  time.Duration // of the wait, 0: none; see stand
	has    time.Duration // how much time submissions have; 0: not known

	seen  time.Duration // until rate is known: the busy time that was looked at, and how many began in it
	begun int64
}

func newWaits(partitions int) waits {
	return waits{lines: make([]line, partitions), owners: map[string]*queueOwner{}}
}

// letIn notes submissions that are let in, negative: that go no further. It is safe for concurrent use.
func (l *line) letIn(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open += n
	l.count(n)
}

// count counts them as their owner's. It is locked.
func (l *line) count(n int64) {
	if o := l.owner.Load(); o != nil {
		o.mine.Add(n)
	}
}

// put notes where submissions are that were let in.
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
	l.list = append(l.list, stretch{seq, n})
	if len(l.list)-l.head > stretchesMost {
		l.mergePairs()
	}
}

// mergePairs tells pairs of neighbours as one.
func (l *line) mergePairs() {
	kept := l.list[:0]
	for i := l.head; i < len(l.list); i += 2 {
		is := l.list[i]
		if i+1 < len(l.list) {
			is = stretch{l.list[i+1].seq, is.n + l.list[i+1].n}
		}
		kept = append(kept, is)
	}
	l.list, l.head = kept, 0
}

// readUpTo takes off what is up to a position, and returns how many submissions that were. It is locked.
func (l *line) readUpTo(now core.Instant, cursor uint64) (n int64) {
	moved := cursor != l.cursor
	l.cursor = cursor
	if moved {
		l.setApart(false)
	}
	// What was stored before something that has passed has passed too, whatever its position: it may be of a stream of before.
	for i := l.head; i < len(l.list) && moved; i++ {
		if l.list[i].seq <= cursor {
			for ; l.head <= i; l.head++ {
				n += l.list[l.head].n
			}
		}
	}
	if l.head == len(l.list) {
		l.list, l.head = l.list[:0], 0
	}
	l.stored -= n
	l.count(-n)
	if moved || l.stored == 0 {
		l.moved.Store(int64(now))
	}
	l.setApart(l.standstill(now) > apartAfter)
	return n
}

// setApart has what is stored count as its owner's, or not. It is locked.
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

// progress is what an owner has read since its last report.
type progress struct{ own, read, begun int64 }

// takeReading takes what an owner says of it.
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

// adopt makes it another owner's, or another life's of the same. One that begins before what was read is of another
// stream, or of a database that went back: the positions say nothing then. It is locked.
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

// wait is how long what comes now waits until it begins, as far as is known. It is safe for concurrent use.
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

// standstill is how long nothing of it has begun although there is something: beyond what its owner may be silent.
func (l *line) standstill(now core.Instant) time.Duration {
	return min(max(0, now.Sub(core.Instant(l.moved.Load()))-silentFor), waitSeen)
}

// report takes what an owner says of its partitions.
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
	passed := now.Sub(o.at)
	is.learn(passed, begun, min(before, left) >= max(busyLeast, own/2))
	o.limitStanding(now, passed, &is)
	is.has = o.given.has
	o.at = now
	o.pace.Store(&is)
	if len(w.owners) > len(w.lines) {
		w.forget()
	}
}

// rate is how many submissions of this door begin a second, over all owners, as far as is known.
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

// forget drops owners that own nothing any more.
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

// averageWeight is the weight of what was seen in such a time in an average over rateFor.
func averageWeight(took time.Duration) float64 {
	return 1 - math.Exp(-took.Seconds()/rateFor.Seconds())
}

// learn takes how many began in a time; busy: there were others all the time. When there were not, it may be faster. A time
// in which the owner said nothing, or nothing began, says that it stood still, and not how fast it is.
func (p *pace) learn(took time.Duration, begun int64, busy bool) {
	if begun == 0 || took <= 0 || took > silentFor {
		return
	}
	rate, by := float64(begun)/took.Seconds(), averageWeight(took)
	switch {
	case p.rate == 0 && busy:
		p.seen, p.begun = p.seen+took, p.begun+begun
		if p.seen >= rateFor || p.begun >= rateSure {
			p.rate = float64(p.begun) / p.seen.Seconds()
		}
	case p.rate == 0:
	case busy || rate > p.rate:
		p.rate += by * (rate - p.rate)
	}
}

// wait is how long what comes now waits until it begins, where so many of this door are before it, as far as is known.
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

// target is how long a queue that stands may be: the same work is done from a short one as from a long one, and how long a
// short one takes is known better.
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

// limitStanding moves the limit of a queue that does not get shorter: a burst may fill it as far as deadlines allow, but when it
// has stood above the target for standFor it may be no longer than it was at its shortest, and then shorter and shorter
// down to the target.
func (o *queueOwner) limitStanding(now core.Instant, passed time.Duration, p *pace) {
	wait, target := p.wait(o.mine.Load()), o.given.target(passed)
	if wait <= target {
		o.over = 0
	} else if o.over == 0 {
		o.over, o.least = now, waitMost
	}
	o.least = min(o.least, wait)
	switch {
	case p.limit == 0 && o.over != 0 && now.Sub(o.over) >= standFor:
		p.limit = o.least
	case p.limit == 0:
	case wait < time.Duration(standOpen*float64(target)):
		if p.limit += time.Duration(standRise * float64(passed)); p.limit > waitMost {
			p.limit = 0
		}
	default:
		p.limit = max(target, p.limit-time.Duration(standFall*float64(passed)))
	}
}

// next is when a submission that is refused may come again, which would wait for so much longer than it may: each takes the
// next place in a queue of those that do. How long a standstill will last, and how fast an owner is that has shown nothing
// yet, is not known.
func (q *virtualQueue) next(now core.Instant, over time.Duration, rate float64) time.Duration {
	if rate == 0 || over <= 0 {
		return retryBacklog
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.slot = max(q.slot, now.Add(max(retryWait, over))).Add(time.Duration(float64(time.Second) / max(rate, 1)))
	q.slot = min(q.slot, now.Add(waitSlot))
	return q.slot.Sub(now)
}

// mayProbe reports whether a submission is let in to see whether a partition still stands: what is known of it may be of a
// stream that is no more. One a second is.
func (l *line) mayProbe(now core.Instant) bool {
	last := l.probed.Load()
	return now.Sub(core.Instant(last)) >= time.Second && l.probed.CompareAndSwap(last, int64(now))
}

// Report takes what a scheduler says of its partitions. It is safe for concurrent use, and takes effect at the next Flush.
func (d *Door) Report(node string, all []core.Reading) {
	d.events.put(event{node: node, readings: all})
}

// lineOf is the queue that a submission is in. Its id need not be one: that is told later.
func (d *Door) lineOf(id string) *line {
	if id == "" {
		return &d.waits.lines[0]
	}
	return &d.waits.lines[d.cfg.PartitionOf(id, d.cfg.Partitions)]
}

// Late is what [Ingest.Late] does.
func (d *Door) Late(now core.Instant, f *submit.Form) *Refusal {
	fl := d.shares.of(f)
	r := d.late(now, d.lineOf(f.ID), f, fl)
	if r != nil {
		fl.count(f)
		d.stats.came.Add(1)
		d.stats.refused[r.ErrCode-CauseFirst].Add(1)
	}
	return r
}

// late refuses a submission that would begin too late to be done, or that a queue which does not get shorter has no room
// for; nil: it may be taken. It looks at nothing but names and times, so that a refusal costs little. What was accepted
// under its id lately is not refused: its submitter asks again. It is safe for concurrent use.
func (d *Door) late(now core.Instant, l *line, f *submit.Form, fl *flow) *Refusal {
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
	if !may.fromTurn {
		owner.given.note(may.left)
		limit, stands := pace.limit, "refuse.stands"
		switch d.shares.judge(now, fl) {
		case within:
			d.shares.given.note(may.left)
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
	if wait <= most || d.ids != nil && d.recent.has(f.ID) {
		return nil
	}
	if l.standstill(now) > 0 && l.mayProbe(now) {
		return nil
	}
	y := refusalFacts{
		id: id, plan: plan.Name, wait: say.Rounded(wait), needs: say.Rounded(may.needs), left: say.Rounded(may.left), most: say.Rounded(max(0, most)),
	}
	if id == "refuse.share" {
		y.tenant, y.part, y.all = core.TenantIn(f.Labels, d.shares.label), rate, d.shares.rate()
	}
	return again.refusal(y, again.next(now, pace.wait(owner.mine.Load())-most, rate))
}

// patience is how long a submission may wait for its turn.
type patience struct {
	id       string // of the sentence with which it is refused
	left     time.Duration
	needs    time.Duration // of it, when its turn has come
	fromTurn bool          // its time counts from its turn: see core.Plan.QueueFor
}

// mayWait is how long a submission may wait for its turn; bad: its deadline cannot be read. One that names a deadline is held
// to it, whatever its plan.
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
