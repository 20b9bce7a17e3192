package repair

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// failer is what a world needs of a test.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

var (
	quiet = slog.New(slog.DiscardHandler)
	anna  = operate.Actor{Name: "anna", Role: operate.RoleOperator, Via: "http", From: "10.0.0.7"}
	admin = operate.Actor{Name: "root", Role: operate.RoleAdmin, Via: "http"}
	ben   = operate.Actor{Name: "ben", Role: operate.RoleOperator, Via: "http"}
)

// turn is how long owners take for what has come to them.
const turn = 10 * time.Millisecond

// partitions is how many a world has.
const partitions = 4

// world is a state store with operations, owners that decide with the core, and agents. The store is strict: it refuses
// what a transaction of the real one would refuse, and checks that the tally of an operation adds up at every write.
type world struct {
	t  failer
	db backend // what keeps tasks and operations: the world itself, or a database that it writes to
	to *owner  // writes to that database; nil: there is none

	mu      sync.Mutex
	plans   []core.Plan
	tasks   []*task
	ops     map[string]*frozenOp
	newest  []string // operations, the oldest first
	entries []operate.AuditEntry
	notes   []operate.Note
	queue   []queued
	pos     [partitions]uint64
	read    [partitions]uint64
	ends    [partitions]int64
	rows    map[string]int // statements and messages by name

	input  func(i int) string // of the task that is made as the i-th; nil: {}
	answer func(t *task, step string, undo bool) answer
	asker  core.Asker                // answers the expressions of plans; nil: none has any
	drop   func(c core.Control) bool // whether a message that was stored is lost with its stream
	ignore func(t *task) bool        // whether its owner does nothing when it is asked about a task
	deaf   bool                      // owners read no control messages
}

// backend is a state store.
type backend interface {
	Store
	Joined
	operate.Trail
	operate.NoteStore
}

// answer is what an agent makes of a command; none at all when after is below 0.
type answer struct {
	code  int
	text  string
	after time.Duration
}

type task struct {
	core.Saved
	live *core.Task
	plan *core.Plan
	due  []due
}

// due is what will happen to a task.
type due struct {
	at core.Instant
	ev core.Event
}

type queued struct {
	partition int
	pos       uint64
	c         core.Control
	at        core.Instant
}

type frozenOp struct {
	op      operate.Operation
	members []operate.Member
}

func now() core.Instant { return core.InstantOf(time.Now()) }

func newWorld(t failer) *world {
	w := &world{t: t, ops: map[string]*frozenOp{}, rows: map[string]int{},
		answer: func(*task, string, bool) answer { return answer{} },
		drop:   func(core.Control) bool { return false }, ignore: func(*task) bool { return false }}
	w.db = w
	return w
}

// orders is a plan of three steps. A task whose payment fails for good ends as policy says.
func orders(policy core.Policy) core.Plan {
	return core.Plan{Name: "order", Version: 1, CompleteBy: 10 * time.Minute, Steps: []core.Step{
		{Name: "reserve", Agent: "stock", Undoable: true},
		{Name: "pay", Agent: "bank", Undoable: true, After: []int{0}, OnExhausted: policy, AttemptsMax: 2, Backoff: time.Millisecond},
		{Name: "ship", Agent: "carrier", Undoable: true, After: []int{1}},
	}}.WithDefaults()
}

// birth makes n tasks of a plan, and lets them come to rest.
func (w *world) birth(p core.Plan, n int) []*task {
	w.t.Helper()
	born := w.begin(p, n)
	w.settle()
	return born
}

// begin makes n tasks of a plan.
func (w *world) begin(p core.Plan, n int) []*task {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.store(p)
	var born []*task
	for range n {
		number := int64(len(w.tasks)/partitions + 1)
		t := &task{plan: &p, live: &core.Task{
			Partition: len(w.tasks) % partitions, Number: number, ID: fmt.Sprintf("o-%d", len(w.tasks)), Type: p.Name, Input: []byte(`{}`)}}
		if w.input != nil {
			t.live.Input = []byte(w.input(len(w.tasks)))
		}
		var out core.Outcome
		core.Birth(&p, t.live, &core.Event{At: now(), Actor: "node-1", Ask: w.asker}, &out)
		w.commit(t, &out)
		if w.to != nil && len(born)%500 == 499 {
			w.to.flush(w)
		}
		w.tasks = append(w.tasks, t)
		born = append(born, t)
	}
	return born
}

