package scheduler

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
)

// runner is the goroutine of one shard: it feeds it mail and carries out the
// orders to adopt or let go a partition between turns.
type runner struct {
	s      *Scheduler
	shard  *Shard
	in     *Inbox
	orders chan order
	owned  atomic.Int32
	// holding has an element during a turn that may take an ended task up again, and
	// while tasks are forgotten: one that a turn has loaded must not lose its journal
	// before the turn has committed. Other turns need not wait for the forgetting.
	holding chan struct{}

	mu     sync.Mutex
	held   map[int]bool         // partitions adopted, or about to be
	epochs map[int]int64        // of those adopted
	noted  map[int]int64        // the last commit of each of those, as of the last turn
	backs  map[int]core.Instant // when the database of each of those went back last
	losses []order              // partitions that can no longer be read

	// turning is held by who turns: the runner's goroutine, or another runner's that
	// turns for several. It guards the shard and what follows.
	turning lock
	solo    Crew        // of turns alone
	part    Part        // of the turn
	engaged atomic.Bool // its runner may hold it for long: it takes over, lets go, or waits for forgetting
	feeds   map[int]*feed
	paced   int          // tasks that a partition may have in hand by how long turns take
	pacedAt core.Instant // when that was changed
	flood   core.Instant // since when turns have seen one flood; 0: the last has seen none
	narrow  bool         // new tasks wait for shorter turns or the end of a flood
	failing int64        // how many commits there had been when a turn failed, plus one; 0: none has since the last commit
	flushAt core.Instant // when a moved cursor has waited long enough for a commit to ride on; 0: none waits

	next core.Instant // when its last turn alone began, or the next is to begin; lead.mu guards it
}

// order asks a runner to adopt a partition, to forget it as lost, or to let
// some go.
type order struct {
	partition int
	adopt     bool
	lost      bool
	epoch     int64         // of lost: the ownership that was lost
	evidence  core.Evidence // of lost: what another owner recorded, if it was that
	commit    int64         // of lost: what the store has, which may be of the turn that is on; 0: it is not
	why       error         // of lost
	letGo     []int
}

// feed is what brings a partition's mail.
type feed struct {
	stopListen func()
	stopRead   func()
}

func (f *feed) stopReading() {
	if f.stopRead != nil {
		f.stopRead()
		f.stopRead = nil
	}
}

func newRunner(s *Scheduler, bus Bus) *runner {
	r := &runner{s: s, orders: make(chan order, 2*s.cfg.Partitions), held: map[int]bool{}, noted: map[int]int64{}, backs: map[int]core.Instant{}, turning: newLock(), epochs: map[int]int64{}, feeds: map[int]*feed{}, holding: make(chan struct{}, 1), paced: s.cfg.InFlight}
	r.in = newInbox(s.cfg.Now, s.cfg.Memory)
	r.shard = NewShard(s.cfg.Config, s.store, bus, s.log, s.cfg.Rand, r.in.told)
	return r
}

func (r *runner) holds(partition int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held[partition]
}

func (r *runner) setHeld(partition int, held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if held {
		r.held[partition] = true
	} else {
		delete(r.held, partition)
		delete(r.epochs, partition)
		delete(r.noted, partition)
		delete(r.backs, partition)
	}
}

// ownerships are the partitions held and their epochs.
func (r *runner) ownerships() map[int]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.epochs)
}

// epoch is that under which a partition is held, if it is.
func (r *runner) epoch(partition int) (int64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	epoch, ok := r.epochs[partition]
	return epoch, ok
}

func (r *runner) setEpoch(partition int, epoch int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epochs[partition] = epoch
	r.noted[partition] = r.shard.LastCommit(partition)
	r.backs[partition] = r.shard.WentBack(partition)
}

// last is the last commit of a partition that is held, as of the last turn.
func (r *runner) last(partition int) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.noted[partition]
}

