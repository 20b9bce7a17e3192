package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/wire"
)

// TestHappened: what each kind of journal row is to those who watch. What ends a task or refuses it is in the event stream.
//
// covers: L5
func TestHappened(t *testing.T) {
	for _, x := range []struct {
		r    core.Record
		want string
	}{
		{core.Record{Kind: core.KindSubmitted, State: core.StateProcessing, Step: -1, Next: 0}, "[begun]"},
		{core.Record{Kind: core.KindSubmitted, State: core.StatePending, Step: -1, Next: -1}, "[]"},
		{core.Record{Kind: core.KindStarted, State: core.StateProcessing, Step: -1, Next: 0}, "[begun]"},
		{core.Record{Kind: core.KindStarted, State: core.StateProcessing, Step: 0, Next: 0}, "[]"},
		{core.Record{Kind: core.KindDone, State: core.StateProcessing, Step: 0, Next: 1}, "[step_passed]"},
		{core.Record{Kind: core.KindDone, State: core.StateProcessed, Step: 0, Next: -1}, "[step_passed]"},
		{core.Record{Kind: core.KindAccepted, State: core.StateProcessing, Step: 0, Next: 1}, "[step_passed]"},
		{core.Record{Kind: core.KindFailed, State: core.StateProcessing, Step: 0, Next: -1}, "[step_failed]"},
		{core.Record{Kind: core.KindRefused, State: core.StateUndoing, Step: 1, Next: 0, Undo: true}, "[step_failed undo_begun]"},
		{core.Record{Kind: core.KindOverdue, State: core.StateError, Step: 1, Next: -1}, "[step_failed]"},
		{core.Record{Kind: core.KindCancelled, State: core.StateUndoing, Step: -1, Next: 0, Undo: true}, "[undo_begun]"},
		{core.Record{Kind: core.KindCancelled, State: core.StateUndone, Step: -1, Next: -1}, "[]"},
		{core.Record{Kind: core.KindUndone, State: core.StateUndoing, Step: 1, Next: 0, Undo: true}, "[step_undone]"},
		{core.Record{Kind: core.KindUndone, State: core.StateUndone, Step: 0, Next: -1}, "[step_undone]"},
		{core.Record{Kind: core.KindUndoFailed, State: core.StateUndoing, Step: 1, Next: -1}, "[undo_failed]"},
		{core.Record{Kind: core.KindUndoGaveUp, State: core.StateError, Step: 1, Next: -1}, "[undo_failed]"},
		{core.Record{Kind: core.KindResubmitted, State: core.StateProcessing, Step: 1, Next: 1}, "[resubmitted]"},
		{core.Record{Kind: core.KindAsked, State: core.StateProcessing, Step: -1, Next: -1}, "[]"},
	} {
		if got := fmt.Sprint(happened(&x.r)); got != x.want {
			t.Errorf("%s, then %s: %s, want %s", x.r.Kind, x.r.State, got, x.want)
		}
	}
	words := map[string]string{ // of a row after which the task is processing, and one after which it is being undone
		"submitted": "[] []", "started": "[] []", "done": "[step_passed] [step_passed undo_begun]", "refused": "[step_failed] [step_failed undo_begun]",
		"failed": "[step_failed] [step_failed undo_begun]", "overdue": "[step_failed] [step_failed undo_begun]", "unserved": "[] [undo_begun]",
		"undone": "[step_undone] [step_undone]", "undo_refused": "[undo_failed] [undo_failed]", "undo_failed": "[undo_failed] [undo_failed]",
		"undo_overdue": "[undo_failed] [undo_failed]", "undo_unserved": "[] []", "undo_gave_up": "[undo_failed] [undo_failed]", "expired": "[] [undo_begun]",
		"cancelled": "[] [undo_begun]", "undo_asked": "[] [undo_begun]", "resubmitted": "[resubmitted] [resubmitted]", "accepted": "[step_passed] [step_passed]",
		"resolved": "[] []", "extended": "[] []", "poisoned": "[] []", "asked": "[] []", "skipped": "[] []", "signalled": "[] []", "result": "[] []",
		"migrated": "[] []", "late": "[] []", "undo_late": "[step_undone] [step_undone]", "probed": "[] [undo_begun]", "went_back": "[] []",
	}
	for _, kind := range core.Kinds() {
		on, back := happened(&core.Record{Kind: kind, State: core.StateProcessing, Step: -1, Next: -1}), happened(&core.Record{Kind: kind, State: core.StateUndoing, Step: -1, Next: -1})
		if got := fmt.Sprint(on, " ", back); got != words[string(kind)] {
			t.Errorf("%s: %s, want %s", kind, got, words[string(kind)])
		}
	}
}