// store stores a plan, once.
func (w *world) store(p core.Plan) {
	w.t.Helper()
	if w.version(p.Name, p.Version) != nil {
		return
	}
	w.plans = append(w.plans, p)
	if w.to != nil {
		w.to.plan(w, p)
	}
}

// failing makes n tasks whose payment is refused.
func (w *world) failing(policy core.Policy, n int, text string) []*task {
	w.t.Helper()
	return w.failingOf(orders(policy), n, text, 0)
}

// failingOf makes n tasks of a plan whose payment is refused after a time.
func (w *world) failingOf(p core.Plan, n int, text string, after time.Duration) []*task {
	w.t.Helper()
	w.set(func() {
		w.answer = func(_ *task, step string, undo bool) answer {
			if step == "pay" && !undo {
				return answer{code: core.CodeRefused, text: text, after: after}
			}
			return answer{}
		}
	})
	born := w.birth(p, n)
	w.set(func() { w.answer = func(*task, string, bool) answer { return answer{} } })
	return born
}

// commit stores what an event came to, and lets its effects take place.
func (w *world) commit(t *task, out *core.Outcome) {
	w.t.Helper()
	for _, r := range out.Records {
		t.Journal = append(t.Journal, r)
		t.Commits = append(t.Commits, 1)
	}
	if t.live.State.Ended() && t.live.EndNumber == 0 {
		w.ends[t.live.Partition]++
		t.live.EndNumber = w.ends[t.live.Partition]
	}
	if w.to != nil {
		w.to.add(t, out)
	}
	t.Row = *t.live
	t.Row.Steps = nil
	if replayed, err := core.Replay(t.plan, &t.Saved); err != nil || replayed.State != t.live.State || replayed.Seq != t.live.Seq {
		w.t.Fatalf("task %s: the replayed one differs: %v", t.live.ID, err)
	}
	for _, e := range out.Effects {
		switch e.Kind {
		case core.EffectDo, core.EffectUndo:
			undo := e.Kind == core.EffectUndo
			a := w.answer(t, t.plan.Steps[e.Step].Name, undo)
			if a.after < 0 || now().Add(a.after) >= e.At {
				t.due = append(t.due, due{e.At, core.Event{Kind: core.EventOverdue}})
				continue
			}
			t.due = append(t.due, due{now().Add(a.after), core.Event{Kind: core.EventReply, Seq: e.Seq, Copy: e.Copy, Code: a.code, Error: a.text, Result: []byte(`{}`), Rand: 0.5}})
		case core.EffectWake:
			t.due = append(t.due, due{e.At, core.Event{Kind: core.EventWake}})
		}
	}
}

// apply is one event of one task, as its owner takes it.
func (w *world) apply(t *task, ev core.Event) error {
	w.t.Helper()
	ev.At, ev.Node, ev.Ask = now(), "node-1", w.asker
	if ev.Actor == "" {
		ev.Actor = "node-1"
	}
	var out core.Outcome
	if err := core.Apply(t.plan, t.live, &ev, &out); err != nil {
		return err
	}
	if ev.Plan != nil {
		t.plan = ev.Plan
	}
	w.commit(t, &out)
	return nil
}

// set changes what owners and agents do.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// by is an event that a person asks for.
func (w *world) by(t *task, kind core.EventKind) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.apply(t, core.Event{Kind: kind, Actor: "olga"}); err != nil {
		w.t.Errorf("task %s: %v", t.live.ID, err)
	}
}

// turn lets owners and agents do what is due; rest: nothing will come by itself.
func (w *world) turn() (rest bool) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.deaf {
		for _, m := range w.queue {
			w.control(&m)
			w.read[m.partition] = m.pos
		}
		w.queue = w.queue[:0]
	}
	rest = true
	for _, t := range w.tasks {
		if len(t.due) == 0 {
			continue
		}
		at := now()
		ripe := make([]due, 0, len(t.due))
		later := t.due[:0:0]
		for _, d := range t.due {
			if d.at <= at {
				ripe = append(ripe, d)
			} else {
				later = append(later, d)
			}
		}
		t.due = later
		for _, d := range ripe {
			_ = w.apply(t, d.ev) // what came too late is refused
		}
		rest = rest && len(t.due) == 0
	}
	if w.to != nil {
		w.to.flush(w)
	}
	return rest
}

