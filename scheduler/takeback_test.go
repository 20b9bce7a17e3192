package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/sim"
	"duly.dev/duly/scheduler"
)

// drawn is a rig with a history that a seed draws: two of them with one seed are equal.
type drawn struct {
	*rig
	rnd   *rand.Rand
	there bool     // every agent is, and none is busy: else a takeover does not wait for the next try
	tasks []string // of partition 0
	store *failing
}

// failing is a store that fails where it is told to, and notes what is done with it.
type failing struct {
	*sim.MemStore
	commits [][]core.TaskWrite // since it was last cleared
	reads   int                // likewise, before the first commit
	read    func(n int) error
	taken   func(w *core.TaskWrite) bool // the id of a new task is another's
	plans   error                        // of a look at the plans
}

func (f *failing) Plans(ctx context.Context) ([]core.Plan, error) {
	if f.plans != nil {
		return nil, f.plans
	}
	return f.MemStore.Plans(ctx)
}

func (f *failing) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	f.commits = append(f.commits, slices.Clone(b.Writes))
	var taken []core.Duplicate
	some := *b
	some.Writes = nil
	for i := range b.Writes {
		w := &b.Writes[i]
		if f.taken == nil || !w.Birth || !f.taken(w) {
			some.Writes = append(some.Writes, *w)
			continue
		}
		taken = append(taken, core.Duplicate{Partition: w.Task.Partition, Number: w.Task.Number, Existing: core.Existing{ID: w.Task.ID, Type: w.Task.Type, InputHash: []byte("another")}})
	}
	res, err := f.MemStore.Commit(ctx, &some)
	if err == nil {
		res.Duplicates = append(res.Duplicates, taken...)
	}
	return res, err
}

// reading counts a read of partition 0.
func (f *failing) reading(as core.AsOf) error {
	if as.Partition != 0 || len(f.commits) > 0 {
		return nil
	}
	if f.reads++; f.read != nil {
		return f.read(f.reads)
	}
	return nil
}

func (f *failing) LoadNumbers(ctx context.Context, as core.AsOf, numbers []int64) ([]core.Saved, error) {
	if err := f.reading(as); err != nil {
		return nil, err
	}
	return f.MemStore.LoadNumbers(ctx, as, numbers)
}

func (f *failing) LoadIDs(ctx context.Context, as core.AsOf, ids []string) ([]core.Saved, error) {
	if err := f.reading(as); err != nil {
		return nil, err
	}
	return f.MemStore.LoadIDs(ctx, as, ids)
}

func (f *failing) Waiting(ctx context.Context, as core.AsOf, agent string, after int64, limit int) ([]int64, error) {
	if err := f.reading(as); err != nil {
		return nil, err
	}
	return f.MemStore.Waiting(ctx, as, agent, after, limit)
}

func (f *failing) Children(ctx context.Context, as core.AsOf, of core.Siblings, after int64, limit int) ([]core.ChildRow, error) {
	if err := f.reading(as); err != nil {
		return nil, err
	}
	return f.MemStore.Children(ctx, as, of, after, limit)
}

func (f *failing) ChildCounts(ctx context.Context, as core.AsOf, of core.Siblings) (core.ChildCounts, error) {
	if err := f.reading(as); err != nil {
		return core.ChildCounts{}, err
	}
	return f.MemStore.ChildCounts(ctx, as, of)
}

// drawnLimits bound agent.a by places, agent.b by a rate, and agent.go by its keys.
var drawnLimits = []core.Limit{
	{Agent: "agent.a", Concurrent: 2, Revision: 1},
	{Agent: "agent.b", RateMilli: 3000, Revision: 1},
	{Agent: "agent.go", Key: "key", KeyConcurrent: 1, Revision: 1},
}

func keyByLabel(_ string, t *core.Task) (string, error) {
	for _, l := range t.Labels {
		if l.Key == "key" {
			return l.Value, nil
		}
	}
	return "", errors.New("it has none")
}

