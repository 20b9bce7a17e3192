package sim_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
	"duly.dev/duly/supervisor"
)

// backend is what the roles need of a state store.
type backend interface {
	scheduler.Store
	supervisor.Store
	Get(ctx context.Context, partition int, id string) (core.View, error)
}

type stageStore struct {
	backend
	addPlan func(core.Plan)
}

var (
	errLost  = errors.New("the connection is lost")
	errCrash = errors.New("the process is killed")
)

// watchedStore is the state store with a witness: it tells what is committed,
// and keeps a copy of it, so that it can be restored as it was at a time.
type watchedStore struct {
	stageStore
	s      *stage
	done   []func(backend) // all that was written, in order
	saved  int             // how much of it was, at the backup
	issued map[issuedKey]issuedCommand
	refuse map[string]refusedRow
}

type issuedKey struct {
	partition   int
	number, seq int64
}

type issuedCommand struct {
	undo    bool
	attempt int
}

// refusedRow is a journal row of a task that the database refuses; bare: also
// the one that only says so.
type refusedRow struct {
	seq  int64
	bare bool
}

func newWatchedStore(s *stage) *watchedStore {
	return &watchedStore{stageStore: s.fresh(), s: s, issued: map[issuedKey]issuedCommand{}, refuse: map[string]refusedRow{}}
}

func (w *watchedStore) wrote(again func(backend)) {
	if !w.s.quiet { // many are not restored
		w.done = append(w.done, again)
	}
}

func (w *watchedStore) backup() {
	w.saved = len(w.done)
	w.s.say("store", "is backed up", "")
}

// restore makes the store what it was at the backup.
func (w *watchedStore) restore() {
	w.stageStore, w.done = w.s.fresh(), w.done[:w.saved]
	for _, versions := range w.s.plans {
		for v := int64(1); v <= int64(len(versions)); v++ {
			w.addPlan(*versions[v])
		}
	}
	for _, again := range w.done {
		again(w.backend)
	}
	w.s.say("store", "is restored", "as it was backed up")
}

// nodeStore is the store as one life of a node sees it.
type nodeStore struct {
	*watchedStore
	n *stageNode
}

// Plans leaves out what an old binary does not know.
func (ns nodeStore) Plans(ctx context.Context) ([]core.Plan, error) {
	plans, err := ns.watchedStore.Plans(ctx)
	if ns.n.versionMax > 0 {
		plans = slices.DeleteFunc(plans, func(p core.Plan) bool { return p.Version > ns.n.versionMax })
	}
	if err == nil && ns.n.old {
		return unknownTo(plans)
	}
	return plans, err
}

// TakeOver implements scheduler.Store.
func (ns nodeStore) TakeOver(ctx context.Context, partition int, c core.Claim) (core.PartitionState, error) {
	ns.wrote(func(b backend) { _, _ = b.TakeOver(ctx, partition, c) })
	return ns.watchedStore.TakeOver(ctx, partition, c)
}

// Commit implements scheduler.Store, with the faults that the script has armed.
func (ns nodeStore) Commit(ctx context.Context, b *core.Batch) (core.CommitResult, error) {
	if fault := ns.n.beforeCommit; fault != nil && len(b.Writes) > 0 {
		ns.n.beforeCommit = nil
		if err := fault(); err != nil {
			return core.CommitResult{}, err
		}
	}
	for i := range b.Writes {
		if bad, ok := ns.refuse[b.Writes[i].Task.ID]; ok && slices.ContainsFunc(b.Writes[i].Records, func(r core.Record) bool {
			return r.Seq == bad.seq && (bad.bare || r.Kind != core.KindPoisoned)
		}) {
			ns.s.say("store", "refuses", "the row of %s; nothing of the batch is committed", b.Writes[i].Task.ID)
			return core.CommitResult{}, core.ErrRowRefused
		}
	}
	res, err := ns.watchedStore.Commit(ctx, b)
	if err != nil {
		ns.s.say(ns.n.name, "cannot commit:", "%v", err)
		return res, err
	}
	if !ns.s.quiet {
		kept := cloneBatch(b)
		ns.wrote(func(b backend) { _, _ = b.Commit(ctx, kept) })
	}
	ns.tell(b, &res)
	if fault := ns.n.afterCommit; fault != nil && len(b.Writes) > 0 {
		ns.n.afterCommit = nil
		return res, fault()
	}
	return res, nil
}

