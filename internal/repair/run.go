package repair

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

const (
	messageMax = core.ControlNumbersMax // tasks that one control message names
	publishers = 8                      // messages that leave at a time
	lateEvery  = 5 * time.Second        // how often tasks of earlier waves are looked at
	lookMax    = time.Second            // how seldom those of the present wave are looked at, at most
	lookShare  = 9                      // a look is followed by this many times as long without one
	ignoredMax = 3                      // how often a task is asked whose owner does nothing though the core would allow it
	sendAgain  = time.Second            // after a message that could not be stored
	piledMax   = 7                      // how often the time until a member is asked again doubles
)

// run is one operation in a runner's memory.
type run struct {
	r    *Runner
	op   operate.Operation
	edit *patch

	wave     wave    // the wave op.Wave
	late     []*item // of earlier waves, asked and without an outcome
	lastAsk  time.Time
	limit    *rate.Limiter // of this operation, or the pace of all that have no rate
	lookAt   time.Time
	took     time.Duration // the last look
	every    time.Duration // between two looks; grows while nothing comes of them
	lateAt   time.Time
	sendAt   time.Time
	sendErr  error  // of the newest messages
	stuckFor string // what is said of why the next wave waits; empty: it does not
}

// takeUp makes the operation this runner's: from its first write on, all others' are refused.
func (r *Runner) takeUp(ctx context.Context, op operate.Operation) (*run, error) {
	u := &run{r: r, op: op, lastAsk: time.Now(), limit: r.pace}
	if op.Rate > 0 {
		u.limit = rate.NewLimiter(rate.Limit(op.Rate), burst(op.Rate))
	}
	var err error
	if u.edit, err = readPatch(op.Request.Patch); err != nil {
		return nil, err
	}
	if err := u.write(ctx, nil); err != nil {
		return nil, err
	}
	if err := u.read(ctx); err != nil {
		return nil, err
	}
	// A brake is stored with the outcomes that it is about: one that holds, in an operation that runs, has been seen by
	// the operator who let it go on.
	u.wave.closed = u.op.State == operate.OperationRunning && u.wave.brake(u.op.Wave, u.op.BrakePct) != ""
	return u, nil
}

// read reads the members of the present wave, and those of earlier ones that have no outcome.
func (u *run) read(ctx context.Context) error {
	store, op := u.r.store, &u.op
	waiting, err := store.Members(ctx, op.ID, operate.OutcomeWaiting, 0, 1)
	if err != nil {
		return fmt.Errorf("members that wait: %w", err)
	}
	from := op.Tasks
	if len(waiting) > 0 {
		from = waiting[0].Ordinal - 1
	}
	// The wave ends where members wait that are of none, and has no gap.
	err = u.members(ctx, "", max(0, from-int64(u.r.cfg.WaveMax)), func(m *operate.Member) bool {
		if m.Wave == op.Wave && op.Wave > 0 {
			u.wave.members = append(u.wave.members, &item{Member: *m})
		}
		return m.Wave > 0 && m.Wave <= op.Wave
	})
	if err != nil {
		return err
	}
	first := int64(0)
	if n := len(u.wave.members); n > 0 {
		first = u.wave.members[0].Ordinal
	}
	return u.members(ctx, operate.OutcomeAsked, 0, func(m *operate.Member) bool {
		if m.Wave != op.Wave || m.Ordinal < first {
			u.late = append(u.late, &item{Member: *m})
		}
		return true
	})
}

// members reads page by page until each has had enough.
func (u *run) members(ctx context.Context, outcome operate.Outcome, after int64, each func(*operate.Member) bool) error {
	for {
		page, err := u.r.store.Members(ctx, u.op.ID, outcome, after, pageMax)
		if err != nil {
			return fmt.Errorf("members after %d: %w", after, err)
		}
		for i := range page {
			if !each(&page[i]) {
				return nil
			}
			after = page[i].Ordinal
		}
		if len(page) < pageMax {
			return nil
		}
	}
}