// newDrawn draws a history of partition 0; partition 1 has two tasks that are out.
func newDrawn(t *testing.T, seed uint64) *drawn {
	rnd := rand.New(rand.NewPCG(seed, 7))
	cfg := scheduler.Config{AgentWindow: 1 + rnd.IntN(4), Expressions: lists{}, KeyOf: keyByLabel, Memory: scheduler.NewMemory(0), Admission: scheduler.NewAdmission(40, time.Second)}
	if rnd.IntN(4) == 0 {
		cfg.BatchMax = 4
	}
	d := &drawn{rig: newRig(t, cfg), rnd: rnd, there: seed%2 == 0}
	d.store = &failing{MemStore: d.rig.store}
	d.rig.reads = d.store
	d.rig.store.AddPlan(leg("leg"))
	d.rig.store.AddPlan(family(core.Step{Kind: core.EachStep, Elements: "input", Input: "element", Parallel: 2, FailuresMax: 1, AttemptsMax: 2}))
	d.rig.store.AddPlan(core.Plan{Name: "one", Version: 1, Steps: []core.Step{{Name: "kid", Kind: core.TaskStep, Child: "leg", Undoable: true, AttemptsMax: 2, Backoff: time.Second}}})
	fork := orderPlan("fork", 1, "a", "b", "go", "z")
	fork.Steps[1].After, fork.Steps[2].After, fork.Steps[3].After = nil, nil, []int{0, 1, 2}
	d.rig.store.AddPlan(fork)
	d.jitter = func() float64 { return 0.5 } // else an event too many makes all later ones others
	d.start("n1")
	d.adopt(0)
	d.adopt(1)
	if rnd.IntN(3) > 0 {
		d.mail.Limits = &drawnLimits
	}
	d.rig.tasks(1, order("other1"), order("other2"))
	for _, kind := range []string{"order", "family", "one", "fork"} {
		d.submit(kind)
	}
	d.goOn()
	d.grant()
	for range 3 + rnd.IntN(8) {
		d.goOn()
		d.draw()
	}
	d.goOn()
	return d
}

// goOn is a cycle without faults.
func (d *drawn) goOn() {
	d.cycle()
	d.out = append(d.out, d.bus.take()...)
}

// grant gives the shard all of the limits.
func (d *drawn) grant() {
	for _, l := range drawnLimits[:2] {
		d.granted(l)
	}
	for i, key := range []string{"", "x", "y"} {
		grant := core.Grant{Keyed: true, Key: key, Holder: "n", Wanted: 1, Places: 1, Until: d.now.Add(time.Hour)}
		d.mail.Grants = append(d.mail.Grants, scheduler.GrantMail{Term: d.shard.Term(), Seq: int64(i + 1), ClaimedGrant: core.ClaimedGrant{Limit: drawnLimits[2], Grant: grant, Fair: grant}})
	}
}

func (d *drawn) submit(kind string) {
	sub := core.Submission{Type: kind, ID: fmt.Sprint(kind, len(d.tasks)), Input: list(1 + d.rnd.IntN(4)), ReplyTo: "private", Trace: "00-trace-01"}
	if key := d.rnd.IntN(3); key > 0 {
		sub.Labels = []core.Label{{Key: "key", Value: []string{"x", "y"}[key-1]}}
	}
	if d.rnd.IntN(3) > 0 {
		sub.CompleteBy = d.now.Add(time.Duration(30+d.rnd.IntN(300)) * time.Second)
	}
	d.tasks = append(d.tasks, sub.ID)
	d.rig.tasks(0, sub)
}

// draw draws what arrives next.
func (d *drawn) draw() {
	d.now = d.now.Add(time.Duration(d.rnd.IntN(2500)) * time.Millisecond)
	for range d.rnd.IntN(3) {
		d.submit([]string{"order", "family", "one", "fork"}[d.rnd.IntN(4)])
	}
	var still []core.Command
	for _, c := range d.out {
		switch n := d.rnd.IntN(10); {
		case n < 4:
			still = append(still, c)
		case n < 8:
			d.answer(c, 0)
		case n == 8:
			d.answer(c, []int{core.CodeAgentError, core.CodeRefused, core.CodeFailed}[d.rnd.IntN(3)])
		case d.there:
			d.answer(c, core.CodeFailed)
		case d.rnd.IntN(3) == 0:
			d.answer(c, core.CodeTooMany)
		default:
			d.unserved(c)
		}
	}
	d.out = still
	for range d.rnd.IntN(3) {
		id := d.tasks[d.rnd.IntN(len(d.tasks))]
		kind := []core.EventKind{core.EventCancel, core.EventUndo, core.EventResubmit, core.EventExtend}[d.rnd.IntN(4)]
		d.control(core.Control{Kind: kind, ID: id, Actor: "olga", Until: d.now.Add(5 * time.Minute)})
	}
	if d.rnd.IntN(4) == 0 {
		d.control(core.Control{Kind: core.EventOverdue, Actor: "supervisor", Numbers: []int64{int64(1 + d.rnd.IntN(8)), int64(9 + d.rnd.IntN(8))}})
	}
	if d.rnd.IntN(6) == 0 {
		d.pause([][]core.Pause{nil, {{Agent: "agent.z"}}, {{Type: "order", Step: "a"}}}[d.rnd.IntN(3)]...)
	}
	if d.rnd.IntN(8) == 0 {
		d.shut([][]core.Breaker{nil, {{Agent: "agent.b", State: core.BreakerTrial, Revision: 2}}}[d.rnd.IntN(2)]...)
	}
}

