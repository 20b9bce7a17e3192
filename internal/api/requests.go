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
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/taskform"
)

// The defaults of RequestsConfig.
const (
	defaultReadMax    = 2 * time.Second
	defaultControlMax = 5 * time.Second
	defaultUnknownFor = time.Second
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
	Now        func() time.Time // time.Now, unless said
	// Unread reports whether a submission to a partition from before a time is not read yet; nil: all are.
	Unread func(ctx context.Context, partition int, before core.Instant) (bool, error)
	// KnownType reports whether a plan of that type is stored; nil: every type is known.
	KnownType func(ctx context.Context, taskType string) (bool, error)
	// Plan reads a version of a plan, 0 for the newest; nil where there is none. Without it the owner alone looks.
	Plan func(ctx context.Context, taskType string, version int64) (*core.Plan, error)
	// CheckInput and CheckSignal say whether an input fits the schema of a plan that has one, and an answer that of its step;
	// nil: the owner alone looks.
	CheckInput  func(plan *core.Plan, input []byte) error
	CheckSignal func(step *core.Step, payload []byte) error
	Desk        *operate.Desk // writes down what operators ask
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
	cfg.ReadMax = cmp.Or(cfg.ReadMax, defaultReadMax)
	cfg.ControlMax = cmp.Or(cfg.ControlMax, defaultControlMax)
	cfg.UnknownFor = cmp.Or(cfg.UnknownFor, defaultUnknownFor)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
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

// ActorAt is who the journal names: what the request claims, cleaned and cut, and the
// door it came through. Only what follows the last @ is Duly's own word.
func ActorAt(claimed, door string) string {
	claimed = core.CleanActor(claimed)
	if claimed == "" {
		claimed = core.Unnamed
	}
	return claimed + "@" + door
}

// Ask looks at the task and stores the request, unless it is known to change nothing.
// Between the look and the owner's decision the task may go on: the owner has the last
// word, and the journal tells it. It waits for store and stream, for ReadMax,
// twice UnknownFor and ControlMax together at most.
func (a *Requests) Ask(ctx context.Context, c core.Control) (Asked, *ingest.Refusal) {
	return a.ask(ctx, c, nil)
}

// AskAs is Ask of an operator: what is stored is in the audit trail first.
func (a *Requests) AskAs(ctx context.Context, by operate.Actor, c core.Control) (Asked, *ingest.Refusal) {
	return a.ask(ctx, c, &by)
}

func (a *Requests) ask(ctx context.Context, c core.Control, by *operate.Actor) (Asked, *ingest.Refusal) {
	if bad := ingest.CheckTask(c.Type, c.ID); bad != nil {
		return Asked{}, bad
	}
	if c.EvenIfUnknown && c.Kind != core.EventCancel {
		return Asked{}, ingest.Refuse(400, ingest.CauseBody, "%s", say.Of("refuse.even-if-unknown"))
	}
	if bad := requestOf(&c).Check(a.cfg.Now()); bad != nil {
		return Asked{}, ingest.Refuse(bad.Code, ingest.CauseOf(bad.Code), "%s", bad.Detail)
	}
	own := scopeOf(ctx)
	if own.narrowed() {
		if c.EvenIfUnknown && own.ids == "" { // it would be others' id that it takes
			return Asked{}, ingest.Refuse(403, ingest.CauseForbidden, "%s", say.Of("refuse.blind-cancel", "label", operate.IDsLabel))
		}
		if !strings.HasPrefix(c.ID, own.ids) {
			return Asked{}, notFound(c.Type, c.ID)
		}
	}
	taken := Asked{Partition: a.cfg.PartitionOf(c.ID, a.cfg.Partitions)}
	view, err := a.look(ctx, &c, taken.Partition)
	switch {
	case err == nil && !own.knows(c.ID, view.Labels):
		return Asked{}, notFound(c.Type, c.ID)
	case err == nil && view.Type != c.Type:
		return Asked{}, otherType(&c, &view)
	case err == nil:
		outcome, bad := a.decide(ctx, &c, &view)
		if bad != nil {
			return Asked{}, bad
		}
		taken.State, taken.Outcome = view.State, outcome
		if c.IfSeq == 0 && (c.Kind == core.EventEdit || c.Kind == core.EventAccept) {
			c.IfSeq = view.Seq // when it is read again after a crash, it finds another row
		}
	case errors.Is(err, core.ErrNotFound) && !c.EvenIfUnknown:
		return Asked{}, a.unknown(ctx, &c)
	case errors.Is(err, errUndecided):
		return Asked{}, ingest.Refuse(503, ingest.CauseUndecided, "task %s: %v; ask again", core.QuoteShort(c.ID), errUndecided).After(ingest.RetryLog)
	case errors.Is(err, core.ErrNotFound):
		if bad := a.typeUnknown(ctx, c.Type); bad != nil {
			return Asked{}, bad
		}
		taken.Outcome = operate.Asked + say.Of("ask.unknown")
	case !c.EvenIfUnknown || own.narrowed(): // whose it is has to be known
		return Asked{}, a.unread(&c, err)
	default:
		taken.Outcome = operate.Asked + say.Of("ask.cancel-blind")
	}
	var bad *ingest.Refusal
	send := func(ctx context.Context) (string, error) {
		if taken.Seq, bad = a.store(ctx, &c, taken.Partition); bad != nil {
			return "", asRefusal(bad)
		}
		return placeOf(taken.Partition, taken.Seq), nil
	}
	if by == nil {
		_, _ = send(ctx) // a service's own requests are not in the trail, which they would fill
		return taken, bad
	}
	if own, refused := errors.AsType[*operate.Refusal](a.cfg.Desk.Ask(ctx, actBy(*by, &c, &view), send)); refused && bad == nil {
		bad = ofDoor(own)
	}
	return taken, bad
}

// placeOf is where a request is stored, as answers and the audit trail have it.
func placeOf(partition int, seq uint64) string { return fmt.Sprintf("%d.%d", partition, seq) }

// requestOf is a request as the faces know it.
func requestOf(c *core.Control) *operate.Request {
	r := operate.Request{Action: operate.Action(word(c.Kind)), Reason: c.Reason, Step: c.Step, As: c.As, Found: c.Found, IfSeq: c.IfSeq, Input: c.Input, Result: c.Result, Version: c.Version, Ask: c.Ask}
	if c.Until > 0 {
		r.Until = c.Until.Time()
	}
	return &r
}

// actBy is what the audit trail keeps of a request of an operator.
func actBy(by operate.Actor, c *core.Control, view *core.View) *operate.Act {
	act := actOf(by, operate.TaskRef{Type: c.Type, ID: c.ID}, requestOf(c))
	if view.ID != "" {
		act.Before = beforeJSON{view.State, view.Seq}
	}
	return act
}

// store stores a request in the control stream and gives its position.
func (a *Requests) store(ctx context.Context, c *core.Control, partition int) (uint64, *ingest.Refusal) {
	ctx, stop := context.WithTimeout(ctx, a.cfg.ControlMax)
	defer stop()
	if c.Found != "" && c.Asked == 0 {
		c.Asked = core.InstantOf(a.cfg.Now())
	}
	seq, err := a.controls.Ask(ctx, partition, *c)
	if err != nil {
		a.log.Warn("a request about a task may not be stored", "task", c.ID, "error", err)
		return 0, ingest.Refuse(503, ingest.CauseStore, "%s", say.Of("refuse.request-unknown", "id", core.QuoteShort(c.ID))).After(ingest.RetryLog)
	}
	return seq, nil
}

// otherType refuses a request that names a task by another type than its own.
func otherType(c *core.Control, view *core.View) *ingest.Refusal {
	return ingest.Refuse(409, ingest.CauseOtherType, "%s", say.Of("refuse.other-type", "id", core.QuoteShort(c.ID), "type", core.QuoteShort(view.Type), "want", core.QuoteShort(c.Type)))
}

// unread says that the state store did not answer.
func (a *Requests) unread(c *core.Control, err error) *ingest.Refusal {
	a.log.Warn("a request about a task could not be served", "task", c.ID, "error", err)
	return ingest.Refuse(503, ingest.CauseStore, "%s", say.Of("refuse.task-unknown", "id", core.QuoteShort(c.ID))).After(ingest.RetryLog)
}

var errUndecided = errors.New("what was submitted before is not read yet, so whether it is there is not decided")

// look reads the task. An id that may be on its way to become one is looked for a while,
// unless it does not matter.
func (a *Requests) look(ctx context.Context, c *core.Control, partition int) (core.View, error) {
	came, until := core.InstantOf(a.cfg.Now()), time.Now().Add(a.cfg.UnknownFor)
	for {
		read, done := context.WithTimeout(ctx, a.cfg.ReadMax)
		settled := !time.Now().Before(until) && !a.unreadBefore(read, partition, came)
		view, err := a.reader.Get(read, partition, c.ID)
		done()
		switch {
		case !errors.Is(err, core.ErrNotFound) || c.EvenIfUnknown || settled:
			return view, err
		case !time.Now().Before(until.Add(a.cfg.UnknownFor)):
			return view, errUndecided
		}
		if pause.For(ctx, min(unknownLook, a.cfg.UnknownFor)) != nil {
			return view, err
		}
	}
}

// unreadBefore reports whether there may be a submission to a partition from before a time that is not read yet.
func (a *Requests) unreadBefore(ctx context.Context, partition int, came core.Instant) bool {
	if a.cfg.Unread == nil {
		return false
	}
	unread, err := a.cfg.Unread(ctx, partition, came)
	return unread || err != nil
}

// unknown says that there is no such task, and what else could be meant.
func (a *Requests) unknown(ctx context.Context, c *core.Control) *ingest.Refusal {
	if bad := a.typeUnknown(ctx, c.Type); bad != nil && bad.Code == 404 {
		return bad
	}
	r := notFound(c.Type, c.ID)
	if c.Kind == core.EventCancel {
		r.Description += say.Of("ask.not-submitted", "type", c.Type, "id", c.ID)
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
		return a.plansUnread(err)
	case !known:
		return ingest.Refuse(404, ingest.CauseTypeUnknown, "%s", say.Of("refuse.type-unknown", "type", core.QuoteShort(taskType)))
	}
	return nil
}

// decide says what a request asks for, or refuses it: by what its payload has to fit, and by what the task's owner itself
// would make of it, were it at the row that was read. What is asked for again after it was done is no error.
func (a *Requests) decide(ctx context.Context, c *core.Control, view *core.View) (outcome string, bad *ingest.Refusal) {
	ev, plan := c.Event(core.InstantOf(a.cfg.Now())), view.Plan()
	if view.PlanVersion == 0 && (c.Kind == core.EventResubmit || c.Kind == core.EventEdit) { // it may be known now
		if plan, bad = a.planOf(ctx, c.Type, 0); bad != nil {
			return "", bad
		}
	}
	if c.Kind == core.EventMigrate {
		if ev.Plan, bad = a.planOf(ctx, c.Type, c.Version); bad != nil {
			return "", bad
		}
	}
	if bad := a.fits(&ev, plan, view); bad != nil {
		return "", bad
	}
	played, err := view.Would(plan, &ev)
	switch {
	case !played && !slices.Contains(view.Possible, word(c.Kind)):
		err = errors.New("its journal is not there to decide by")
	case errors.Is(err, core.ErrStale) && view.State != core.StateProcessed && (c.Kind == core.EventCancel || c.Kind == core.EventUndo):
		return operate.Asked + "nothing changes: " + said(err, view), nil
	}
	if err != nil {
		code := 409
		if c.Ask == "" && slices.ContainsFunc(view.Steps, func(s core.StepView) bool { return s.Name == c.Step && s.AskNeeded }) {
			code = 428
		}
		return "", ingest.Refuse(code, ingest.CauseState, "task %s is %s: %s%s; %s", core.QuoteShort(c.ID), view.State, said(err, view), signalsOf(c, view), possible(view))
	}
	if bad := sealed(requestOf(c), view); bad != nil {
		return "", bad
	}
	return operate.Asked + wish(c, view), nil
}

// said is what an error of the core says beside the task and its state.
func said(err error, view *core.View) string {
	_, why, found := strings.Cut(err.Error(), fmt.Sprintf("task %s is %s: ", view.ID, view.State))
	if !found {
		why = err.Error()
	}
	return core.ShortText(why, 1000)
}

// word is what the view of a task calls a request.
func word(kind core.EventKind) string {
	for action, is := range kinds {
		if is == kind {
			return string(action)
		}
	}
	return ""
}

// planOf is a version of a plan, 0 for the newest.
func (a *Requests) planOf(ctx context.Context, taskType string, version int64) (*core.Plan, *ingest.Refusal) {
	if a.cfg.Plan == nil {
		return nil, nil
	}
	ctx, stop := context.WithTimeout(ctx, a.cfg.ReadMax)
	defer stop()
	plan, err := a.cfg.Plan(ctx, taskType, version)
	switch {
	case err != nil:
		return nil, a.plansUnread(err)
	case plan == nil && version != 0:
		return nil, ingest.Refuse(404, ingest.CauseVersionUnknown, "%s", say.Of("refuse.no-version", "name", core.QuoteShort(taskType), "version", version))
	}
	return plan, nil
}

// plansUnread says that the plans could not be read, and of plans that no node here can read, which.
func (a *Requests) plansUnread(err error) *ingest.Refusal {
	a.log.Warn("a request could not be served, because the plans could not be read", "error", err)
	why := say.Of("ask.no-plans")
	if unreadable, some := errors.AsType[core.UnreadablePlans](err); some {
		why += ": " + unreadable.Error()
	}
	return ingest.Refuse(503, ingest.CausePlans, "%s", why).After(ingest.RetryLog)
}

// fits holds what a request brings to the limits and schemas of a plan: see [core.Task.Fits].
func (a *Requests) fits(ev *core.Event, plan *core.Plan, view *core.View) *ingest.Refusal {
	if plan != nil && len(ev.Input) > plan.InputMax {
		return ingest.Refuse(413, ingest.CauseInputSize, "%s", say.Of("refuse.input-size-plan", "bytes", len(ev.Input), "plan", plan.Name, "limit", plan.InputMax))
	}
	if i := view.Answers(plan, ev); i >= 0 && len(ev.Result) > plan.Steps[i].ResultMax {
		step, what := &plan.Steps[i], "result of step"
		if step.Kind == core.SignalStep {
			what = "payload of signal"
		}
		return ingest.Refuse(413, ingest.CauseBody, "%s", say.Of("refuse.result-size", "what", what, "step", step.Name, "bytes", len(ev.Result), "limit", step.ResultMax))
	}
	if err := view.Fits(plan, ev, a.cfg.CheckInput, a.cfg.CheckSignal); err != nil {
		return ingest.Refuse(422, ingest.CauseInputSchema, "%v", err)
	}
	return nil
}

// wish is what a request asks for, in words.
func wish(c *core.Control, view *core.View) string {
	switch c.Kind {
	case core.EventCancel, core.EventUndo:
		if c.Step != "" {
			return say.Of("ask.undo-step", "step", c.Step)
		}
		return say.Of("ask.undo")
	case core.EventResubmit, core.EventEdit:
		return startsAgain(c, view)
	case core.EventAccept:
		return say.Of("ask.accept")
	case core.EventResolve:
		return say.Of("ask.resolve", "state", c.As)
	case core.EventExtend:
		return say.Of("ask.extend", "at", taskform.Time(c.Until))
	case core.EventMigrate:
		return say.Of("ask.migrate", "version", c.Version)
	}
	i := slices.IndexFunc(view.Steps, func(s core.StepView) bool { return s.Name == c.Step })
	switch {
	case i >= 0 && view.Steps[i].Status == core.StepWaiting.String():
		return say.Of("ask.signal-early", "step", c.Step)
	case len(c.Result) == 0:
		return say.Of("ask.signal-refused", "step", c.Step)
	}
	return say.Of("ask.signal", "step", c.Step)
}

// signalsOf names the steps of a task that take a signal, to one for a step that takes none.
func signalsOf(c *core.Control, view *core.View) string {
	if c.Kind != core.EventSignal {
		return ""
	}
	var all []string
	for i := range view.Steps {
		s := &view.Steps[i]
		if s.Kind == core.SignalStep && s.Name == c.Step {
			return ""
		}
		if s.Kind == core.SignalStep {
			all = append(all, s.Name)
		}
	}
	if len(all) == 0 {
		return say.Of("ask.no-signals")
	}
	return say.Of("ask.signals", "n", len(all), "steps", core.ShortText(strings.Join(all, ", "), 300))
}

// startsAgain is what a resubmit or an edit leads to.
func startsAgain(c *core.Control, view *core.View) string {
	switch {
	case c.Kind == core.EventResubmit:
		return say.Of("ask.resubmit")
	case view.State == core.StateUndone:
		return say.Of("ask.edit-undone")
	}
	if void := view.Voids(); len(void) > 0 {
		return say.Of("ask.edit-void", "steps", core.ShortText(strings.Join(void, ", "), 300))
	}
	return say.Of("ask.edit")
}

// possible says what may be asked of a task.
func possible(view *core.View) string {
	if len(view.Possible) == 0 {
		return say.Of("ask.nothing")
	}
	return "possible now: " + strings.Join(view.Possible, ", ")
}
