package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// apply lets the core decide about the mail, in the order controls, replies,
// wakes, parked tasks, new work, until the batch is full or the mail is done.
func (s *Shard) apply(ctx context.Context) (full bool, err error) {
	c := &s.cycle
	if c.mail.PlansChanged {
		s.plans.old = true
		c.mail.PlansChanged = false
	}
	s.gate.agents.listen(s.inOrder())
	s.queues.applyPauses(c.mail)
	if c.mail.Breakers != nil {
		s.gate.agents.set(*c.mail.Breakers)
		c.mail.Breakers = nil
	}
	s.queues.applyLimits(c.mail)
	if err := s.endings.confirmed(ctx, c, &s.owned); err != nil {
		return false, err
	}
	s.evidence.record(c.now, s.inOrder())
	s.families.relay()
	first := s.families.firstNext
	s.families.firstNext = nil
	if err := s.families.bearFirst(ctx, first); err != nil {
		return false, err
	}
	for _, part := range []func(context.Context) (bool, error){
		s.applyControls, s.applyReplies, s.applyUnserved, s.applyProbed, s.applyWakes, s.applyServed, s.applyWaiting, s.families.apply, s.applyTasks,
	} {
		if full, err = part(ctx); full || err != nil {
			break
		}
	}
	for err == nil && len(c.first) > 0 {
		first := c.first
		c.first = nil
		err = s.families.bearFirst(ctx, first)
	}
	return full || s.heldReady(c.now, &s.plans) || s.families.ready() || len(s.families.told) > 0, err
}

// addressed is the step whose command now out has the number of a reply, and the same or the one whose late answer may
// still say something; -1: there is none.
func addressed(e *entry, m *ReplyMail) (out, of int) {
	out = e.task.OutSeq(m.Reply.Seq)
	if of = out; of < 0 {
		of = e.task.LateOf(m.Reply.Seq, m.At)
	}
	return out, of
}

// genuine reports whether a reply that is addressed to a step answers its command. Other replies are stale.
func (s *Shard) genuine(e *entry, r *core.Reply, of int) bool {
	if s.cfg.Genuine == nil || of < 0 || s.cfg.Genuine(r, e.commitOf(r.Seq)) {
		return true
	}
	s.Stats.Forged++
	if n := s.Stats.Forged; n&(n-1) == 0 { // a forger must not fill the log
		s.log.Warn("a reply answers no command of ours; it is passed over", "partition", r.Partition, "task", e.task.ID, "seq", r.Seq, "so_far", n)
	}
	return false
}

func (s *Shard) applyReplies(context.Context) (bool, error) {
	c := &s.cycle
	if c.mail.lost > 0 {
		s.log.Warn("more replies came than this node has memory for; some are lost, and their commands come again", "replies", c.mail.lost)
		c.mail.lost = 0
	}
	for ; c.pos.reply < len(c.mail.Replies); c.pos.reply++ {
		m := &c.mail.Replies[c.pos.reply]
		p, e := s.inFlight(m.Reply.Partition, m.Reply.Number)
		if c.waits(e) {
			return true, nil
		}
		if e == nil {
			s.Stats.Stale++ // a late event for a task that is not in flight never brings it back
			continue
		}
		out, of := addressed(e, m)
		if !s.genuine(e, &m.Reply, of) {
			continue
		}
		s.cycle.use(p, e)
		ev := core.Event{
			Kind: core.EventReply, At: m.At, Actor: s.answerers.name(e, of, m.Reply.From), Seq: m.Reply.Seq, Copy: m.Reply.Token.Copy(),
			Code: m.Reply.Code, Error: m.Reply.Error, Result: m.Reply.Result,
		}
		if out >= 0 && e.plan != nil && e.plan.agents[out] != nil {
			c.answers++
			if e.plan.agents[out].answered(m.At.Sub(e.task.UpdatedAt), m.At) {
				c.late++
			}
		}
		boundResult(e, of, &ev)
		var slot *agentSlot
		if out >= 0 && e.plan != nil {
			slot = e.plan.slots[out]
		}
		// Stale replies are counted; nothing else can be wrong with one.
		if err := s.event(p, e, &ev); err == nil && slot != nil && (!core.BusyCode(ev.Code) || ev.Code == core.CodeTooEarly) && len(slot.waiting) > 0 {
			s.queues.serve(slot)
		}
	}
	return false, nil
}

