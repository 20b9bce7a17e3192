package node

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/scheduler"
)

// What bounds the telling of steps to those who watch.
const (
	wantedFor  = 15 * time.Second // after it was last said what someone watches, no one does any more
	wantedMost = 256              // different wishes that a node keeps; with more it tells everything
	toldRate   = 5000             // steps a second that a node tells; of more it tells how many it left out
)

// watched is what those who watch want to hear of the steps that this node commits. While no one does, a commit costs one
// look at a variable. It is safe for concurrent use.
type watched struct {
	conn  *natsbus.Conn
	now   func() time.Time
	limit *rate.Limiter
	until atomic.Int64 // someone watches, as a time of Unix in nanoseconds

	mu   sync.Mutex
	want map[wire.Wanted]time.Time // until when
	all  time.Time                 // until when everything is wanted
}

func newWatched(conn *natsbus.Conn, now func() time.Time) *watched {
	return &watched{conn: conn, now: now, limit: rate.NewLimiter(toldRate, toldRate), want: map[wire.Wanted]time.Time{}}
}

// tellSteps has a scheduler tell its steps while someone watches, until end is called. Without the right to hear who
// watches, no one is told.
func (n *Node) tellSteps(cfg *scheduler.RunConfig) (end func()) {
	w := newWatched(n.conn, n.clock.time)
	sub, err := n.conn.OnWanted(w.wanted)
	if err != nil {
		n.log.Warn("steps are not told to those who watch", "error", err)
		return func() {}
	}
	remove := cfg.Observers.Add(w)
	return func() { sub.Stop(); remove() }
}

// wanted takes what someone watches.
func (w *watched) wanted(is wire.Wanted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	for one, until := range w.want {
		if !now.Before(until) {
			delete(w.want, one)
		}
	}
	until := now.Add(wantedFor)
	if _, known := w.want[is]; known || len(w.want) < wantedMost {
		w.want[is] = until
	} else {
		w.all = until
	}
	w.until.Store(until.UnixNano())
}

// Name implements scheduler.Observer.
func (w *watched) Name() string { return "steps" }

// Committed implements scheduler.Observer.
func (w *watched) Committed(c *scheduler.Committed) error {
	t := w.begin()
	if t == nil {
		return nil
	}
	for plan, one := range c.All() {
		t.tell(plan, one)
	}
	t.end()
	return nil
}

// begin is what is to be told of a commit; nil: no one watches.
func (w *watched) begin() *telling {
	until := w.until.Load()
	if until == 0 {
		return nil
	}
	now := w.now()
	if now.UnixNano() >= until {
		w.until.CompareAndSwap(until, 0)
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &telling{w: w, byType: map[string]*told{}}
	for one, until := range w.want {
		if now.Before(until) {
			t.want = append(t.want, one)
		}
	}
	if now.Before(w.all) {
		t.want = []wire.Wanted{{}}
	}
	return t
}

// telling is what is told of one commit.
type telling struct {
	w      *watched
	want   []wire.Wanted
	byType map[string]*told
}

// told is what is told of tasks of one type.
type told struct {
	events []wire.StepEvent
	lost   int // more than are told at a time
}

// tell takes what a commit wrote of one task. plan may be nil.
func (t *telling) tell(plan *core.Plan, w *core.TaskWrite) {
	if !slices.ContainsFunc(t.want, func(is wire.Wanted) bool {
		return (is.Type == "" || is.Type == w.Task.Type) && (is.ID == "" || is.ID == w.Task.ID) &&
			(is.Label == "" || slices.ContainsFunc(w.Task.Labels, func(l core.Label) bool { return l.String() == is.Label }))
	}) {
		return
	}
	of := t.byType[w.Task.Type]
	if of == nil {
		of = &told{}
		t.byType[w.Task.Type] = of
	}
	for i := range w.Records {
		r := &w.Records[i]
		for _, what := range happened(r) {
			if !t.w.limit.Allow() {
				of.lost++
				continue
			}
			e := wire.StepEvent{Partition: w.Task.Partition, ID: w.Task.ID, Labels: core.FormatLabels(w.Task.Labels), What: string(what), State: r.State, Seq: r.Seq, At: r.At}
			if what != operate.EventUndoBegun {
				e.Attempt, e.Error = r.Attempt, r.Error
				if plan != nil && r.Step >= 0 && r.Step < len(plan.Steps) {
					e.Step = plan.Steps[r.Step].Name
				}
			}
			of.events = append(of.events, e)
		}
	}
}

// end publishes what was told.
func (t *telling) end() {
	for taskType, of := range t.byType {
		for len(of.events) > 0 || of.lost > 0 {
			n := min(len(of.events), wire.StepsMax)
			t.w.conn.PublishSteps(taskType, of.events[:n], of.lost)
			of.events, of.lost = of.events[n:], 0
		}
	}
}

// happened is what a journal row is to those who watch. Ends and refusals are told by the event stream, which keeps them.
func happened(r *core.Record) []operate.EventWhat {
	var all []operate.EventWhat
	switch r.Kind {
	case core.KindSubmitted, core.KindStarted:
		if r.State == core.StateProcessing && r.Step < 0 && r.Next >= 0 {
			all = append(all, operate.EventBegun)
		}
	case core.KindDone, core.KindAccepted:
		all = append(all, operate.EventStepPassed)
	case core.KindProbed:
		if r.StepStatus == core.StepDone {
			all = append(all, operate.EventStepPassed)
		}
	case core.KindRefused, core.KindFailed, core.KindOverdue:
		all = append(all, operate.EventStepFailed)
	case core.KindUndone, core.KindUndoLate:
		all = append(all, operate.EventStepUndone)
	case core.KindUndoRefused, core.KindUndoFailed, core.KindUndoOverdue, core.KindUndoGaveUp:
		all = append(all, operate.EventUndoFailed)
	case core.KindResubmitted:
		all = append(all, operate.EventResubmitted)
	}
	switch r.Kind {
	case core.KindDone, core.KindRefused, core.KindFailed, core.KindOverdue, core.KindUnserved, core.KindExpired, core.KindCancelled, core.KindUndoAsked, core.KindProbed:
		if r.State == core.StateUndoing {
			all = append(all, operate.EventUndoBegun)
		}
	}
	return all
}