// control is a message of the control stream, as an owner takes it.
func (w *world) control(m *queued) {
	c := &m.c
	for i, number := range c.Numbers {
		t := w.task(m.partition, number)
		if t == nil || w.ignore(t) {
			continue
		}
		ev := c.Event(m.at)
		ev.Looked = c.Asked
		if c.Kind == core.EventMigrate {
			ev.Plan = w.version(t.live.Type, c.Version)
		}
		if len(c.Seqs) > 0 {
			ev.IfSeq = c.Seqs[i]
		}
		_ = w.apply(t, ev)
	}
}

// version is a version of a plan; nil: there is none.
func (w *world) version(name string, version int64) *core.Plan {
	for i := range w.plans {
		if p := &w.plans[i]; p.Name == name && p.Version == version {
			return p
		}
	}
	return nil
}

func (w *world) task(partition int, number int64) *task {
	i := int(number-1)*partitions + partition
	if i < 0 || i >= len(w.tasks) || w.tasks[i] == nil {
		return nil
	}
	return w.tasks[i]
}

// live runs the owners until ctx ends.
func (w *world) live(ctx context.Context) {
	for {
		w.turn()
		select {
		case <-time.After(turn):
		case <-ctx.Done():
			return
		}
	}
}

// settle lets time pass until owners and agents have come to rest.
func (w *world) settle() {
	w.t.Helper()
	for range 10_000 {
		if w.turn() {
			return
		}
		<-time.After(turn)
	}
	w.t.Fatalf("the tasks do not come to rest")
}