// name is the actor that the journal names for a reply to the command of step out: the agent of the step, and before it
// the instance that answered, where the reply says so. Only what follows the last @ is certain:
// it is what the command's token proves.
func (a answerers) name(e *entry, out int, from string) string {
	agent := "agent"
	if out >= 0 && e.plan != nil && e.plan.slots[out] != nil {
		agent = e.plan.plan.Steps[out].Agent
	}
	if from == "" {
		return agent
	}
	key := answerer{from, agent}
	name, ok := a[key]
	if !ok {
		if len(a) >= answerersMax {
			clear(a)
		}
		name = from + "@" + agent
		a[key] = name
	}
	return name
}

// answerer is an instance and its agent.
type answerer struct{ instance, agent string }

// answerers are the names of answerersMax of these, so that a reply costs no memory of its own.
type answerers map[answerer]string

const answerersMax = 1024

// boundResult makes a result over the step's own limit a failed attempt. Duly's
// agents check it themselves; any NATS client can be an agent.
func boundResult(e *entry, out int, ev *core.Event) {
	if ev.Code != 0 || e.plan == nil || out < 0 {
		return
	}
	if step := &e.plan.plan.Steps[out]; len(ev.Result) > step.ResultMax {
		ev.Code = core.CodeFailed
		ev.Error = fmt.Sprintf("bad_result: result of step %s has %d bytes, the limit is %d", step.Name, len(ev.Result), step.ResultMax)
		ev.Result = nil
	}
}

func (s *Shard) applyUnserved(context.Context) (bool, error) {
	c := &s.cycle
	for ; c.pos.unserved < len(c.mail.Unserved); c.pos.unserved++ {
		m := &c.mail.Unserved[c.pos.unserved]
		p, e := s.inFlight(m.Reply.Partition, m.Reply.Number)
		if c.waits(e) {
			return true, nil
		}
		if e == nil {
			continue
		}
		if _, of := addressed(e, m); !s.genuine(e, &m.Reply, of) {
			continue
		}
		s.cycle.use(p, e)
		_ = s.event(p, e, &core.Event{Kind: core.EventUnserved, At: m.At, Actor: s.cfg.Node, Seq: m.Reply.Seq, Copy: m.Reply.Token.Copy()})
	}
	return false, nil
}

func (s *Shard) applyWakes(context.Context) (bool, error) {
	for len(s.wakes) > 0 && s.wakes[0].wakes <= s.cycle.now {
		e := s.wakes[0]
		if s.cycle.waits(e) {
			return true, nil
		}
		p := s.partitions[e.task.Partition]
		p.unwake(e)
		s.cycle.use(p, e)
		_ = s.event(p, e, &core.Event{Kind: core.EventWake, At: s.cycle.now, Actor: s.cfg.Node})
	}
	return false, nil
}

// applyServed lets tasks try again whose agent has answered another task.
func (s *Shard) applyServed(context.Context) (bool, error) {
	for len(s.queues.served) > 0 {
		e := s.queues.served[0]
		p, is := s.inFlight(e.task.Partition, e.task.Number)
		if is == e && s.cycle.waits(e) {
			return true, nil
		}
		if s.queues.served = s.queues.served[1:]; is == e {
			s.cycle.use(p, e)
			_ = s.event(p, e, &core.Event{Kind: core.EventServed, At: s.cycle.now, Actor: s.cfg.Node})
		}
	}
	s.queues.served = nil
	return false, nil
}

// applyWaiting lets go on what waits for room, and finds out when to look at the rest.
func (s *Shard) applyWaiting(ctx context.Context) (full bool, err error) {
	s.gate.looks.lookAt = 0
	for _, p := range s.inOrder() {
		for _, slot := range p.agents {
			if len(slot.blocked) > 0 && s.unblock(p, slot) {
				return true, nil
			}
		}
	}
	return s.applyParked(ctx)
}