// write stores the operation, and members if there are some.
func (u *run) write(ctx context.Context, members []operate.Member) error {
	op := u.op
	op.Epoch++
	var err error
	if len(members) == 0 {
		err = u.r.store.Update(ctx, op, u.op.Epoch)
	} else {
		err = u.r.store.SetMembers(ctx, op, u.op.Epoch, members)
	}
	if err != nil {
		return fmt.Errorf("write: %w", err) // stored or not: the next reading shows which
	}
	u.op = op
	return nil
}

// step does what is due. over: there is nothing left to do for this operation.
func (u *run) step(ctx context.Context) (over bool, err error) {
	if err := u.look(ctx); err != nil {
		return false, err
	}
	if err := u.send(ctx); err != nil {
		return false, err
	}
	switch {
	case u.op.State != operate.OperationRunning:
		return u.op.Tally.Asked == 0, nil
	case u.wave.closed || u.waveOver():
		return u.next(ctx)
	}
	return false, u.ask(ctx)
}

// waveOver reports whether the next wave may begin: all were asked, and have an outcome or had their time.
func (u *run) waveOver() bool {
	if u.wave.rest() < len(u.wave.members) {
		return false
	}
	return u.wave.open() == 0 || time.Since(u.lastAsk) >= u.r.cfg.WaveFor
}

// ask asks the next members of the wave, as many as the rates allow: each counts as asked before its message leaves.
func (u *run) ask(ctx context.Context) error {
	now := time.Now()
	from := u.wave.rest()
	most := messageMax
	if u.edit != nil {
		most = patchedMax
	}
	n := u.room(now, min(len(u.wave.members)-from, most))
	if n == 0 || u.r.overloaded() {
		return nil
	}
	op, asked := u.op, make([]operate.Member, 0, n)
	for _, it := range u.wave.members[from : from+n] {
		asked = append(asked, it.Member)
	}
	after, gone, refused, err := u.edit.change(ctx, u.r.store, asked)
	if err != nil {
		return err
	}
	for i := range asked {
		m := &asked[i]
		m.Outcome = operate.OutcomeAsked
		if why := gone[m.Ordinal] + refused[m.Ordinal]; why != "" {
			m.Outcome, m.Text = operate.OutcomeSkipped, core.ShortText(why, textMax)
		}
		tally(&u.op.Tally, operate.OutcomeWaiting, m.Outcome)
	}
	if err := u.write(ctx, asked); err != nil {
		u.op = op
		return err
	}
	for i, it := range u.wave.members[from : from+n] {
		it.Member, it.unsent, it.input = asked[i], asked[i].Outcome == operate.OutcomeAsked, after[asked[i].Ordinal]
	}
	u.limit.AllowN(now, n)
	u.lastAsk = now
	if soon := now.Add(u.gap()); u.lookAt.After(soon) {
		u.lookAt = soon
	}
	return u.send(ctx)
}

// room is how many of the members that could be asked may be asked now. Few at a time would cost a message each.
func (u *run) room(now time.Time, could int) int {
	if u.op.Rate > 0 {
		u.r.limit(u.limit, u.op.Rate, now)
	}
	room := min(could, int(u.limit.TokensAt(now)))
	if room < min(could, max(1, u.limit.Burst()/2)) {
		return 0
	}
	return room
}

// gap is the least time between two looks.
func (u *run) gap() time.Duration { return max(u.r.cfg.Beat, u.took*lookShare) }

// send sends the messages about members that count as asked and whose message has not left: one a partition, or one for
// each input that a patch makes. Those that could not be stored are sent again later. Error: what a patch cannot be
// applied to any more could not be stored as skipped.
func (u *run) send(ctx context.Context) error {
	if time.Now().Before(u.sendAt) {
		return nil
	}
	messages, err := u.messages(ctx)
	if err != nil || len(messages) == 0 {
		return err
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
		slots  = make(chan struct{}, publishers)
	)
	for _, m := range messages {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := u.message(ctx, m); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
			}
		})
	}
	wg.Wait()
	if u.sendErr = failed; failed != nil {
		u.sendAt = time.Now().Add(sendAgain)
	}
	return nil
}