func fingerprint(text string) string {
	h := fnv.New64a()
	for _, word := range strings.Fields(text) {
		if !strings.ContainsAny(word, "0123456789") {
			_, _ = h.Write([]byte(word))
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// groupOf is the failure group of a task; empty: it is in none.
func groupOf(t *task) string {
	if s := t.live.State; s != core.StateError && (s != core.StateUndone || t.live.Asked) {
		return ""
	}
	return fmt.Sprintf("%s-%d-%s", t.live.State, t.live.FailedStep, fingerprint(t.live.Why))
}

func (t *task) failedStep() string {
	if t.live.FailedStep == 0 {
		return ""
	}
	return t.plan.Steps[t.live.FailedStep-1].Name
}

// called counts statements.
func (w *world) called(what string) { w.rows[what]++ }

// The store.

var _ Store = (*world)(nil)

func (w *world) Plans(context.Context) ([]core.Plan, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.plans), nil
}

func (w *world) Group(_ context.Context, id string) (operate.Group, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := operate.Group{ID: id}
	for _, t := range w.tasks {
		if groupOf(t) == id {
			g.Tasks.N++
			g.Type, g.State, g.Step, g.Example, g.Task = t.live.Type, t.live.State, t.failedStep(), t.live.Why, t.live.ID
		}
	}
	if g.Tasks.N == 0 {
		return g, fmt.Errorf("group %s: %w", id, core.ErrNotFound)
	}
	return g, nil
}

func (w *world) Cursors(context.Context) ([]core.PartitionState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.called("cursors")
	var all []core.PartitionState
	for p := range w.read {
		all = append(all, core.PartitionState{Partition: p, ControlCursor: w.read[p]})
	}
	return all, nil
}

func (w *world) Freeze(_ context.Context, op operate.Operation, sel operate.Selection) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ops[op.ID] != nil {
		return 0, fmt.Errorf("operation %s is there", op.ID)
	}
	s := &frozenOp{op: op}
	for _, t := range w.tasks {
		in := sel.Group != "" && groupOf(t) == sel.Group ||
			sel.Filter != nil && (sel.Filter.State == "" || sel.Filter.State == t.live.State) && (sel.Filter.PlanVersion == 0 || sel.Filter.PlanVersion == t.live.PlanVersion) &&
				(sel.Filter.MovableTo == 0 || sel.Filter.MovableTo != t.live.PlanVersion && (!t.live.State.Ended() || t.live.State == core.StateError)) && (sel.Filter.Step == "" || sel.Filter.Step == t.failedStep()) ||
			slices.Contains(sel.IDs, operate.TaskRef{Type: t.live.Type, ID: t.live.ID})
		if in && len(s.members) < operate.MembersMax {
			s.members = append(s.members, operate.Member{
				Operation: op.ID, Ordinal: int64(len(s.members) + 1), Partition: t.live.Partition, Number: t.live.Number, ID: t.live.ID,
				Type: t.live.Type, Seq: t.live.Seq, Step: t.failedStep(), Outcome: operate.OutcomeWaiting})
		}
	}
	s.op.Tasks = int64(len(s.members))
	s.op.Tally = operate.Tally{Waiting: s.op.Tasks}
	w.ops[op.ID] = s
	w.newest = append(w.newest, op.ID)
	return s.op.Tasks, nil
}

func (w *world) Operation(_ context.Context, id string) (operate.Operation, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.ops[id]
	if s == nil {
		return operate.Operation{}, fmt.Errorf("operation %s: %w", id, core.ErrNotFound)
	}
	return s.op, nil
}

func (w *world) Operations(_ context.Context, states []operate.OperationState, limit int, _ string) (ops []operate.Operation, next string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.called("operations")
	for _, id := range slices.Backward(w.newest) {
		if op := w.ops[id].op; len(ops) < limit && (len(states) == 0 || slices.Contains(states, op.State)) {
			ops = append(ops, op)
		}
	}
	return ops, "", nil
}

func (w *world) Update(ctx context.Context, op operate.Operation, was int64) error {
	return w.SetMembers(ctx, op, was, nil)
}

func (w *world) Members(_ context.Context, operation string, outcome operate.Outcome, after int64, limit int) ([]operate.Member, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.called("members")
	s := w.ops[operation]
	if s == nil {
		return nil, fmt.Errorf("operation %s: %w", operation, core.ErrNotFound)
	}
	var page []operate.Member
	for _, m := range s.members[min(max(0, after), int64(len(s.members))):] {
		if len(page) < limit && (outcome == "" || m.Outcome == outcome) {
			page = append(page, m)
		}
	}
	return page, nil
}

// may are the outcomes that may follow one.
var may = map[operate.Outcome][]operate.Outcome{
	operate.OutcomeWaiting: {operate.OutcomeWaiting, operate.OutcomeAsked, operate.OutcomeSkipped}, // skipped: a patch does not apply
	operate.OutcomeAsked:   {operate.OutcomeDone, operate.OutcomeFailedAgain, operate.OutcomeSkipped},
}

func (w *world) SetMembers(_ context.Context, op operate.Operation, was int64, members []operate.Member) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.called("writes")
	s := w.ops[op.ID]
	if s == nil {
		return fmt.Errorf("operation %s: %w", op.ID, core.ErrNotFound)
	}
	if s.op.Epoch != was {
		return operate.ErrFenced
	}
	if op.Epoch <= was {
		w.t.Errorf("operation %s: a write does not raise the epoch %d", op.ID, was)
	}
	rows := slices.Clone(s.members)
	for _, m := range members {
		row := &rows[m.Ordinal-1]
		if !slices.Contains(may[row.Outcome], m.Outcome) {
			w.t.Errorf("member %d goes from %s to %s", m.Ordinal, row.Outcome, m.Outcome)
		}
		row.Wave, row.Outcome, row.Text, row.Fingerprint = m.Wave, m.Outcome, m.Text, m.Fingerprint
	}
	var counted operate.Tally
	for i := range rows {
		*counted.Of(rows[i].Outcome)++
	}
	if op.Tally != counted || counted.Total() != s.op.Tasks {
		w.t.Errorf("operation %s: the tally is %+v, and its members are %+v of %d", op.ID, op.Tally, counted, s.op.Tasks)
	}
	fixed := s.op
	s.members, s.op = rows, op
	s.op.Action, s.op.Selection, s.op.Group, s.op.Request, s.op.Tasks = fixed.Action, fixed.Selection, fixed.Group, fixed.Request, fixed.Tasks
	s.op.By, s.op.Created, s.op.Expires, s.op.Since = fixed.By, fixed.Created, fixed.Expires, operate.Count{}
	if !reflect.DeepEqual(s.op.Request, op.Request) || s.op.Tasks != op.Tasks {
		w.t.Errorf("operation %s: what never changes was changed", op.ID)
	}
	return nil
}