// only keeps the mail that partition 1, or no partition, is meant by.
func (d *drawn) only(partitions ...int) {
	m, ours := d.mail, func(p int) bool { return slices.Contains(partitions, p) }
	m.Controls = nil
	m.Tasks = slices.DeleteFunc(m.Tasks, func(x scheduler.TaskMail) bool { return !ours(x.Partition) })
	m.Replies = slices.DeleteFunc(m.Replies, func(x scheduler.ReplyMail) bool { return !ours(x.Reply.Partition) })
	m.Unserved = slices.DeleteFunc(m.Unserved, func(x scheduler.ReplyMail) bool { return !ours(x.Reply.Partition) })
	m.Published = slices.DeleteFunc(m.Published, func(x scheduler.PublishedMail) bool { return !ours(x.Partition) })
}

// refusal is one way in which a round goes wrong.
type refusal struct {
	name  string
	lost  []int  // the partitions that are let go; empty: none is
	knows bool   // that nothing of partition 0 is stored
	left  string // the task that is left as it is stored
	parts bool   // there may be fewer parts, or the end of a child among them
	set   func(d *drawn)
}

// everyRefusal are all of a round: of each of its writes, and at each of its places.
func everyRefusal(writes []core.TaskWrite, reads int) (all []refusal) {
	both := []int{0, 1}
	for i := range writes {
		id := writes[i].Task.ID
		if writes[i].Task.Partition != 0 || writes[i].Task.Parent != 0 && writes[i].Task.State == core.StateUndoing {
			continue // another owner undoes it again
		}
		all = append(all,
			refusal{name: "row of " + id, set: func(d *drawn) {
				d.store.RefuseRow = func(w *core.TaskWrite) bool {
					return w.Task.ID == id && (w.Task.State != core.StateError || w.Task.Trace != "" && w.Birth)
				}
			}},
			refusal{name: "every row of " + id, left: id, set: func(d *drawn) {
				d.store.RefuseRow = func(w *core.TaskWrite) bool { return w.Task.ID == id }
			}})
		if writes[i].Birth {
			all = append(all, refusal{name: "id of " + id, set: func(d *drawn) {
				once := false
				d.store.taken = func(w *core.TaskWrite) bool {
					is := w.Task.ID == id && !once
					once = once || is
					return is
				}
			}})
		}
	}
	for n := 1; n <= reads; n++ {
		fails := func(err error) func(*drawn) {
			return func(d *drawn) {
				d.store.read = func(is int) error {
					if is == n {
						return err
					}
					return nil
				}
			}
		}
		all = append(all,
			refusal{name: fmt.Sprintf("read %d of the partition", n), lost: []int{0}, knows: true, set: fails(errCut)},
			refusal{name: fmt.Sprintf("read %d of the store", n), lost: both, knows: true, set: fails(core.StoppingStore(errCut))})
	}
	if len(writes) == 0 {
		return all
	}
	for part := 2; part <= 4; part++ { // the batch is halved
		at := func(d *drawn, err error) error {
			if len(d.store.commits) == part {
				return err
			}
			return nil
		}
		refused := func(d *drawn) {
			d.store.RefuseRow = func(w *core.TaskWrite) bool { return w.Task.ID == writes[0].Task.ID && w.Task.State != core.StateError }
		}
		all = append(all,
			refusal{name: fmt.Sprintf("cut before part %d", part), lost: both, parts: true, set: func(d *drawn) {
				refused(d)
				d.store.BeforeCommit = func(*core.Batch) error { return at(d, errCut) }
			}},
			refusal{name: fmt.Sprintf("cut after part %d", part), lost: both, parts: true, set: func(d *drawn) {
				refused(d)
				d.store.AfterCommit = func(*core.Batch, core.CommitResult) error { return at(d, errCut) }
			}})
	}
	return append(all,
		refusal{name: "fenced", lost: []int{0}, knows: true, set: func(d *drawn) {
			d.store.BeforeCommit = func(*core.Batch) error {
				d.store.BeforeCommit = nil
				d.steal(0)
				return nil
			}
		}},
		refusal{name: "cut before the commit", lost: both, set: func(d *drawn) { d.store.BeforeCommit = func(*core.Batch) error { return errCut } }},
		refusal{name: "cut after the commit", lost: both, set: func(d *drawn) { d.store.AfterCommit = func(*core.Batch, core.CommitResult) error { return errCut } }})
}