// parkedSlot is where tasks may be parked: at an agent, in a partition.
type parkedSlot struct {
	p    *partition
	slot *agentSlot
}

// parkedSlots are all of them, but for those of partitions that start nothing more. Partitions that share the room at an agent
// have turns: the one after that which has claimed last is first.
func (q *queues) parkedSlots() []parkedSlot {
	all := q.slots[:0]
	for _, p := range q.in.inOrder() {
		if p.noMore {
			continue
		}
		for _, slot := range p.agents {
			if slot.order != nil {
				all = append(all, parkedSlot{p, slot})
			}
		}
	}
	q.slots = all
	if !q.gate.agents.gated() {
		return all
	}
	places := map[string][]int{}
	for i, at := range all {
		places[at.slot.name] = append(places[at.slot.name], i)
	}
	for _, of := range places {
		last := all[of[0]].slot.calls.last
		first := slices.IndexFunc(of, func(i int) bool { return all[i].p.id > last })
		if first <= 0 {
			continue
		}
		turned := make([]parkedSlot, len(of))
		for n := range of {
			turned[n] = all[of[(first+n)%len(of)]]
		}
		for n, i := range of {
			all[i] = turned[n]
		}
	}
	return all
}

// applyParked takes parked tasks up again where their agent has room: a quarter
// of its window at least, so that the store is not asked for one task at a time.
func (s *Shard) applyParked(ctx context.Context) (full bool, err error) {
	s.cycle.noRoom = false
	s.queues.bringBack()
	for _, at := range s.queues.parkedSlots() {
		p, slot := at.p, at.slot
		if unread, err := s.plans.awaits(ctx, p, slot); unread || err != nil {
			if err != nil {
				return false, err
			}
			continue
		}
		if full, err := s.giveUpParked(ctx, p, slot); full || err != nil {
			return full, err
		}
		if !slot.order.waits() {
			continue
		}
		v := s.gate.mayLeave(slot.ask())
		least := max(1, s.cfg.AgentWindow/4)
		if v.by != byWindow { // it is shared by all partitions
			least = 1
		}
		if v.n < least {
			continue
		}
		if !s.cycle.roomy() {
			return true, nil // nothing else may come to remind us of them
		}
		batch := s.cycle.left()
		room := s.cfg.Memory.fits(min(v.n, batch, s.cfg.InFlight-len(p.tasks)))
		if room <= 0 {
			continue
		}
		claimed, err := s.claim(ctx, p, slot, room)
		if err != nil {
			return false, err
		}
		if v.by != byWindow {
			slot.calls.last = p.id
		}
		if slot.order.waits() {
			s.gate.mayLeave(slot.ask()) // when it lets the next one through
			full = full || claimed == batch
		}
	}
	return full, nil
}