func (w *world) DropExpired(_ context.Context, at time.Time) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.ops {
		if s.op.State == operate.OperationPreview && !at.Before(s.op.Expires) {
			delete(w.ops, id)
			w.newest = slices.DeleteFunc(w.newest, func(n string) bool { return n == id })
			n++
		}
	}
	return n, nil
}

func (w *world) Standing(_ context.Context, members []operate.Member) ([]operate.Standing, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.called("standing")
	if len(members) > operate.ListMax {
		w.t.Errorf("%d members in one statement", len(members))
	}
	var all []operate.Standing
	for i := range members {
		m := &members[i]
		t := w.task(m.Partition, m.Number)
		if t == nil {
			all = append(all, operate.Standing{Ordinal: m.Ordinal, Missing: true})
			continue
		}
		s := operate.Standing{Ordinal: m.Ordinal, State: t.live.State, PlanVersion: t.live.PlanVersion, Seq: t.live.Seq, Step: t.failedStep(), Text: t.live.Why}
		if groupOf(t) != "" {
			s.Fingerprint = fingerprint(t.live.Why)
		}
		for _, r := range t.Journal {
			if r.Seq <= m.Seq {
				continue
			}
			s.Asked = s.Asked || r.Actor == operate.OperationActor(m.Operation)
			s.Passed = s.Passed || r.Step >= 0 && t.plan.Steps[r.Step].Name == m.Step && r.StepStatus == core.StepDone
		}
		all = append(all, s)
	}
	return all, nil
}

func (w *world) Saved(_ context.Context, partition int, numbers []int64) ([]core.Saved, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.called("saved")
	if len(numbers) > savedMax {
		w.t.Errorf("%d tasks with their journals at once", len(numbers))
	}
	var all []core.Saved
	for _, n := range numbers {
		if t := w.task(partition, n); t != nil {
			all = append(all, core.Saved{Row: t.Row, Journal: slices.Clone(t.Journal), Commits: slices.Clone(t.Commits)})
		}
	}
	return all, nil
}

// Ask implements Controls.
func (w *world) Ask(_ context.Context, partition int, c core.Control) (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.called("messages")
	rows := len(c.Numbers)
	if c.Kind == core.EventMigrate {
		rows = 0
	}
	if len(c.Numbers) == 0 || len(c.Seqs) != rows || len(c.Numbers) > messageMax {
		w.t.Errorf("a message with %d numbers and %d of their rows", len(c.Numbers), len(c.Seqs))
	}
	w.stored(partition, &c)
	w.pos[partition]++
	if !w.drop(c) {
		w.queue = append(w.queue, queued{partition, w.pos[partition], c, now()})
	}
	return w.pos[partition], nil
}

// stored checks that the members that a message is about count as asked before it leaves.
func (w *world) stored(partition int, c *core.Control) {
	w.t.Helper()
	id, _ := strings.CutPrefix(c.Actor, operate.OperationActor(""))
	if w.ops[id] == nil {
		return // it is in the database
	}
	asked := map[int64]int64{}
	for _, m := range w.ops[id].members {
		if m.Partition == partition && m.Outcome != operate.OutcomeWaiting {
			asked[m.Number] = m.Seq
		}
	}
	for i, number := range c.Numbers {
		if seq, is := asked[number]; !is || len(c.Seqs) > 0 && seq != c.Seqs[i] {
			w.t.Errorf("a message leaves about task %d of partition %d at row %d: stored as asked is %t, at row %d", number, partition, c.Seqs[i], is, seq)
		}
	}
}

// Joined implements Joined.
func (w *world) Joined(_ context.Context, op operate.Operation) (operate.Count, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var c operate.Count
	for _, t := range w.tasks {
		member := slices.ContainsFunc(w.ops[op.ID].members, func(m operate.Member) bool { return m.ID == t.live.ID })
		if groupOf(t) == op.Group && !member {
			c.N++
		}
	}
	return c, nil
}

// The audit trail and the notes.

func (w *world) Append(_ context.Context, e operate.AuditEntry) (int64, *operate.AuditEntry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.entries {
		if e.Key != "" && w.entries[i].Key == e.Key {
			again := w.entries[i]
			return again.Number, &again, nil
		}
	}
	e.Number = int64(len(w.entries) + 1)
	w.entries = append(w.entries, e)
	return e.Number, nil, nil
}

