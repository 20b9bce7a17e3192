package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
)

// The defaults of RequestsConfig.
const (
	DefaultReadMax    = 2 * time.Second
	DefaultControlMax = 5 * time.Second
	DefaultUnknownFor = time.Second
	unknownLook       = 50 * time.Millisecond // between two looks for an id
)

// RequestsConfig is how requests about tasks are taken. Zero fields take their defaults.
type RequestsConfig struct {
	Partitions  int                                 // required
	PartitionOf func(id string, partitions int) int // required
	ReadMax     time.Duration                       // how long the state store may take
	ControlMax  time.Duration                       // how long the control stream may take
	// UnknownFor is how long an id must be unknown before the request is refused: a
	// submission that was accepted is a task some milliseconds later.
	UnknownFor time.Duration
	// KnownType reports whether a plan of that type is stored; nil: every type is known.
	KnownType func(ctx context.Context, taskType string) (bool, error)
	// CheckSignal says whether a signal's payload fits the schema of its step, in that version of the plan; nil: the owner
	// alone looks.
	CheckSignal func(taskType string, version int64, step string, payload []byte) error
}

// Requests takes requests of clients and operators about tasks, for every door. It is safe
// for concurrent use.
type Requests struct {
	cfg      RequestsConfig
	reader   TaskReader
	controls Controls
	log      *slog.Logger
}

// TaskReader reads single tasks from the state store.
type TaskReader interface {
	// Get returns the task of that id. Error: core.ErrNotFound.
	Get(ctx context.Context, partition int, id string) (core.View, error)
}

// Asked is what became of a request about a task that was taken.
type Asked struct {
	Partition int
	Seq       uint64     // position in the control stream
	State     core.State // of the task when it was looked at; empty: not known, or no task
	Outcome   string     // what will be, in words
}

// NewRequests makes it. Error: a configuration that cannot work.
func NewRequests(cfg RequestsConfig, reader TaskReader, controls Controls, log *slog.Logger) (*Requests, error) {
	cfg.ReadMax = cmp.Or(cfg.ReadMax, DefaultReadMax)
	cfg.ControlMax = cmp.Or(cfg.ControlMax, DefaultControlMax)
	cfg.UnknownFor = cmp.Or(cfg.UnknownFor, DefaultUnknownFor)
	switch {
	case cfg.Partitions < 1 || cfg.PartitionOf == nil:
		return nil, errors.New("api: Partitions and PartitionOf of requests about tasks are required")
	case cfg.ReadMax < 1 || cfg.ControlMax < 1 || cfg.UnknownFor < 1:
		return nil, fmt.Errorf("api: ReadMax, ControlMax and UnknownFor are %v, %v and %v, want more than 0", cfg.ReadMax, cfg.ControlMax, cfg.UnknownFor)
	case reader == nil || controls == nil || log == nil:
		return nil, errors.New("api: requests about tasks need a reader, controls and a log")
	}
	return &Requests{cfg: cfg, reader: reader, controls: controls, log: log}, nil
}

// PayloadSizeError is what RequestsConfig.CheckSignal says of a payload that is larger than the result of its step may be.
type PayloadSizeError struct {
	Step       string
	Bytes, Max int
}

// Error names step, size and limit.
func (e *PayloadSizeError) Error() string {
	return fmt.Sprintf("payload of signal %s has %d bytes, the limit is %d", e.Step, e.Bytes, e.Max)
}

// ActorAt is who the journal names: what the request claims, cleaned and cut, and the
// door it came through. Only what follows the last @ is Duly's own word.
func ActorAt(claimed, door string) string {
	claimed = core.CleanActor(claimed)
	if claimed == "" {
		claimed = "unnamed"
	}
	return claimed + "@" + door
}

// Ask looks at the task and stores the request, unless it is known to change nothing.
// Between the look and the owner's decision the task may go on: the owner has the last
// word, and the journal tells it. It waits for store and stream, for ReadMax,
// UnknownFor and ControlMax together at most.
func (a *Requests) Ask(ctx context.Context, c core.Control) (Asked, *ingest.Refusal) {
	if bad := ingest.CheckTask(c.Type, c.ID); bad != nil {
		return Asked{}, bad
	}
	if c.EvenIfUnknown && c.Kind != core.EventCancel {
		return Asked{}, ingest.Refuse(400, ingest.CauseQuery, "even_if_unknown goes with a cancel only")
	}
	asked := Asked{Partition: a.cfg.PartitionOf(c.ID, a.cfg.Partitions)}
	view, err := a.look(ctx, &c, asked.Partition)
	switch {
	case err == nil && view.Type != c.Type:
		return Asked{}, otherType(&c, &view)
	case err == nil:
		outcome, bad := foresee(&c, &view)
		if bad != nil {
			return Asked{}, bad
		}
		if c.Kind == core.EventSignal && len(c.Result) > 0 && a.cfg.CheckSignal != nil {
			err := a.cfg.CheckSignal(c.Type, view.PlanVersion, c.Step, c.Result)
			if large, ok := errors.AsType[*PayloadSizeError](err); ok {
				return Asked{}, ingest.Refuse(413, ingest.CauseBody, "%v", large)
			}
			if err != nil {
				return Asked{}, ingest.Refuse(422, ingest.CauseInputSchema, "the payload does not fit the schema of step %s: %v", core.QuoteShort(c.Step), err)
			}
		}
		asked.State, asked.Outcome = view.State, outcome
		if c.IfSeq == 0 && (c.Kind == core.EventEdit || c.Kind == core.EventAccept) {
			c.IfSeq = view.Seq // when it is read again after a crash, it finds another row
		}
	case errors.Is(err, core.ErrNotFound) && !c.EvenIfUnknown:
		return Asked{}, a.unknown(ctx, &c)
	case errors.Is(err, core.ErrNotFound):
		if bad := a.typeUnknown(ctx, c.Type); bad != nil {
			return Asked{}, bad
		}
		asked.Outcome = "no task has this id yet; it becomes a cancelled one, and a submission under it is refused"
	case !c.EvenIfUnknown:
		return Asked{}, a.unread(&c, err)
	default:
		asked.Outcome = "what the task did is undone; the state store could not be read, so its state is not known"
	}
	seq, bad := a.store(ctx, &c, asked.Partition)
	if bad != nil {
		return Asked{}, bad
	}
	asked.Seq = seq
	return asked, nil
}