// A round of which something is refused leaves nothing in memory: whatever it was, the shard is as one that never tried, or,
// of what is stored, as one that has read it.
func TestRefusedRoundIsTakenBack(t *testing.T) {
	seeds := uint64(16)
	for seed := uint64(1); seed <= seeds; seed++ {
		dry := newDrawn(t, seed)
		dry.draw()
		dry.store.commits, dry.store.reads = nil, 0
		dry.goOn()
		var writes []core.TaskWrite
		if len(dry.store.commits) > 0 {
			writes = dry.store.commits[0]
		}
		for _, r := range everyRefusal(writes, dry.store.reads) {
			if len(r.lost) == 0 && !dry.there {
				continue
			}
			t.Run(fmt.Sprintf("%d %s", seed, r.name), func(t *testing.T) { tryRefusal(t, seed, r) })
		}
	}
}

func tryRefusal(t *testing.T, seed uint64, is refusal) {
	d, never := newDrawn(t, seed), newDrawn(t, seed)
	d.draw()
	never.draw()
	d.store.commits, d.store.reads = nil, 0
	after := d.store.AfterCommit
	is.set(d)
	lost, _ := d.try(false)
	d.store.BeforeCommit, d.store.AfterCommit, d.store.RefuseRow, d.store.taken, d.store.read = nil, after, nil, nil, nil
	slices.Sort(lost)
	if is.parts && len(lost) < len(is.lost) {
		return
	}
	if len(is.lost) > 0 && !slices.Equal(lost, is.lost) {
		t.Fatalf("lost %v, want %v", lost, is.lost)
	}
	drop, keep := lost, []int{1}
	if len(lost) != 1 {
		drop, keep = []int{0, 1}, nil
	}
	for _, p := range drop {
		never.shard.Drop(p)
	}
	never.only(keep...)
	never.settle()
	d.settle()
	switch {
	case len(is.lost) == 0:
	case is.knows:
		same(t, "after it", d, never, neverTried)
	default:
		same(t, "after it", d, never, neverTried, unknownOutcome)
	}
	if len(is.lost) > 0 { // both load all
		d.shard.Drop(1)
	}
	d.again("")
	if d.otherOwner(is.left) {
		return
	}
	for p := range 2 {
		never.shard.Drop(p)
	}
	never.store.Replace(d.store.Copy())
	never.again(is.left)
	same(t, "once loaded", d, never, neverTried, loadedFresh)
	d.checkParked()
}

// otherOwner reports whether a task that is left as it is stored is more than that to an owner that loads it: it is parked, or
// its kin goes on.
func (d *drawn) otherOwner(left string) bool {
	is := d.store.Task(0, left)
	return is != nil && (is.WaitsFor != "" || is.Parent != 0 || is.Type == "family" || is.Type == "one")
}

// again brings back what is lost, lets a task go that is left as it is stored, and does what is to be done now.
func (d *drawn) again(left string) {
	for p := range 2 {
		if _, owns := d.shard.Owns(p); !owns {
			d.adopt(p)
		}
	}
	if left != "" {
		d.shard.Forget(0, left)
	}
	d.shard.CountChildren()
	d.settle()
	d.flush()
}

// settle goes on until there is nothing to do now.
func (d *drawn) settle() {
	d.t.Helper()
	for range 100 {
		d.goOn()
		if next := d.shard.NextWake(); next == 0 || next > d.now {
			d.shard.CountUses()
			return
		}
	}
	d.t.Fatal("cycles without end")
}

// checkParked compares what the shard has in mind as parked with what is stored.
func (d *drawn) checkParked() {
	d.t.Helper()
	has := memoryOf(d.shard).values
	for _, agent := range []string{"agent.a", "agent.b", "agent.go", "agent.z"} {
		order := fmt.Sprintf("slot(0 %s).order", agent)
		if has[order+".beyond"] != "" {
			continue
		}
		stored, err := d.store.MemStore.Waiting(d.t.Context(), core.AsOf{Partition: 0}, agent, 0, 1000)
		if err != nil {
			d.t.Fatal(err)
		}
		known := 0
		for path := range has {
			if strings.HasPrefix(path, order+".known[") {
				known++
			}
		}
		for _, number := range stored {
			if has[fmt.Sprintf("%s.known[%d]", order, number)] == "" {
				d.t.Errorf("task %d is parked at %s, and the shard does not know of it", number, agent)
			}
		}
		if known != len(stored) {
			d.t.Errorf("%d tasks are known to be parked at %s, %d are", known, agent, len(stored))
		}
	}
}