// TestNobodyWatches: while no one does, and again when it has not been said for a time, a commit hands nothing over and
// allocates nothing for it.
func TestNobodyWatches(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	w := newWatched(nil, func() time.Time { return now })
	if n := testing.AllocsPerRun(100, func() {
		if w.begin() != nil {
			t.Fatal("someone watches")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	w.wanted(wire.Wanted{Type: "order"})
	if w.begin() == nil {
		t.Error("no one watches, though someone has said so")
	}
	now = now.Add(wantedFor)
	if w.begin() != nil {
		t.Error("someone watches who has not said so for a time")
	}
	if n := testing.AllocsPerRun(100, func() { w.begin() }); n != 0 {
		t.Errorf("%v allocations afterwards", n)
	}
}

// TestWatchedIsBounded: of many wishes only some are kept, and then everything is told; of many steps only some are, and
// how many were left out is counted. A step that no wish is about is none of them.
func TestWatchedIsBounded(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	w := newWatched(nil, func() time.Time { return now })
	w.limit.SetBurst(10)
	w.limit.SetLimit(0)
	write := core.TaskWrite{Task: &core.Task{ID: "o-1", Type: "order", Labels: []core.Label{{Key: "a", Value: "b"}}}, Records: []core.Record{{Kind: core.KindDone, State: core.StateProcessing, Step: 0, Next: 1}}}
	tell := func(times int) *telling {
		to := w.begin()
		for range times {
			to.tell(nil, &write)
		}
		return to
	}
	for _, is := range []wire.Wanted{{Type: "trip"}, {Type: "order", ID: "o-2"}, {Label: "a=c"}} {
		w.wanted(is)
	}
	if to := tell(1); len(to.byType) != 0 {
		t.Errorf("told what no one wants: %+v", to.byType)
	}
	w.wanted(wire.Wanted{Label: "a=b"})
	if to := tell(12); len(to.byType["order"].events) != 10 || to.byType["order"].lost != 2 {
		t.Errorf("told %+v", to.byType["order"])
	}
	for i := range 2 * wantedMost {
		w.wanted(wire.Wanted{ID: fmt.Sprint("x-", i)})
	}
	if to := w.begin(); len(w.want) != wantedMost || len(to.want) != 1 || to.want[0] != (wire.Wanted{}) {
		t.Errorf("%d wishes are kept, of which %d count", len(w.want), len(to.want))
	}
}

// watching collects what a follower is told.
type watching struct {
	mu   sync.Mutex
	all  []operate.Event
	stop func() error
}

func watch(t *testing.T, n *Node, after string, f operate.EventFilter) *watching {
	t.Helper()
	w := &watching{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- eventSource{n.conn}.Follow(ctx, after, f, func(e operate.Event) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.all = append(w.all, e)
			return nil
		})
	}()
	w.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = w.stop() })
	return w
}

// of is what was told of a task, in order.
func (w *watching) of(id string) (words []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.all {
		if e.Task == id {
			word := string(e.What)
			if e.Step != "" {
				word += " " + e.Step
			}
			if e.What == operate.EventEnded {
				word += " " + string(e.Status)
			}
			words = append(words, word)
		}
	}
	return words
}