// store stores a request in the control stream and gives its position.
func (a *Requests) store(ctx context.Context, c *core.Control, partition int) (uint64, *ingest.Refusal) {
	ctx, stop := context.WithTimeout(ctx, a.cfg.ControlMax)
	defer stop()
	seq, err := a.controls.Ask(ctx, partition, *c)
	if err != nil {
		a.log.Warn("a request about a task may not be stored", "task", c.ID, "error", err)
		return 0, ingest.Refuse(503, ingest.CauseStore, "the request about task %s may not be stored, ask again", core.QuoteShort(c.ID)).After(ingest.RetryLog)
	}
	return seq, nil
}

// otherType refuses a request that names a task by another type than its own.
func otherType(c *core.Control, view *core.View) *ingest.Refusal {
	return ingest.Refuse(409, ingest.CauseOtherType, "id %s is a task of type %s, not %s", core.QuoteShort(c.ID), core.QuoteShort(view.Type), core.QuoteShort(c.Type))
}

// unread says that the state store did not answer.
func (a *Requests) unread(c *core.Control, err error) *ingest.Refusal {
	a.log.Warn("a request about a task could not be served", "task", c.ID, "error", err)
	return ingest.Refuse(503, ingest.CauseStore, "the state store could not be read, so whether task %s is there is not known; ask again", core.QuoteShort(c.ID)).After(ingest.RetryLog)
}

// look reads the task. An id that may be on its way to become one is looked for a while,
// unless it does not matter.
func (a *Requests) look(ctx context.Context, c *core.Control, partition int) (core.View, error) {
	until := time.Now().Add(a.cfg.UnknownFor)
	for {
		read, done := context.WithTimeout(ctx, a.cfg.ReadMax)
		view, err := a.reader.Get(read, partition, c.ID)
		done()
		if !errors.Is(err, core.ErrNotFound) || c.EvenIfUnknown || !time.Now().Before(until) {
			return view, err
		}
		if pause.For(ctx, min(unknownLook, a.cfg.UnknownFor)) != nil {
			return view, err
		}
	}
}

// unknown says that there is no such task, and what else could be meant.
func (a *Requests) unknown(ctx context.Context, c *core.Control) *ingest.Refusal {
	if bad := a.typeUnknown(ctx, c.Type); bad != nil && bad.Code == 404 {
		return bad
	}
	r := notFound(c.Type, c.ID)
	if c.Kind == core.EventCancel {
		r.Description += "; to refuse a submission that has yet to come, ask with even_if_unknown (duly cancel --even-if-unknown)"
	}
	return r
}

func (a *Requests) typeUnknown(ctx context.Context, taskType string) *ingest.Refusal {
	if a.cfg.KnownType == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, a.cfg.ReadMax)
	defer stop()
	switch known, err := a.cfg.KnownType(ctx, taskType); {
	case err != nil:
		return ingest.Refuse(503, ingest.CausePlans, "the plans could not be read: %v", err).After(ingest.RetryLog)
	case !known:
		return ingest.Refuse(404, ingest.CauseTypeUnknown, "type %s is unknown: no plan of that name is stored", core.QuoteShort(taskType))
	}
	return nil
}