func same(t *testing.T, when string, got, want *drawn, allowed ...may) {
	t.Helper()
	if all := differences(memoryOf(got.shard), memoryOf(want.shard), allowed...); len(all) > 0 {
		t.Fatalf("%s it keeps what another does not:\n  %s", when, strings.Join(all, "\n  "))
	}
}

// neverTried is what may differ from a shard that never tried a round.
var neverTried = may{
	`shard\.cycle\.(rounds|leave|answers|late|pos|lost|stopped|failed|unread|batch\.ID).*`:                                                       "of the last cycle: the next begins anew",
	`shard\.(Stats|answerers|leftAlone|unstorable|alerts|logs)\b.*`:                                                                              "what is tried is counted, and told",
	`shard\.plans\..*|plan\(.*\).*|slot\(forgotten\).*`:                                                                                          "plans, and what they come to here, are found out when they are needed",
	`agent\(.*\)\.(longest|usual|usualAt|answers|lasted\b.*)`:                                                                                    "what a plan or an answer says of an agent is true whatever becomes of the row",
	`(.*\.nextRound|.*\.nextRateRound|key\(.*\)\.nextRound)\.lookAt|shard\.gate\.agents\.(ready|unreported).*|key\(.*\)\.(reporting|wantsPlace)`: "a look too many finds nothing to do",
	`(agent|key)\(.*\)\.inUse\.limit\.(at|made)`:                                                                                                 "up to when a rate is counted, and made up for: now at least",
	`shard\.evidence\.(lost|nextRound).*`:                                                                                                        "what was known of a partition when it was lost",
	`agent\(.*\)\.last`:                                                                                                                          "whose turn it is",
	`shard\.owned\.partitions\[\d\]\.last|task\(.*\)\.(issue|issues\[\d+\])\.commit`:                                                             "commits have numbers",
	`shard\.owned\.reorder`:                                                                                                                      "the partitions are put in order when they are asked for",
	`shard\.gate\.agents\.behind\[\d\]\.places\[\d+\]\..*`:                                                                                       "these are in no order; how many are of each agent and key their counts say",
}

// unknownOutcome is what may differ where nobody knows whether the round is stored.
var unknownOutcome = may{
	`shard\.gate\.agents\.behind.*`:                 "the round's commands may be said to be out",
	`(agent|key)\(.*\)\.inUse\.(out|limit\.tokens)`: "likewise",
}

// loadedFresh is what may differ from a shard that has loaded all tasks.
var loadedFresh = may{
	`(agent|key)\(.*\)\.inUse\.limit\..*|agent\(.*\)\.keys\[.*|key\(.*\)\.(agent|key|inUse\.limit)|shard\.gate\.agents\.term`: "grants end with a takeover",
	`shard\.gate\.agents\.counted.*|agent\(.*\)\.(calls|trial|counted).*|shard\.tally\..*|shard\.endings\.republished`:        "what the rest of the round came to is counted",
	`shard\.gate\.agents\.behind\[\d\]\.epoch|shard\.cycle\.flush`:                                                            "the epoch in which it was left",
	`shard\.owned\.partitions\[\d\]\.inFlight\.kept.*|task\(.*\)\.kept`:                                                       "what rests is kept by those who had it",
	`agent\(.*\)\.trialOut`: "what is sent again to an agent in trial may be tried again",
	`shard\.owned\.partitions\[\d\]\.(epoch|last|recorded|rewound|ownedAt|takeover|saved|outbox\.republishing|positions\.reading|readUntil)\b.*`: "each takeover has its own",
	`shard\.owned\.partitions\[\d\]\.(agentSlots\.(agents|slots)|inFlight\.wakes)\b.*|shard\.wakes.*|slot\(.*\)\.(name|calls|gaveUp)`:            "agents are in the order in which they were met, wakes in that of a heap",
	`slot\(.*\)\.order.*`:                      "what is parked is read when there is room: see checkParked",
	`slot\(.*\)\.(waiting|unable|blocked)\b.*`: "these have some that have gone on",
	`fan\((past|undo).*`:                       "nothing asks for a fan of the past; an undo goes over the children anew",
	`fan\(do.*\)\.(why|ended|partly|idClashes|round|since|elements|page|pageAfter|more|input).*`:                                    "of children that were seen to end, and of the list",
	`task\(.*\)\.(leased|waits|lacks|blocks|wakes|wakeAt|issue|issues|fans|marks\.(heardAll|trial|noPlace|pausedRetries|keys))\b.*`: "what has been sent again by this owner, and when it is looked at",
	`task\(.*\)\.task\.Steps\[\d+\]\.(Effect\.(copies|Open)|Copy|Tries|Heard|Due|begun)`:                                            "what is not in the journal",
}