// tells waits until a follower has been told so much of a task: the steps in order, and the ends in order. An end, which the
// stream has, may be told before the last steps.
func (w *watching) tells(t *testing.T, id, want string) {
	t.Helper()
	inOrder := func(said string) string {
		words := strings.Fields(strings.Trim(said, "[]"))
		var steps, ends []string
		for i := 0; i < len(words); i++ {
			if words[i] != "ended" {
				steps = append(steps, words[i])
				continue
			}
			for ; i+1 < len(words) && words[i] != "processed" && words[i] != "error" && words[i] != "undone"; i++ {
				ends = append(ends, words[i])
			}
			ends = append(ends, words[i])
		}
		return fmt.Sprint(steps, ends)
	}
	for until := time.Now().Add(patience); inOrder(fmt.Sprint(w.of(id))) != inOrder(want); {
		if time.Now().After(until) {
			t.Fatalf("of %s %v is told, want %s", id, w.of(id), want)
		}
		_ = pause.For(t.Context(), 10*time.Millisecond)
	}
}

// TestEventsTellSteps: who follows hears of each step as it passes or fails, of undos and of ends, in the order of the
// task's journal; a filter selects, and what is kept is told again after a place.
//
// covers: OP7
func TestEventsTellSteps(t *testing.T) {
	t.Parallel()
	b := &bank{refuses: func(p parcel) bool { return p.N == 1 }}
	n := repairing(t, "sqlite://"+filepath.Join(t.TempDir(), "duly.db"), 3, b)
	js, err := n.conn.NATS().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	followers := func() int {
		info, err := js.StreamInfo("DULY_EVENTS")
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Consumers
	}
	before := followers()
	all := watch(t, n, "", operate.EventFilter{})
	passed := watch(t, n, "", operate.EventFilter{What: operate.EventStepPassed, Type: "parcel"})
	ends := watch(t, n, "", operate.EventFilter{What: operate.EventEnded, Type: "parcel"})
	none := watch(t, n, "", operate.EventFilter{Label: "a=b"})
	until(t, "the followers have begun: only then what happens is told", func() bool { return followers() >= before+4 })
	b.mended.Store(true)
	repaired(t, n, 0)
	want := map[string]string{
		"p-0": "[resubmitted pay step_passed pay ended processed]", "p-1": "[resubmitted pay step_failed pay ended pay error]", "p-2": "[resubmitted pay step_passed pay ended processed]",
	}
	for id, words := range want {
		all.tells(t, id, words)
		if id == "p-1" {
			ends.tells(t, id, "[ended pay error]")
			continue
		}
		passed.tells(t, id, "[step_passed pay]")
		ends.tells(t, id, "[ended processed]")
	}
	s := n.repairs(nil)
	p, err := s.Preview(t.Context(), repairer, operate.Selection{IDs: []operate.TaskRef{{Type: "parcel", ID: "p-0"}}}, operate.Request{Action: operate.ActionUndo})
	if err == nil {
		_, err = s.Start(t.Context(), repairer, p.Token, 0, 0, "it was the wrong parcel", p.Tasks)
	}
	if err != nil {
		t.Fatal(err)
	}
	all.tells(t, "p-0", "[resubmitted pay step_passed pay ended processed undo_begun step_undone pay step_undone reserve ended undone]")
	if got := none.of("p-0"); len(got) != 0 {
		t.Errorf("a label that it has not: %v", got)
	}
	ends.mu.Lock()
	first := ends.all[0]
	ends.mu.Unlock()
	again := watch(t, n, first.ID, operate.EventFilter{Type: "parcel"})
	for id, words := range map[string]string{"p-0": "[ended undone]", "p-1": "[ended pay error]", "p-2": "[ended processed]"} {
		if id == first.Task && id != "p-0" {
			words = "[]"
		} else if id == "p-0" && id != first.Task {
			words = "[ended processed ended undone]"
		}
		again.tells(t, id, words)
	}
	err = eventSource{n.conn}.Follow(t.Context(), "999999.0", operate.EventFilter{}, func(operate.Event) error { return nil })
	if bad, ok := errors.AsType[*operate.Refusal](err); !ok || bad.Code != 400 {
		t.Errorf("after an event that there is not: %v", err)
	}
}