// foresee says what a request will lead to for the task as it was seen, or refuses what
// would change nothing, with the state and what is possible in it. What is asked for again after it was done is no error.
func foresee(c *core.Control, view *core.View) (outcome string, bad *ingest.Refusal) {
	state := view.State
	no := func(why string) (string, *ingest.Refusal) {
		return "", ingest.Refuse(409, ingest.CauseState, "task %s is %s: %s; %s", core.QuoteShort(c.ID), state, why, possible(view))
	}
	if c.IfSeq != 0 && view.Seq != 0 && c.IfSeq != view.Seq {
		return no(fmt.Sprintf("it is at journal row %d, and the request is about row %d, so it has changed since: look at it again", view.Seq, c.IfSeq))
	}
	open := state == core.StatePending || state == core.StateProcessing
	// stuck reports whether a task in error cannot go on from where it stopped.
	stuck := func(word string) bool { return len(view.Possible) > 0 && !slices.Contains(view.Possible, word) }
	switch c.Kind {
	case core.EventCancel, core.EventUndo:
		switch {
		case state == core.StateUndone && c.Step != "":
			return "step " + c.Step + " is undone once more", nil
		case c.Step != "":
			return no("only the undo of a task that is undone names a step")
		case state == core.StateUndone:
			return "it is undone already; nothing changes", nil
		case state == core.StateUndoing:
			return "it is being undone already", nil
		case state == core.StateProcessed && c.Kind == core.EventCancel:
			return no("it is too late to cancel; ask for an undo to take back what it did")
		}
		return "what it did is undone, unless its last step ends first", nil
	case core.EventResubmit, core.EventEdit:
		if state != core.StateError && state != core.StateUndone {
			return no("only a task in error or undone can be resubmitted")
		}
		if stuck("resubmit") {
			return no("it cannot start again from where it stopped")
		}
		return startsAgain(c, view), nil
	case core.EventAccept:
		if state != core.StateError {
			return no("only a task in error has a step to accept")
		}
		if stuck("accept") {
			return no("it cannot go on from where it stopped")
		}
		return "the step it stopped at counts as done, and it goes on", nil
	case core.EventResolve:
		if state != core.StateError {
			return no("only a task in error can be resolved")
		}
		return "it ends as " + string(c.As), nil
	case core.EventExtend:
		if !open {
			return no("only a task that is pending or processing has a deadline to extend")
		}
		return "it has until " + timeText(c.Until), nil
	case core.EventSignal:
		if !open {
			return no("the signal for step " + core.QuoteShort(c.Step) + " comes too late")
		}
		return foreseeSignal(c, view, no)
	}
	if c.Kind == core.EventMigrate {
		if !open && state != core.StateError {
			return no("only a task that is pending, processing or in error can be moved to another version")
		}
		if view.PlanVersion == c.Version {
			return fmt.Sprintf("it is of version %d already; nothing changes", c.Version), nil
		}
		return fmt.Sprintf("it goes on by version %d, if every step that has begun is the same there", c.Version), nil
	}
	return no("it cannot be asked that")
}

// foreseeSignal is foresee for a signal of a task that has not ended.
func foreseeSignal(c *core.Control, view *core.View, no func(string) (string, *ingest.Refusal)) (string, *ingest.Refusal) {
	i := slices.IndexFunc(view.Steps, func(s core.StepView) bool { return s.Name == c.Step })
	if i < 0 {
		return no("its plan has no step " + core.QuoteShort(c.Step) + signalsOf(view))
	}
	switch status := view.Steps[i].Status; {
	case view.Steps[i].Kind != core.SignalStep:
		return no("step " + c.Step + " waits for no signal" + signalsOf(view))
	case status == core.SignalledWord:
		return no("step " + c.Step + " has had its signal, which is kept until the step begins")
	case status == core.StepDone.String():
		return no("step " + c.Step + " has had its signal: it is done")
	case status == core.StepFailed.String():
		return no("step " + c.Step + " has failed: the signal comes too late")
	case status != core.StepRunning.String() && status != core.StepWaiting.String():
		return no("step " + c.Step + " is " + status + ": the signal comes too late")
	case c.Ask == "" && view.Steps[i].AskNeeded:
		return "", ingest.Refuse(428, ingest.CauseState, "say which ask of step %s it answers: ask, as the task shows it of the step (duly get)", c.Step)
	case c.Ask != "" && c.Ask != view.Steps[i].Ask:
		return no("the answer is for another ask of step " + c.Step + ": its input, its round or its plan is another now; look at it again")
	case status == core.StepWaiting.String():
		return "it is kept until step " + c.Step + " begins", nil
	case len(c.Result) == 0:
		return "step " + c.Step + " is refused", nil
	}
	return "step " + c.Step + " is done", nil
}

// signalsOf names the steps of a task that take a signal.
func signalsOf(view *core.View) string {
	var all []string
	for i := range view.Steps {
		if s := &view.Steps[i]; s.Kind == core.SignalStep {
			all = append(all, s.Name)
		}
	}
	if len(all) == 0 {
		return ", and no other step of it takes a signal"
	}
	return ", signals go to " + core.ShortText(strings.Join(all, ", "), 300)
}

// startsAgain is what a resubmit or an edit leads to.
func startsAgain(c *core.Control, view *core.View) string {
	switch {
	case c.Kind == core.EventResubmit:
		return "it starts again"
	case view.State == core.StateUndone:
		return "it starts again with the new input, from its first step"
	}
	return "it starts again with the new input at the step it stopped at; if an earlier try of that step had an effect, its service may answer by the same key what it did by the old input"
}

// possible says what may be asked of a task.
func possible(view *core.View) string {
	if len(view.Possible) == 0 {
		return "nothing else can be asked of it now"
	}
	return "possible now: " + strings.Join(view.Possible, ", ")
}