// wentBack is when the database of a partition that is held went back last; 0: never.
func (r *runner) wentBack(partition int) core.Instant {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.backs[partition]
}

// note keeps the last commits of the partitions adopted, for those who may not look
// into the shard.
func (r *runner) note() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.noted {
		r.noted[p] = r.shard.LastCommit(p)
	}
}

// lose takes note, on the goroutine of a reader, that a partition can no longer be read:
// the runner may be waiting for that reader.
func (r *runner) lose(o order) {
	r.mu.Lock()
	r.losses = append(r.losses, o)
	r.mu.Unlock()
	r.s.look()
}

// takeLosses returns what lose took note of.
func (r *runner) takeLosses() []order {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.losses
	r.losses = nil
	return all
}

func (r *runner) ask(ctx context.Context, o order) {
	if o.adopt {
		r.setHeld(o.partition, true)
	}
	select {
	case r.orders <- o:
	case <-ctx.Done():
	}
}

// run serves until ctx ends, then drains. What is under way may go on for
// DrainMax after that, and is cut off then, whatever it waits for; with a negative DrainMax it is cut off at once, as by
// a crash.
func (r *runner) run(ctx context.Context) error {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	stopCut := context.AfterFunc(ctx, func() {
		if r.s.cfg.DrainMax < 0 {
			cut()
			return
		}
		late := time.AfterFunc(r.s.cfg.DrainMax, cut)
		context.AfterFunc(work, func() { late.Stop() })
	})
	defer stopCut()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		r.setTimer(timer)
		select {
		case <-ctx.Done():
			return r.drain(work)
		case o := <-r.orders:
			if err := r.obey(ctx, work, o); err != nil {
				return err
			}
			continue
		case <-r.in.wake:
		case <-timer.C:
		}
		if err := r.serve(ctx, work, timer); err != nil {
			return err
		}
	}
}

// turnAlone runs a turn of this runner, which is locked, and rests.
func (r *runner) turnAlone(ctx, work context.Context, timer *time.Timer) error {
	began, wrote := r.s.cfg.Now(), r.shard.Stats.Writes
	r.s.lead.begins(r, began)
	err := r.turn(work, r.flushDue(began))
	gap, early := r.gap(r.shard.Stats.Writes - wrote)
	r.leave(early)
	if now := r.s.cfg.Now(); err == nil && began.Add(gap) > now {
		next := began.Add(gap)
		if early {
			next = r.s.lead.slot(r, next, gap)
		}
		r.gather(ctx, timer, next.Sub(now), r)
	}
	return err
}

// leave ends the runner's part in a turn. If the rest after it may end early, it looks out
// for the answers of all that it has in hand.
func (r *runner) leave(early bool) {
	answers := 0
	if early {
		answers = r.shard.InHand()
	}
	r.in.expect(answers)
	r.disengage()
}

// drainEnd is the part of DrainMax that is left for the last commit and the release.
const drainEnd = 5

// flushDue reports whether a moved cursor has waited long enough.
func (r *runner) flushDue(now core.Instant) bool { return r.flushAt != 0 && now >= r.flushAt }

// busyWrites is how many tasks a commit wrote when more are surely on their way: the
// next waits for all of CommitGap. After one of fewer it waits for a part of it; after
// one that wrote a single task, or had company enough with fullWrites, not at all.
const (
	busyWrites = 8
	fullWrites = 1000
)

// gap is how long after the beginning of a turn that wrote so much the next may begin;
// early: unless all that is in hand has been answered before, when nobody is left to wait
// for. The rest of a flood is sat out.
func (r *runner) gap(wrote int64) (gap time.Duration, early bool) {
	switch {
	case r.s.cfg.FloodGap > 0 && r.s.flooded():
		return r.s.cfg.FloodGap, false
	case wrote > 1 && wrote < fullWrites:
		return r.s.cfg.CommitGap * time.Duration(min(wrote, busyWrites)) / busyWrites, true
	}
	return 0, false
}