// loadNumbers brings tasks in flight, by number; those that are in flight already are returned as
// they are.
func (s *Shard) loadNumbers(ctx context.Context, p *partition, numbers []int64) ([]*entry, error) {
	entries := make([]*entry, 0, len(numbers))
	var missing []int64
	for _, n := range numbers {
		if e := p.tasks[n]; e != nil {
			s.cycle.use(p, e)
			entries = append(entries, e)
		} else {
			missing = append(missing, n)
		}
	}
	if len(missing) == 0 {
		return entries, nil
	}
	saved, err := s.store.LoadNumbers(ctx, p.asOf(), missing)
	if err != nil {
		return nil, fmt.Errorf("tasks of partition %d: %w", p.id, err)
	}
	if err := s.loadParents(ctx, p, saved); err != nil {
		return nil, err
	}
	for i := range saved {
		e, err := s.load(ctx, p, &saved[i])
		if err != nil {
			return nil, err
		}
		if e != nil {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// loadParents brings the parents of children that are about to be loaded, and theirs, in flight.
func (s *Shard) loadParents(ctx context.Context, p *partition, saved []core.Saved) error {
	var missing []int64
	seen := map[int64]bool{}
	for i := range saved {
		up := saved[i].Row.Parent
		if up == 0 || seen[up] || p.tasks[up] != nil {
			continue
		}
		seen[up] = true
		if !inPage(saved[:i], up) { // a page in the order of numbers has it already
			missing = append(missing, up)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	_, err := s.loadNumbers(ctx, p, missing)
	return err
}

// inPage reports whether a task is among those of a page, in the order of numbers.
func inPage(saved []core.Saved, number int64) bool {
	for low, high := 0, len(saved); low < high; {
		switch mid := (low + high) / 2; {
		case saved[mid].Row.Number == number:
			return true
		case saved[mid].Row.Number < number:
			low = mid + 1
		default:
			high = mid
		}
	}
	return false
}

// load replays one stored task and brings it in flight, unless it has come meanwhile as an ancestor of another.
func (s *Shard) load(ctx context.Context, p *partition, saved *core.Saved) (*entry, error) {
	if e := p.tasks[saved.Row.Number]; e != nil {
		s.cycle.use(p, e)
		return e, nil
	}
	if len(saved.Journal) == 0 && saved.Row.State.Ended() {
		s.log.Info("a request about a task changed nothing: its journal is forgotten", "task", saved.Row.ID)
		return nil, nil
	}
	e := &entry{round: inRound{whole: true}, leased: s.cfg.leased()}
	var plan *core.Plan
	version := saved.Row.PlanVersion
	_, awaited, awaits := core.AwaitedPlan(saved.Row.WaitsFor)
	if awaits {
		version = awaited
	}
	if version != 0 && saved.Err == nil {
		ref, unread, err := s.plans.of(ctx, p, saved.Row.Type, version, false)
		switch {
		case err != nil:
			return nil, err
		case unread != nil && !awaits:
			s.cycle.unread = unread
			s.leftAlone.note(s.log, p, saved, unread)
			return nil, nil
		case unread != nil:
			s.cycle.unread = unread
		case ref != nil:
			e.plan, plan = ref, ref.plan
		case !awaits:
			s.log.Error("ALERT: a stored task names a plan that is not stored", "event", "plan-missing", "task", saved.Row.ID, "type", saved.Row.Type, "version", version)
		}
	}
	t, err := core.Replay(plan, saved)
	if err != nil {
		s.leftAlone.note(s.log, p, saved, err)
		return nil, nil
	}
	e.task = t
	for row, commit := range saved.Commits { // rows are numbered from 1, without a gap
		e.issues = append(e.issues, issue{int64(row + 1), commit})
	}
	e.issued(math.MaxInt64, 0)
	p.add(e)
	s.cycle.use(p, e)
	return e, nil
}

// leftAlone are tasks of which it was logged that they are left alone.
type leftAlone map[string]bool

// note leaves a stored task alone that this node cannot go on with: its partition goes on. That is logged once for a task,
// because the supervisor asks about it again and again.
func (l leftAlone) note(log *slog.Logger, p *partition, saved *core.Saved, why error) {
	p.leaveUncounted(saved)
	if l[saved.Row.ID] {
		return
	}
	if len(l) >= leftMax {
		clear(l)
	}
	l[saved.Row.ID] = true
	log.Error("ALERT: a stored task is left alone: this node cannot read it, or its plan", "event", "task-unreadable", "task", saved.Row.ID, "partition", saved.Row.Partition, "number", saved.Row.Number, "error", why)
}

// leftMax bounds how many tasks are remembered for that.
const leftMax = 1024

func (s *Shard) applyControls(ctx context.Context) (bool, error) {
	c := &s.cycle
	if full, err := s.applyHeld(ctx); full || err != nil {
		return full, err
	}
	for ; c.pos.control < len(c.mail.Controls); c.pos.control, c.pos.number = c.pos.control+1, 0 {
		if !s.cycle.roomy() {
			return true, nil
		}
		m := &c.mail.Controls[c.pos.control]
		p := s.partitions[m.Partition]
		if p == nil {
			continue
		}
		if m.Pos > p.nextControl {
			full, err := s.applyControl(ctx, p, m)
			if full || err != nil {
				return full, err
			}
			p.nextControl, p.nextControlStored = m.Pos, m.Stored
			p.dirty = true // the supervisor waits to see its question answered
		}
		p.acks = append(p.acks, m.Ack)
	}
	return false, nil
}

func (s *Shard) applyControl(ctx context.Context, p *partition, m *ControlMail) (full bool, err error) {
	c := &m.Control
	ev := c.Event(m.At)
	ev.Looked = m.looked()
	switch {
	case c.Kind == 0:
		return false, nil
	case c.Found != "" && p.seenBefore(m.said()):
		s.log.Warn("a request about tasks changed nothing: the database went back since its sender looked at the service, where more may have happened: look again",
			"kind", c.Kind, "task", c.ID, "found", c.Found, "actor", c.Actor)
		return false, nil
	case c.Kind == core.EventOverdue:
		return s.applyOverdue(ctx, p, c, &ev)
	case len(c.Numbers) > 0:
		return s.applyMany(ctx, p, m, &ev)
	}
	e, stored, err := s.find(ctx, p, c.ID)
	if err != nil {
		return false, err
	}
	if unread := s.cycle.unread; unread != nil && (e == nil || c.Kind != core.EventCancel && c.Kind != core.EventUndo) && p.hold(m, unread, s.cycle.now) {
		return false, nil
	}
	if e == nil && stored {
		return false, nil // the log says why it cannot be loaded
	}
	if e == nil {
		if c.Kind == core.EventCancel && c.Type != "" && c.IfSeq == 0 && core.RootID(c.ID) == c.ID { // no one submits a child
			if p.unread() && len(p.held) < heldMax {
				p.held = append(p.held, heldControl{ControlMail: *m})
				return false, nil
			}
			s.cancelUnknown(p, c, &ev)
			return false, nil
		}
		if c.Kind == core.EventSignal {
			_ = s.Stats.Kinds.countSignal(core.ErrNotFound)
		}
		s.log.Warn("a request names a task that does not exist", "kind", c.Kind, "task", c.ID, "actor", c.Actor)
		return false, nil
	}
	if s.cycle.makes(e) {
		return true, nil // after the commit
	}
	why, err := s.ask(ctx, p, e, &ev)
	if why != nil {
		s.log.Info("a request about a task changed nothing", "task", c.ID, "actor", c.Actor, "why", why)
	}
	return false, err
}

// journalGone reports whether the journal of a task that has ended, and is in memory for the sake of children that have not,
// has been forgotten meanwhile.
func (s *Shard) journalGone(ctx context.Context, p *partition, e *entry) (bool, error) {
	if state := e.task.State; e.round.whole || state != core.StateProcessed && state != core.StateUndone {
		return false, nil
	}
	saved, err := s.store.LoadNumbers(ctx, p.asOf(), []int64{e.task.Number})
	if err != nil {
		return false, fmt.Errorf("task %s: %w", e.task.ID, err)
	}
	if len(saved) == 0 || len(saved[0].Journal) == 0 {
		return true, nil
	}
	e.round.whole = true
	return false, nil
}

// ask applies a request to one task; why says that it changed nothing.
func (s *Shard) ask(ctx context.Context, p *partition, e *entry, ev *core.Event) (why, err error) {
	if e.plan == nil && (ev.Kind == core.EventResubmit || ev.Kind == core.EventEdit) { // its plan was unknown when it came
		ref, unread, err := s.plans.of(ctx, p, e.task.Type, 0, false)
		if err != nil {
			return nil, err
		}
		if unread != nil {
			return fmt.Errorf("%w: task %s: %w", core.ErrNotAllowed, e.task.ID, unread), nil
		}
		e.plan = ref
	}
	if gone, err := s.journalGone(ctx, p, e); gone || err != nil {
		return fmt.Errorf("%w: task %s: its journal is forgotten", core.ErrNotAllowed, e.task.ID), err
	}
	if e.parent != nil && e.task.State.Ended() {
		asked := requestOf(e, ev)
		if slices.Contains(s.unstorable, asked) {
			return fmt.Errorf("%w: task %s: the database refuses the row of it", core.ErrNotAllowed, e.task.ID), nil
		}
		if e.round.write == 0 { // else it is the one before whose row may be refused
			e.round.asked = &asked
		}
	}
	if ev.Kind == core.EventMigrate {
		if why, err = s.plans.versionFor(ctx, p, e, ev); why != nil || err != nil {
			return why, err
		}
	}
	if why = e.task.Fits(e.plan.known(), ev, s.cfg.CheckInput, s.cfg.CheckSignal); why != nil {
		why = fmt.Errorf("%w: task %s: %w", core.ErrNotAllowed, e.task.ID, why)
	} else {
		why = s.event(p, e, ev)
	}
	if ev.Kind == core.EventSignal {
		why = s.Stats.Kinds.countSignal(why)
	}
	return why, nil
}

// request is one about an ended child at one of its rows.
type request struct {
	id          string
	seq         int64
	kind        core.EventKind
	actor, what string
}

func requestOf(e *entry, ev *core.Event) request {
	what := core.HashInput(ev.Step+string(ev.As)+string(ev.Found)+ev.Reason, slices.Concat(ev.Input, []byte{0}, ev.Result))
	return request{e.task.ID, e.task.Seq, ev.Kind, ev.Actor, string(what)}
}

// unstorableMax is how many requests are known of whose rows the database refused.
const unstorableMax = 64

// unstorable are requests about ended children, whose rows the database refused.
type unstorable []request

// add keeps the request by which an ended child got a row that the database refuses. Its partition is let go, and the
// request is read again: it is refused then, or the partition would be let go for ever.
func (u *unstorable) add(e *entry, seq int64) {
	if e.round.asked == nil || e.round.asked.seq != seq {
		return
	}
	if len(*u) == unstorableMax {
		*u = slices.Delete(*u, 0, 1)
	}
	*u = append(*u, *e.round.asked)
}

// applyMany applies a request to each task that it names by number, if the task is still at the row that goes with it.
// One that is refused does not stop the others. After a crash the whole message is read again: what it has changed has
// other rows by then.
func (s *Shard) applyMany(ctx context.Context, p *partition, m *ControlMail, ev *core.Event) (full bool, err error) {
	c := &m.Control
	var some refusals
	defer func() { some.log(s.log, c) }()
	return s.eachNumber(ctx, p, c.Numbers, func(i int, e *entry) error {
		one := *ev
		if c.Kind != core.EventMigrate {
			one.IfSeq = c.Seqs[i]
		}
		if p.another(m, c.Numbers[i]) {
			e = nil
		}
		if e == nil {
			some.unknown++
			return nil
		}
		why, err := s.ask(ctx, p, e, &one)
		if why != nil {
			some.add(why)
		}
		return err
	})
}

// eachNumber calls f with each task that a message names by number, nil where it is not there, and loads them in parts. A
// round that fills up goes on in the next one where it stopped: to begin again could have no end, where the answer to a
// question is that the task is still due.
func (s *Shard) eachNumber(ctx context.Context, p *partition, numbers []int64, f func(i int, e *entry) error) (full bool, err error) {
	at := &s.cycle.pos.number
	for *at < len(numbers) {
		room := s.cycle.left()
		if !s.cycle.roomy() {
			return true, nil
		}
		part := numbers[*at:min(len(numbers), *at+min(room, max(1, s.cfg.Memory.fits(room))))]
		if _, err := s.loadNumbers(ctx, p, part); err != nil {
			return false, err
		}
		for _, number := range part {
			e := p.tasks[number]
			if e != nil && s.cycle.waits(e) {
				return true, nil
			}
			if err := f(*at, e); err != nil {
				return false, err
			}
			*at++
		}
	}
	return false, nil
}

// another reports whether a number may be another task's than the one that a request means: it was given out in a time
// that the database has lost, and again since.
func (p *partition) another(m *ControlMail, number int64) bool {
	return number >= p.taken.WentBackNumber && p.seenBefore(m.Stored)
}

// looked is when the sender of a request had looked at what it is about. A copy that was sent later knows no more.
func (m *ControlMail) looked() core.Instant {
	if m.Control.Asked != 0 {
		return min(m.Control.Asked, m.Stored)
	}
	return m.Stored
}

// said is when a request says what was found. One about many tasks is of an operation, which the database has forgotten if it
// is older than what was lost: it is sent until each task has an outcome, and counts as said then.
func (m *ControlMail) said() core.Instant {
	if len(m.Control.Numbers) > 0 {
		return m.Stored
	}
	return m.looked()
}

// seenBefore reports whether what is said then may rest on what was seen before the database went back: it is said before
// that, or within a minute after.
func (p *partition) seenBefore(at core.Instant) bool {
	back := p.taken.WentBackAt
	return back != 0 && at <= back.Add(time.Minute)
}

// refusals are the tasks of one request that it did not change.
type refusals struct {
	unknown, refused int
	first            error
}

func (r *refusals) add(why error) {
	if r.refused++; r.first == nil {
		r.first = why
	}
}

// log says it in one line for all.
func (r *refusals) log(log *slog.Logger, c *core.Control) {
	if r.unknown+r.refused > 0 {
		log.Info("a request about many tasks did not change all of them", "kind", c.Kind, "tasks", len(c.Numbers), "unknown", r.unknown, "refused", r.refused, "actor", c.Actor, "why", r.first)
	}
}

// applyOverdue asks the core about each task that the supervisor names. The step that it names is what it saw: the core
// looks at all of the task, by its own clock.
func (s *Shard) applyOverdue(ctx context.Context, p *partition, c *core.Control, ev *core.Event) (full bool, err error) {
	return s.eachNumber(ctx, p, c.Numbers, func(i int, e *entry) error {
		if e == nil {
			return nil
		}
		ask := *ev
		if e.plan == nil && e.task.PlanVersion != 0 { // no owner can go on with it: operator action required
			ask.Kind, ask.Error = core.EventPoison, "its plan is not stored any more"
		}
		if err := s.event(p, e, &ask); err != nil && !errors.Is(err, core.ErrStale) {
			s.log.Warn("a question about an overdue task changed nothing", "task", e.task.ID, "step", stepAsked(c, i), "why", err)
		}
		return nil
	})
}

// stepAsked is the step of the i-th task that the supervisor saw overdue, empty when it named none.
func stepAsked(c *core.Control, i int) string {
	if i < len(c.Steps) {
		return c.Steps[i]
	}
	return ""
}

// find returns the task of that id, in flight or from the store; nil: none, or, if it is stored, one that cannot be loaded.
// A plan of it that cannot be read it notes in the cycle.
func (s *Shard) find(ctx context.Context, p *partition, id string) (e *entry, stored bool, err error) {
	s.cycle.unread = nil
	if e := p.ids[id]; e != nil {
		s.cycle.use(p, e)
		if _, version, awaits := core.AwaitedPlan(e.task.WaitsFor); awaits && e.plan == nil {
			_, s.cycle.unread, err = s.plans.of(ctx, p, e.task.Type, version, false)
		}
		return e, true, err
	}
	saved, err := s.store.LoadIDs(ctx, p.asOf(), []string{id})
	if err != nil {
		return nil, false, fmt.Errorf("task %s: %w", id, err)
	}
	if len(saved) == 0 {
		return nil, false, nil
	}
	if err := s.loadParents(ctx, p, saved); err != nil {
		return nil, true, err
	}
	e, err = s.load(ctx, p, &saved[0])
	return e, true, err
}

// cancelUnknown lets a cancel take an id that has not been submitted yet.
func (s *Shard) cancelUnknown(p *partition, c *core.Control, ev *core.Event) {
	t := &core.Task{Partition: p.id, Number: p.nextNumber, ID: c.ID, Type: c.Type}
	p.nextNumber++
	e := &entry{task: t}
	core.BirthCancelled(t, ev, &s.cycle.out)
	s.born(p, e)
}