// about is what one message asks: one input at most.
type about struct {
	partition int
	items     []*item
}

// messages are those that are to leave, by partition.
func (u *run) messages(ctx context.Context) ([]about, error) {
	var unsent []*item
	byPartition := map[int]int{}
	for _, list := range [][]*item{u.wave.members, u.late} {
		for _, it := range list {
			if it.unsent && byPartition[it.Partition] < messageMax && (u.edit == nil || len(unsent) < patchedMax) { // the others with the next step
				byPartition[it.Partition]++
				unsent = append(unsent, it)
			}
		}
	}
	if err := u.remake(ctx, unsent); err != nil {
		return nil, err
	}
	type key struct {
		partition int
		input     [sha256.Size]byte
	}
	at := map[key]int{}
	var messages []about
	slices.SortStableFunc(unsent, func(a, b *item) int { return cmp.Compare(a.Partition, b.Partition) })
	for _, it := range unsent {
		if !it.unsent {
			continue
		}
		k := key{it.Partition, sha256.Sum256(it.input)}
		i, is := at[k]
		if !is {
			i = len(messages)
			at[k] = i
			messages = append(messages, about{partition: it.Partition})
		}
		messages[i].items = append(messages[i].items, it)
	}
	return messages, nil
}

// remake makes the inputs again of members whose message is to leave again: they are not kept. A member that has changed
// meanwhile gets its outcome from what it has become.
func (u *run) remake(ctx context.Context, unsent []*item) error {
	var members []operate.Member
	lack := map[int64]*item{}
	for _, it := range unsent {
		if u.edit != nil && it.input == nil {
			members = append(members, it.Member)
			lack[it.Ordinal] = it
		}
	}
	after, _, refused, err := u.edit.change(ctx, u.r.store, members)
	if err != nil {
		return err
	}
	var skipped []decided
	for _, m := range members {
		it := lack[m.Ordinal]
		it.input = after[m.Ordinal]
		it.unsent = it.input != nil
		if why := refused[m.Ordinal]; why != "" { // it applied before: the input is forgotten since
			skipped = append(skipped, decided{it, verdict{outcome: operate.OutcomeSkipped, text: core.ShortText(why, textMax)}})
		}
	}
	if len(skipped) == 0 {
		return nil
	}
	return u.settle(ctx, skipped)
}

// message asks the owner of a partition about some of its tasks.
func (u *run) message(ctx context.Context, m about) error {
	partition, items := m.partition, m.items
	c := control(&u.op)
	if u.edit != nil {
		c.Input = items[0].input
	}
	for _, it := range items {
		c.Numbers = append(c.Numbers, it.Number)
		if guarded(u.op.Action) {
			c.Seqs = append(c.Seqs, it.Seq)
		}
	}
	position, err := u.r.controls.Ask(ctx, partition, c)
	if err != nil {
		return fmt.Errorf("ask partition %d about %d tasks: %w", partition, len(items), err)
	}
	now := time.Now()
	for _, it := range items {
		it.position, it.sent, it.unsent, it.input = position, now, false, nil
	}
	return nil
}