func (w *world) SetOutcome(_ context.Context, number int64, outcome string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := &w.entries[number-1]; e.Outcome != "asked" {
		return errors.New("an entry has its outcome")
	}
	w.entries[number-1].Outcome = outcome
	return nil
}

func (w *world) Audit(context.Context, operate.AuditFilter) (operate.AuditPage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return operate.AuditPage{Entries: slices.Clone(w.entries)}, nil
}

func (w *world) AddNote(_ context.Context, n operate.Note) (operate.Note, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n.Number = int64(len(w.notes) + 1)
	w.notes = append(w.notes, n)
	return n, nil
}

func (w *world) Notes(context.Context, string, int) ([]operate.Note, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.notes), nil
}

// What the tests do with a world.

type leads bool

func (l leads) Leads() bool { return bool(l) }

func config() Config { return Config{Now: time.Now} }

func (w *world) desk() *operate.Desk { return operate.NewDesk(w.db, config().Now, quiet) }

func (w *world) service() *Service {
	return NewService(config(), w.db, w.desk(), w.db, nil, w.db, quiet)
}

// runner starts a runner, and returns what ends it and waits for its end.
func (w *world) runner(ctx context.Context, cfg Config) (stop func()) {
	return start(ctx, NewRunner(cfg, w.db, w, w.desk(), leads(true), nil, func(error) {}, quiet))
}

func start(ctx context.Context, r *Runner) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	return func() { cancel(); <-ended }
}

// started previews and starts an operation.
func (w *world) started(sel operate.Selection, r operate.Request) operate.Operation {
	w.t.Helper()
	s := w.service()
	p, err := s.Preview(context.Background(), anna, sel, r)
	if err != nil {
		w.t.Fatalf("preview: %v", err)
	}
	op, err := s.Start(context.Background(), anna, p.Token, 0, 0, "the bank is back", p.Tasks)
	if err != nil {
		w.t.Fatalf("start: %v", err)
	}
	return op
}

// until lets time pass until an operation is in one of the states, and returns it with its members.
func (w *world) until(id string, states ...operate.OperationState) (operate.Operation, []operate.Member) {
	w.t.Helper()
	return w.reaches(id, fmt.Sprint(states), func(op *operate.Operation) bool { return slices.Contains(states, op.State) })
}

func (w *world) reaches(id, what string, there func(*operate.Operation) bool) (operate.Operation, []operate.Member) {
	w.t.Helper()
	for range 50_000 {
		if op := w.look(id); there(&op) {
			return op, w.members(id)
		}
		<-time.After(turn)
	}
	op, _ := w.op(id)
	w.t.Fatalf("operation %s does not come to %s: it is %s (%s) with %+v", id, what, op.State, op.Why, op.Tally)
	return operate.Operation{}, nil
}

// op is an operation with its members, as they are stored.
func (w *world) op(id string) (operate.Operation, []operate.Member) { return w.look(id), w.members(id) }

func (w *world) look(id string) operate.Operation {
	w.t.Helper()
	op, err := w.db.Operation(context.Background(), id)
	if err != nil {
		w.t.Fatalf("operation %s: %v", id, err)
	}
	return op
}

func (w *world) members(id string) (all []operate.Member) {
	w.t.Helper()
	for {
		page, err := w.db.Members(context.Background(), id, "", int64(len(all)), operate.ListMax)
		if err != nil {
			w.t.Fatalf("members of operation %s: %v", id, err)
		}
		if all = append(all, page...); len(page) < operate.ListMax {
			return all
		}
	}
}

// asked counts the rows of a task's journal by which an operation changed it.
func (t *task) asked(id string) (n int) {
	for _, r := range t.Journal {
		if r.Actor == operate.OperationActor(id) {
			n++
		}
	}
	return n
}

// bubble runs a test in a world whose owners live.
func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	bubbleOf(t, nil, test)
}

// bubbleOf is bubble whose world fails another test than t, if that is not nil: one of a property.
func bubbleOf(t *testing.T, f failer, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if f != nil {
			w.t = f
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { w.live(ctx) })
		defer wg.Wait()
		defer cancel()
		test(t, w)
	})
}

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