// flooded reports whether the processors are the door's.
func (s *Scheduler) flooded() bool { return s.cfg.Flooded != nil && s.cfg.Flooded() }

// gather lets more arrive before the next commit: a commit of a thousand writes
// costs half as much a write as one of a hundred, for the database, the network
// and the agents alike. It ends early when all have the answers that they expect, if
// any expects some.
func (r *runner) gather(ctx context.Context, timer *time.Timer, wait time.Duration, all ...*runner) {
	if wait <= 0 {
		return
	}
	timer.Reset(wait)
	early := false
	for _, o := range all {
		if !o.in.expects() {
			continue
		}
		select {
		case <-o.in.all:
			early = true
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
	if early {
		return
	}
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// narrowLook is how often a look is taken whether more tasks may be taken up again.
const narrowLook = 20 * time.Millisecond

// How the tasks in hand follow the length of turns: down by an eighth after a turn
// that was too long, up by a sixteenth after one of less than half of that, when the
// last change is a whole TurnMax ago; never below a sixteenth of the most. A flood that
// ends leaves a quarter of the most if it was a long one: what it held back would come
// all at once, in a turn of a second.
const (
	paceDown  = 8
	paceUp    = 16
	paceLeast = 16
	paceFlood = 4
	longFlood = 500 * time.Millisecond
)

// pace takes note of a turn that has just ended.
func (r *runner) pace(now core.Instant, took time.Duration) {
	flooded := r.s.flooded()
	if !flooded {
		r.flood = 0
	} else if r.flood == 0 {
		r.flood = now
	}
	switch most, limit := r.s.cfg.InFlight, r.s.cfg.TurnMax; {
	case limit < 0:
	case took > limit:
		r.paced, r.pacedAt = max(1, most/paceLeast, r.paced-r.paced/paceDown), now
	case flooded && now.Sub(r.flood) < longFlood:
	case flooded:
		r.paced, r.pacedAt = min(r.paced, max(most/paceFlood, r.floodShare())), now
	case took < limit/2 && now.Sub(r.pacedAt) >= limit: // short turns stand between long ones, too
		r.paced, r.pacedAt = min(most, r.paced+r.paced/paceUp+1), now
	}
}

// window is how many tasks a partition may have in hand for new ones to be taken up.
func (r *runner) window() int {
	if r.s.flooded() {
		return min(r.paced, r.floodShare())
	}
	return r.paced
}

// floodShare is a partition's part of what the node may have in hand in a flood.
func (r *runner) floodShare() int { return max(1, r.s.cfg.FloodInFlight/max(1, r.s.Owned())) }

// setTimer arms the timer for the next wake, for a cursor that has waited long
// enough for a commit to ride on, or for a look whether more may be taken up again.
func (r *runner) setTimer(timer *time.Timer) {
	wait := time.Hour
	r.turning.lock()
	defer r.turning.unlock()
	for _, at := range []core.Instant{r.shard.NextWake(), r.flushAt} {
		if at != 0 {
			wait = min(wait, max(0, at.Sub(r.s.cfg.Now())))
		}
	}
	if r.narrow { // neither the end of a flood nor a quiet while is mail
		wait = min(wait, narrowLook)
	}
	timer.Reset(wait)
}

// turn runs one turn and lets go of what it lost. Only a bug is an error.
func (r *runner) turn(ctx context.Context, flush bool) error {
	r.part = Part{Shard: r.shard, Mail: r.in.take(), Flush: flush}
	revives := len(r.part.Mail.Controls) > 0 // nothing else loads a task that has ended
	if revives && !r.hold(ctx) {
		// It ends: what is not handled is read again by the next owner. The inbox has room
		// for what still comes.
		r.in.giveBack(r.part.Mail)
		return nil
	}
	began := r.s.cfg.Now()
	r.solo.Turn(ctx, began, &r.part)
	if revives {
		r.unhold()
	}
	return r.turned(ctx, began)
}

// turned takes note of what the turn came to that began then.
func (r *runner) turned(ctx context.Context, began core.Instant) error {
	part, now := &r.part, r.s.cfg.Now()
	r.pace(now, now.Sub(began))
	r.in.giveBack(part.Mail)
	for _, p := range part.Turned.Lost {
		r.unfeed(p)
		if part.Err == nil {
			r.s.news.lose(p)
		}
	}
	r.note()
	if part.Flush || !r.shard.Unsaved() {
		r.flushAt = 0
	}
	if r.flushAt == 0 && r.shard.Unsaved() {
		r.flushAt = now.Add(r.s.cfg.FlushEvery)
	}
	most := r.window()
	r.narrow = most < r.s.cfg.InFlight
	for p := range r.feeds {
		r.in.setRoom(p, most-r.shard.Load(p))
	}
	if r.shard.Stats.Commits >= r.failing {
		r.worked()
	}
	if part.Err == nil || ctx.Err() != nil {
		return nil
	}
	if errors.Is(part.Err, core.ErrForeignRow) {
		return part.Err
	}
	r.failing = r.shard.Stats.Commits + 1
	r.s.cfg.report(TroubleTurn, part.Err)
	return nil
}

// worked says that what failed in a turn before works.
func (r *runner) worked() {
	if r.failing > 0 {
		r.failing = 0
		r.s.cfg.report(TroubleTurn, nil)
	}
}

// hold keeps such turns and forgetting apart, until unhold. It reports false when ctx
// ends before.
func (r *runner) hold(ctx context.Context) bool {
	select {
	case r.holding <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *runner) unhold() { <-r.holding }

// engage takes the runner out of the turns that others lead, until disengage. Who is
// about to lead one either has this runner before, or does not wait for it.
func (r *runner) engage() {
	r.s.lead.free.lock()
	defer r.s.lead.free.unlock()
	r.engaged.Store(true)
	r.turning.lock()
}

func (r *runner) disengage() {
	r.engaged.Store(false)
	r.turning.unlock()
}

func (r *runner) obey(ctx, work context.Context, o order) error {
	r.engage()
	defer r.disengage()
	switch {
	case o.lost:
		if o.commit != 0 && r.shard.LastCommit(o.partition) >= o.commit {
			return nil
		}
		if epoch, ok := r.shard.Owns(o.partition); ok && epoch == o.epoch && (!o.evidence.Former || r.shard.Doubt(o.evidence)) {
			r.s.log.Debug("the partition is given up", "partition", o.partition, "epoch", o.epoch, "why", o.why)
			r.s.news.lose(o.partition)
			r.shard.Rewound(o.partition, o.why)
			r.shard.Drop(o.partition)
			r.unfeed(o.partition)
		}
		return nil
	case o.adopt:
		r.adopt(ctx, o.partition)
		return nil
	}
	var owned []int
	for _, p := range o.letGo {
		if _, ok := r.shard.Owns(p); ok { // one that is to be adopted by a later order stays held
			owned = append(owned, p)
		}
	}
	return r.release(work, owned)
}

func (r *runner) adopt(ctx context.Context, p int) {
	if _, ok := r.shard.Owns(p); ok {
		return
	}
	// The order may be from before another node came: nodes that start together
	// would take each other's partitions away.
	if !r.s.falls(p) {
		r.setHeld(p, false)
		return
	}
	err := r.tryAdopt(ctx, p)
	if err != nil {
		r.unfeed(p)
		r.shard.Drop(p)
	}
	if ctx.Err() == nil {
		r.s.cfg.report(TroubleTakeover, r.s.news.took(p, err))
	}
	if err == nil {
		r.worked() // if what failed is still there to do, it fails again soon
	}
}

// tryAdopt listens to replies first: an answer to a command that is sent again
// must find ears.
func (r *runner) tryAdopt(ctx context.Context, p int) error {
	ground, err := r.s.wires.Ground(ctx, p)
	if err != nil {
		return err
	}
	f := &feed{}
	r.feeds[p] = f
	r.owned.Add(1)
	if f.stopListen, err = r.s.wires.Listen(p, r.in); err != nil {
		return err
	}
	from, err := r.shard.Adopt(ctx, r.s.cfg.Now(), p, ground)
	if err != nil {
		return err
	}
	r.setEpoch(p, from.Epoch)
	r.in.openGate(p, r.window()-r.shard.Load(p))
	lost := func(why error) { r.lose(order{partition: p, lost: true, epoch: from.Epoch, why: why}) }
	if f.stopRead, err = r.s.wires.Read(ctx, p, from, r.in, lost); err != nil {
		r.shard.Rewound(p, err)
		return err
	}
	r.s.log.Debug("partition taken over", "partition", p, "epoch", from.Epoch, "cursor", from.Cursor, "resumed", from.Resumed)
	return nil
}

// unfeed stops what brings a partition's mail.
func (r *runner) unfeed(p int) {
	r.in.closeGate(p)
	if f := r.feeds[p]; f != nil {
		f.stopReading()
		if f.stopListen != nil {
			f.stopListen()
		}
		delete(r.feeds, p)
		r.owned.Add(-1)
	}
	r.setHeld(p, false)
}

// drain ends the shard: no new work, the answers that are due, the last commit.
func (r *runner) drain(work context.Context) error {
	r.engage()
	defer r.disengage()
	all := make([]int, 0, len(r.feeds))
	for p := range r.feeds {
		all = append(all, p)
	}
	return r.release(work, all)
}

// release lets partitions go in order: stop reading, wait for the commands that
// are out, commit the cursors, give up the ownership.
func (r *runner) release(work context.Context, partitions []int) error {
	if len(partitions) == 0 {
		return nil
	}
	for _, p := range partitions {
		r.in.closeGate(p)
		if f := r.feeds[p]; f != nil {
			f.stopReading()
		}
	}
	if r.s.cfg.DrainMax >= 0 {
		if err := r.settle(work, partitions); err != nil {
			return err
		}
		r.giveUp(work, partitions)
	}
	for _, p := range partitions {
		r.shard.Drop(p)
		r.unfeed(p)
	}
	return nil
}

// giveUp releases partitions in the store. One that cannot be released is its successor's after a while.
func (r *runner) giveUp(work context.Context, partitions []int) {
	var kept []int
	var failed error
	for _, p := range partitions {
		epoch, ok := r.shard.Owns(p)
		if !ok {
			continue
		}
		if err := r.s.store.Release(work, p, epoch); err != nil {
			kept, failed = append(kept, p), err
		}
	}
	if failed != nil {
		r.s.log.Warn("partitions cannot be released, and their successors wait", "partitions", listed(kept), "error", failed)
	}
}

// settle keeps turning until the partitions have nothing in hand or most of DrainMax
// is over, and commits what is left to commit. The rest is for the last commit and
// the release: a commit that is cut off costs the shard all its partitions, and
// leaves these with an owner that their successor waits for.
func (r *runner) settle(work context.Context, partitions []int) error {
	over := time.NewTimer(r.s.cfg.DrainMax - r.s.cfg.DrainMax/drainEnd)
	defer over.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for work.Err() == nil {
		if err := r.turn(work, true); err != nil {
			return err
		}
		if !slices.ContainsFunc(partitions, r.shard.busy) {
			return nil
		}
		select {
		case <-over.C:
			return nil
		default:
		}
		timer.Reset(r.s.cfg.FlushEvery / 10)
		select {
		case <-r.in.wake:
		case <-timer.C:
		case <-over.C:
			return nil
		case <-work.Done():
		}
	}
	return nil
}