// look reads what has become of members that were asked, when it is time, and stores their outcomes. A brake that they
// lead to is stored with them.
func (u *run) look(ctx context.Context) error {
	now := time.Now()
	var items []*item
	if !now.Before(u.lookAt) {
		items = appendAsked(items, u.wave.members)
	}
	if !now.Before(u.lateAt) {
		items = appendAsked(items, u.late)
		u.lateAt = now.Add(lateEvery)
	}
	if len(items) == 0 {
		return nil
	}
	decided, err := u.outcomes(ctx, items)
	if err != nil {
		return err
	}
	u.took = time.Since(now)
	u.every = max(u.gap(), min(lookMax, u.every*3/2))
	if len(decided) > 0 {
		u.every = u.gap()
	}
	u.lookAt = time.Now().Add(u.every)
	for some := range slices.Chunk(decided, pageMax) {
		if err := u.settle(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

func appendAsked(to, from []*item) []*item {
	for _, it := range from {
		if it.Outcome == operate.OutcomeAsked {
			to = append(to, it)
		}
	}
	return to
}

// decided is a member that has got its outcome.
type decided struct {
	it *item
	verdict
}

// outcomes reads where the members' tasks stand. The cursors are read before that: a request that its owner has read
// by then has done all that it will.
func (u *run) outcomes(ctx context.Context, items []*item) ([]decided, error) {
	cursors, err := u.r.store.Cursors(ctx)
	if err != nil {
		return nil, fmt.Errorf("partitions: %w", err)
	}
	read := make(map[int]uint64, len(cursors))
	for i := range cursors {
		read[cursors[i].Partition] = cursors[i].ControlCursor
	}
	now := time.Now()
	var done []decided
	var refused []*item
	byOrdinal := make(map[int64]*item, len(items))
	for page := range slices.Chunk(items, pageMax) {
		members := make([]operate.Member, len(page))
		for i, it := range page {
			members[i] = it.Member
			members[i].Operation = u.op.ID
			byOrdinal[it.Ordinal] = it
		}
		standing, err := u.r.store.Standing(ctx, members)
		if err != nil {
			return nil, fmt.Errorf("where %d tasks stand: %w", len(members), err)
		}
		for i := range standing {
			it := byOrdinal[standing[i].Ordinal]
			if it == nil {
				continue
			}
			v, unread := judge(&u.op.Request, &it.Member, &standing[i]), read[it.Partition] < it.position
			switch {
			case v.outcome != operate.OutcomeAsked:
				done = append(done, decided{it, v})
			case !v.still || it.unsent:
			case it.position == 0:
				it.unsent = true
			case now.Sub(it.sent) >= u.patience(it, unread):
				if unread {
					it.piled++
				}
				if it.allowed {
					it.ignored++
				}
				if it.ignored == ignoredMax {
					why := say.Of("repair.ignored", "n", ignoredMax)
					done = append(done, decided{it, verdict{outcome: operate.OutcomeSkipped, text: why}})
					continue
				}
				it.unsent, it.allowed = true, false
			case !unread && !it.allowed:
				refused = append(refused, it)
			}
		}
	}
	return u.refusals(ctx, refused, done)
}

// patience is how long after its newest message a member is asked again. While its partition reads none, each time twice as
// long: all of them would lie in its stream, where others want room.
func (u *run) patience(it *item, unread bool) time.Duration {
	if !unread {
		return u.r.cfg.AskAgain
	}
	return u.r.cfg.AskAgain << min(it.piled, piledMax)
}

// refusals asks the core why owners did nothing. What it would allow is asked again after a time: a control stream that
// was lost begins again with low positions.
func (u *run) refusals(ctx context.Context, items []*item, done []decided) ([]decided, error) {
	if len(items) == 0 {
		return done, nil
	}
	p, err := newPlayer(ctx, &u.r.cfg, &u.op, u.r.store, nil)
	if err != nil {
		return nil, err
	}
	members := make([]operate.Member, len(items))
	byOrdinal := make(map[int64]*item, len(items))
	for i, it := range items {
		members[i], byOrdinal[it.Ordinal] = it.Member, it
	}
	err = p.play(ctx, members, core.InstantOf(u.r.cfg.Now()), func(m *operate.Member, f fate, why string) {
		it := byOrdinal[m.Ordinal]
		if f != fateRefused {
			it.allowed = true
			return
		}
		done = append(done, decided{it, verdict{outcome: operate.OutcomeSkipped, text: "refused: " + why}})
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

// settle stores outcomes, and the brake if they call for it.
func (u *run) settle(ctx context.Context, done []decided) error {
	members := make([]operate.Member, len(done))
	for i, d := range done {
		m := d.it.Member
		m.Outcome, m.Text, m.Fingerprint = d.outcome, d.text, d.fingerprint
		tally(&u.op.Tally, d.it.Outcome, m.Outcome)
		members[i], d.it.Member = m, m
	}
	u.forgetLate()
	if (u.op.State == operate.OperationRunning || u.op.State == operate.OperationPaused) && !u.wave.closed {
		if why := u.wave.brake(u.op.Wave, u.op.BrakePct); why != "" {
			u.op.State, u.op.Why = operate.OperationBraked, why
			if err := u.audit(ctx, "operation.brake", fmt.Sprintf("brake/%s/%d", u.op.ID, u.op.Wave)); err != nil {
				return err
			}
		}
	}
	return u.write(ctx, members)
}

// forgetLate drops members of earlier waves that have their outcome.
func (u *run) forgetLate() {
	kept := u.late[:0]
	for _, it := range u.late {
		if it.Outcome == operate.OutcomeAsked {
			kept = append(kept, it)
		}
	}
	clear(u.late[len(kept):])
	u.late = kept
}

// next begins the next wave, or ends the operation when all members have an outcome.
func (u *run) next(ctx context.Context) (over bool, err error) {
	if u.op.Tally.Waiting == 0 {
		if u.op.Tally.Asked > 0 {
			return false, u.stuck(ctx, "")
		}
		u.op.State, u.op.Why, u.op.Ended = operate.OperationDone, "", u.r.cfg.Now()
		if err := u.audit(ctx, "operation.done", "done/"+u.op.ID); err != nil {
			return false, err
		}
		return true, u.write(ctx, nil)
	}
	if n := len(u.late) + u.wave.open(); n >= u.r.cfg.Outstanding {
		return false, u.stuck(ctx, say.Of("repair.stuck", "n", n))
	}
	size := u.wave.next(u.op.BrakePct, u.r.cfg.WaveMax)
	after := int64(0)
	if n := len(u.wave.members); n > 0 {
		after = u.wave.members[0].Ordinal - 1 // of a closed one some still wait
	}
	next, members := wave{}, []operate.Member(nil)
	err = u.members(ctx, operate.OutcomeWaiting, after, func(m *operate.Member) bool {
		m.Wave = u.op.Wave + 1
		members = append(members, *m)
		next.members = append(next.members, &item{Member: *m})
		return len(members) < size
	})
	if err != nil {
		return false, err
	}
	if len(members) == 0 {
		return false, fmt.Errorf("%d members wait, and none is found", u.op.Tally.Waiting)
	}
	u.op.Wave, u.op.Why, u.stuckFor = u.op.Wave+1, "", ""
	if err := u.write(ctx, members); err != nil {
		return false, err
	}
	u.late = appendAsked(u.late, u.wave.members)
	u.wave = next
	return false, u.ask(ctx)
}

// stuck says why no wave begins, once.
func (u *run) stuck(ctx context.Context, why string) error {
	if u.stuckFor == why {
		return nil
	}
	u.stuckFor, u.op.Why = why, why
	return u.write(ctx, nil)
}

// audit notes what the runner itself decides. The key makes one entry of it however often it is decided.
func (u *run) audit(ctx context.Context, action, key string) error {
	return u.r.desk.Note(ctx, &operate.Act{By: operate.Actor{Name: "supervisor", Via: "operation"}, Action: action, Target: targetOf(u.op.ID), Reason: u.op.Why, Key: key,
		After: map[string]any{"state": u.op.State, "wave": u.op.Wave, "tally": u.op.Tally}}, nil)
}