func cloneBatch(b *core.Batch) *core.Batch {
	c := *b
	c.Partitions, c.Writes = slices.Clone(b.Partitions), slices.Clone(b.Writes)
	for i := range c.Writes {
		t := *c.Writes[i].Task
		t.Steps, t.Input = slices.Clone(t.Steps), bytes.Clone(t.Input)
		c.Writes[i].Task, c.Writes[i].Records = &t, slices.Clone(c.Writes[i].Records)
	}
	return &c
}

// tell says what a commit wrote and what it left out.
func (ns nodeStore) tell(b *core.Batch, res *core.CommitResult) {
	for _, p := range res.Fenced {
		ns.s.say(ns.n.name, "is fenced", "out of partition %d: nothing of it is committed", p)
	}
	for i := range b.Writes {
		w := &b.Writes[i]
		t := w.Task
		taken := slices.ContainsFunc(res.Duplicates, func(d core.Duplicate) bool { return d.Partition == t.Partition && d.Number == t.Number })
		switch {
		case slices.Contains(res.Fenced, t.Partition):
			continue
		case taken:
			ns.s.say(ns.n.name, "finds taken", "the id %s", t.ID)
			continue
		}
		for k := range w.Records {
			ns.row(t, &w.Records[k], w.Birth || w.Row)
		}
		if len(w.Records) == 0 {
			ns.s.say(ns.n.name, "moves", "the bound of %s to %s", t.ID, ns.s.at(t.Bound))
		}
	}
}

func (ns nodeStore) row(t *core.Task, r *core.Record, row bool) {
	if r.Kind == core.KindUnserved || r.Kind == core.KindUndoUnserved { // under whose number retries leave
		ns.issued[issuedKey{t.Partition, t.Number, r.Seq}] = issuedCommand{r.Kind == core.KindUndoUnserved, r.Attempt + 1}
	} else if r.Next >= 0 {
		ns.issued[issuedKey{t.Partition, t.Number, r.Seq}] = issuedCommand{r.Undo, r.NextAttempt}
	}
	if ns.s.quiet {
		ns.s.counts[ns.n.name+" commits "+string(r.Kind)]++
		return
	}
	ns.s.holdToLimits(t, r)
	text := t.ID + " " + ns.s.record(t, r)
	if row && !t.State.Ended() {
		text += ", bound " + ns.s.at(t.Bound)
	}
	ns.s.say(ns.n.name, "commits", "%s", text)
}

// record is a journal row in words.
func (s *stage) record(t *core.Task, r *core.Record) string {
	plan := s.plans[t.Type][t.PlanVersion]
	var b strings.Builder
	fmt.Fprintf(&b, "#%d %s", r.Seq, r.Kind)
	if r.Step >= 0 {
		fmt.Fprintf(&b, " %s.%d", plan.Steps[r.Step].Name, r.Attempt)
	}
	if r.Code != 0 {
		fmt.Fprintf(&b, " %d", r.Code)
	}
	for _, words := range []string{r.Error, r.Reason} {
		if words != "" {
			b.WriteString(": " + words)
		}
	}
	if r.Input != nil {
		fmt.Fprintf(&b, ", input %s", r.Input)
	}
	fmt.Fprintf(&b, " (%s)", r.State)
	if r.Next >= 0 {
		verb := "do"
		if r.Undo {
			verb = "undo"
		}
		fmt.Fprintf(&b, ", then %s %s.%d", verb, plan.Steps[r.Next].Name, r.NextAttempt)
	} else if r.Due != 0 {
		fmt.Fprintf(&b, ", again at %s", s.at(r.Due))
	}
	return b.String()
}

// saved is a task as stored.
func (s *stage) saved(id string) (core.Saved, bool) {
	found, err := s.store.LoadIDs(context.Background(), core.AsOf{Partition: s.partitionOf(id)}, []string{id})
	if err != nil {
		s.t.Fatal(err)
	}
	if len(found) == 0 {
		return core.Saved{}, false
	}
	return found[0], true
}
