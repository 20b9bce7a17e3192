package repair

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// changeTries is how often a change is tried that the runner's own writes come before: there are some twenty a second.
const changeTries = 20

// sampleMax is how many members a preview shows.
const sampleMax = 10

// Service is operate.Operations. It is safe for concurrent use.
type Service struct {
	cfg    Config
	store  Store
	desk   *operate.Desk
	notes  operate.NoteStore // may be nil
	holds  Holds             // may be nil
	joined Joined            // may be nil
	log    *slog.Logger

	mu sync.Mutex // of Start: two must not both find that no operation holds the group
}

// NewService makes the actions on many tasks. Without notes no start is noted at its failure group; without holds
// rehearsals know of no pause and no agent that is away; without joined it is not shown how many joined a group since.
func NewService(cfg Config, store Store, desk *operate.Desk, notes operate.NoteStore, holds Holds, joined Joined, log *slog.Logger) *Service {
	return &Service{cfg: cfg.WithDefaults(), store: store, desk: desk, notes: notes, holds: holds, joined: joined, log: log}
}

// Preview implements operate.Operations. It freezes the membership and rehearses the action. Error: *operate.Refusal.
func (s *Service) Preview(ctx context.Context, by operate.Actor, sel operate.Selection, r operate.Request) (operate.Preview, error) {
	now := s.cfg.Now()
	edit, err := s.checkPreview(by, &sel, &r, now)
	if err != nil {
		return operate.Preview{}, err
	}
	if r.Action == operate.ActionMigrate {
		if err := s.checkMigrate(ctx, &sel, r.Version); err != nil {
			return operate.Preview{}, err
		}
	}
	words, err := s.words(ctx, &sel)
	if err != nil {
		return operate.Preview{}, err
	}
	op := operate.Operation{
		ID: strings.ToLower(rand.Text()), Action: r.Action, Selection: words, Group: sel.Group, Request: r,
		State: operate.OperationPreview, BrakePct: defaultBrakePct, By: by.Name, Created: now, Expires: now.Add(operate.PreviewFor),
	}
	if op.Tasks, err = s.store.Freeze(ctx, op, sel); err != nil {
		return operate.Preview{}, fmt.Errorf("freeze the members of %s: %w", words, err)
	}
	op.Tally = operate.Tally{Waiting: op.Tasks}
	if op.Rehearsal, err = rehearse(ctx, &s.cfg, &op, s.store, s.holds); err != nil {
		return operate.Preview{}, fmt.Errorf("rehearse %s: %w", words, err)
	}
	was := op.Epoch
	op.Epoch++
	if err := s.store.Update(ctx, op, was); err != nil {
		return operate.Preview{}, fmt.Errorf("preview %s: %w", op.ID, err)
	}
	sample, err := s.store.Members(ctx, op.ID, "", 0, sampleMax)
	if err != nil {
		return operate.Preview{}, fmt.Errorf("members of preview %s: %w", op.ID, err)
	}
	changes, err := edit.changes(ctx, s.store, sample[:min(len(sample), changesMax)])
	if err != nil {
		return operate.Preview{}, fmt.Errorf("inputs of preview %s: %w", op.ID, err)
	}
	return operate.Preview{
		Token: op.ID, Selection: words, Action: op.Action, Tasks: op.Tasks, Sample: sample, Rehearsal: op.Rehearsal, Changes: changes, Expires: op.Expires,
	}, nil
}

func (s *Service) checkPreview(by operate.Actor, sel *operate.Selection, r *operate.Request, now time.Time) (*patch, error) {
	if !by.Role.May(operate.RoleOperator) {
		return nil, refuse(403, "%s", say.Of("refuse.role-operation", "name", by.Name, "role", by.Role))
	}
	edit, err := checkRequest(r, now)
	if err != nil {
		return nil, err
	}
	return edit, checkSelection(sel)
}

// checkMigrate refuses a version that is not stored, and leaves those tasks of a filter out that it cannot be about. What
// a filter selects is of one type, or it would be of many plans.
func (s *Service) checkMigrate(ctx context.Context, sel *operate.Selection, version int64) error {
	if sel.Filter == nil {
		return nil // each is told what it lacks
	}
	if sel.Filter.Type == "" {
		return bad("filter", "%s", say.Of("refuse.version-typeless", "version", version))
	}
	sel.Filter.MovableTo = version
	plans, err := s.store.Plans(ctx)
	if unreadable := (core.UnreadablePlans{}); err != nil && !errors.As(err, &unreadable) {
		return fmt.Errorf("plans: %w", err)
	}
	if core.FindPlan(plans, sel.Filter.Type, version) != nil {
		return nil
	}
	return refuse(404, "%s", say.Of("refuse.version-not-stored", "type", core.QuoteShort(sel.Filter.Type), "version", version))
}

// checkSelection refuses what selects nothing, or in two ways.
func checkSelection(sel *operate.Selection) error {
	ways := 0
	for _, given := range []bool{sel.Group != "", sel.Filter != nil, len(sel.IDs) > 0} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return bad("selection", "the selection has %d of group, filter and ids, want one", ways)
	}
	if n := len(sel.IDs); n > operate.ListMax {
		return bad("ids", "ids names %d tasks, want at most %d; select by a filter or a group", n, operate.ListMax)
	}
	if sel.Filter != nil {
		f := *sel.Filter
		f.Limit, f.After = 0, ""
		if f == (core.Filter{}) {
			return bad("filter", "%s", say.Of("refuse.filter-empty"))
		}
		sel.Filter = &f
	}
	return nil
}

// words is a selection as a dialog shows it.
func (s *Service) words(ctx context.Context, sel *operate.Selection) (string, error) {
	switch {
	case sel.Group != "":
		g, err := s.store.Group(ctx, sel.Group)
		if errors.Is(err, core.ErrNotFound) {
			return "", refuse(404, "%s", say.Of("refuse.no-group", "group", core.QuoteShort(sel.Group)))
		}
		if err != nil {
			return "", fmt.Errorf("failure group %s: %w", sel.Group, err)
		}
		words := say.Of("repair.tasks-of", "type", g.Type, "state", stateWords(g.State))
		if g.Step != "" {
			words += " " + say.Of("repair.failed-in", "step", g.Step)
		}
		if g.Example != "" {
			words += " like: " + core.ShortText(g.Example, 200)
		}
		return words, nil
	case sel.Filter != nil:
		return filterWords(sel.Filter), nil
	}
	return say.Of("repair.ids", "n", len(sel.IDs)), nil
}

func stateWords(state core.State) string {
	if state == core.StateError {
		return "in error"
	}
	return string(state)
}

func filterWords(f *core.Filter) string {
	words := "tasks"
	if f.Type != "" {
		words += " of type " + f.Type
	}
	if f.PlanVersion != 0 {
		words += fmt.Sprintf(" of version %d", f.PlanVersion)
	}
	if f.State != "" {
		words += " that are " + stateWords(f.State)
	}
	if f.MovableTo != 0 && f.State == "" {
		words += " " + say.Of("repair.movable")
	}
	if f.MovableTo != 0 && f.PlanVersion == 0 {
		words += ", " + say.Of("repair.other-version", "version", f.MovableTo)
	}
	if f.Step != "" {
		words += ", failed in step " + f.Step
	}
	if f.Fingerprint != "" {
		words += ", with the failure " + f.Fingerprint
	}
	if f.Label != "" {
		words += ", labelled " + f.Label
	}
	if f.Parent != "" {
		words += ", part of " + f.Parent
	}
	if f.OpenSignal {
		words += ", " + say.Of("repair.waiting")
	}
	for _, t := range []struct {
		word string
		at   core.Instant
	}{{say.Of("repair.created"), f.CreatedFrom}, {"created before", f.CreatedTo}, {"with a deadline before", f.DeadlineTo}} {
		if t.at != 0 {
			words += ", " + t.word + " " + t.at.Time().Format(time.RFC3339)
		}
	}
	return words
}

// Start implements operate.Operations. A brakePct of 0 is the default, a rate of 0 the pace of all
// operations that have none. It is audited, refused or not. Error: *operate.Refusal.
func (s *Service) Start(ctx context.Context, by operate.Actor, token string, rate, brakePct int, reason string, confirm int64) (operate.Operation, error) {
	var op operate.Operation
	start := operate.Act{By: by, Action: "operation.start", Target: targetOf(token), Reason: reason, After: map[string]any{"rate": rate, "brake": brakePct, "confirm": confirm}}
	err := s.desk.Change(ctx, &start, func(ctx context.Context) (err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		op, err = s.start(ctx, by, token, rate, brakePct, reason, confirm)
		return err
	})
	if err != nil {
		return operate.Operation{}, err
	}
	s.note(ctx, by, &op)
	return op, nil
}

func (s *Service) start(ctx context.Context, by operate.Actor, token string, rate, brakePct int, reason string, confirm int64) (operate.Operation, error) {
	op, err := s.operation(ctx, token)
	if err != nil {
		return op, err
	}
	now := s.cfg.Now()
	if brakePct == 0 {
		brakePct = defaultBrakePct
	}
	if err := checkStart(by, &op, rate, brakePct, reason, confirm, now); err != nil {
		return op, err
	}
	if err := s.checkOthers(ctx, &op); err != nil {
		return op, err
	}
	was := op.Epoch
	op.Epoch++
	op.State, op.Started, op.Reason, op.Rate, op.BrakePct = operate.OperationRunning, now, reason, rate, brakePct
	op.Tally = operate.Tally{Waiting: op.Tasks}
	err = s.store.Update(ctx, op, was)
	if errors.Is(err, operate.ErrFenced) {
		return op, refuse(409, "%s", say.Of("refuse.started-meanwhile", "operation", token))
	}
	if err != nil {
		return op, fmt.Errorf("start operation %s: %w", token, err)
	}
	return op, nil
}

func checkStart(by operate.Actor, op *operate.Operation, rate, brakePct int, reason string, confirm int64, now time.Time) error {
	switch {
	case !by.Role.May(operate.RoleOperator):
		return refuse(403, "%s", say.Of("refuse.role-operation", "name", by.Name, "role", by.Role))
	case op.By != by.Name && !by.Role.May(operate.RoleAdmin):
		return refuse(403, "%s", say.Of("refuse.preview-of", "by", op.By))
	case op.State != operate.OperationPreview:
		return refuse(409, "%s", say.Of("refuse.started", "id", op.ID, "state", op.State))
	case !now.Before(op.Expires):
		return refuse(409, "%s", say.Of("refuse.preview-expired", "at", op.Expires.UTC().Format(time.RFC3339)))
	case op.Tasks == 0:
		return refuse(409, "%s", say.Of("refuse.preview-empty"))
	case strings.TrimSpace(reason) == "":
		return bad("reason", "a reason is required")
	case operate.CheckReason(reason) != nil:
		return operate.CheckReason(reason)
	case op.Tasks > operate.ConfirmMax && confirm != op.Tasks:
		return bad("confirm", "%s", say.Of("refuse.confirm", "confirm", confirm, "tasks", op.Tasks, "limit", operate.ConfirmMax))
	case rate < 0 || rate > RateMax:
		return bad("rate", "rate is %d, want 0 to %d tasks a second", rate, RateMax)
	case brakePct < 1 || brakePct > 100:
		return bad("brake", "brake is %d, want 1 to 100 %%", brakePct)
	}
	return nil
}

// active are the states of operations that hold their group.
var active = []operate.OperationState{operate.OperationRunning, operate.OperationPaused, operate.OperationBraked}

// checkOthers refuses a start while another operation has the same group, or when there are too many. Two nodes that
// start at once are not told apart here: the owners refuse the requests of the one that comes second.
func (s *Service) checkOthers(ctx context.Context, op *operate.Operation) error {
	others, _, err := s.store.Operations(ctx, active, operate.ListMax, "")
	if err != nil {
		return fmt.Errorf("operations that run: %w", err)
	}
	for i := range others {
		if o := &others[i]; op.Group != "" && o.Group == op.Group {
			return refuse(409, "%s", say.Of("refuse.same-group", "id", o.ID, "state", o.State))
		}
	}
	if n := len(others); n >= activeMax {
		return refuse(409, "%s", say.Of("refuse.operations-full", "n", n))
	}
	return nil
}

// note tells those who look at the failure group that an operation is about it. It has been started whether that works
// or not.
func (s *Service) note(ctx context.Context, by operate.Actor, op *operate.Operation) {
	if s.notes == nil || op.Group == "" {
		return
	}
	text := core.CutText(say.Of("repair.note", "id", op.ID, "action", op.Action, "n", op.Tasks, "reason", op.Reason), core.WordsBytesMax)
	if _, err := s.notes.AddNote(ctx, operate.Note{Target: "group/" + op.Group, At: s.cfg.Now(), By: by.Name, Text: text}); err != nil {
		s.log.Warn("the start of an operation is not noted at its failure group", "operation", op.ID, "error", err)
	}
}

// Change implements operate.Operations: it pauses, resumes, stops, or sets the rate. It is audited, refused or not.
// Error: *operate.Refusal.
func (s *Service) Change(ctx context.Context, by operate.Actor, id string, change operate.Change) (operate.Operation, error) {
	var op operate.Operation
	act := operate.Act{By: by, Action: "operation." + changeWord(&change), Target: targetOf(id), Reason: change.Reason, After: change}
	err := s.desk.Change(ctx, &act, func(ctx context.Context) (err error) {
		op, err = s.change(ctx, by, id, &change)
		return err
	})
	if err != nil {
		return operate.Operation{}, err
	}
	return op, nil
}

func changeWord(c *operate.Change) string {
	switch c.State {
	case operate.OperationPaused:
		return operate.ChangePause
	case operate.OperationRunning:
		return operate.ChangeResume
	case operate.OperationStopped:
		return operate.ChangeStop
	}
	return operate.ChangeRate
}

// change tries again when the runner has written since it was read.
func (s *Service) change(ctx context.Context, by operate.Actor, id string, c *operate.Change) (operate.Operation, error) {
	for try := 1; ; try++ {
		op, err := s.operation(ctx, id)
		if err != nil {
			return op, err
		}
		if err := checkChange(by, &op, c); err != nil {
			return op, err
		}
		was := op.Epoch
		op.Epoch++
		s.apply(by, &op, c)
		err = s.store.Update(ctx, op, was)
		switch {
		case err == nil:
			return op, nil
		case !errors.Is(err, operate.ErrFenced):
			return op, fmt.Errorf("change operation %s: %w", id, err)
		case try == changeTries:
			return op, &operate.Refusal{Code: 503, Detail: say.Of("refuse.operation-busy", "id", id), RetryMS: 1000}
		}
	}
}

func checkChange(by operate.Actor, op *operate.Operation, c *operate.Change) error {
	switch {
	case !by.Role.May(operate.RoleOperator):
		return refuse(403, "%s", say.Of("refuse.role-change", "name", by.Name, "role", by.Role))
	case c.State == "" && c.Rate == nil:
		return bad("state", "%s", say.Of("refuse.change-empty"))
	case c.State != "" && changeWord(c) == operate.ChangeRate:
		return bad("state", "%s", say.Of("refuse.operation-state", "state", core.QuoteShort(string(c.State))))
	case c.Rate != nil && (*c.Rate < 0 || *c.Rate > RateMax):
		return bad("rate", "rate is %d, want 0 to %d tasks a second", *c.Rate, RateMax)
	case operate.CheckReason(c.Reason) != nil:
		return operate.CheckReason(c.Reason)
	case c.State == operate.OperationStopped && strings.TrimSpace(c.Reason) == "":
		return bad("reason", "%s", say.Of("refuse.stop-reason"))
	case op.State == operate.OperationPreview:
		return refuse(409, "%s", say.Of("refuse.is-preview", "id", op.ID))
	case !op.State.Takes(changeWord(c)):
		return refuse(409, "%s", say.Of("refuse.operation-over", "id", op.ID, "state", op.State))
	}
	return nil
}

// apply changes op as was asked.
func (s *Service) apply(by operate.Actor, op *operate.Operation, c *operate.Change) {
	if c.Rate != nil {
		op.Rate = *c.Rate
	}
	switch c.State {
	case operate.OperationRunning:
		op.State, op.Why = c.State, ""
	case operate.OperationPaused, operate.OperationStopped:
		op.State, op.Why = c.State, fmt.Sprintf("%s by %s", c.State, by.Name)
		if c.Reason != "" {
			op.Why += ": " + c.Reason
		}
	}
	if c.State == operate.OperationStopped {
		op.Ended = s.cfg.Now()
	}
}

// Show returns one operation with how many tasks have joined its failure group since, which are never touched.
// Error: *operate.Refusal.
func (s *Service) Show(ctx context.Context, id string) (operate.Operation, error) {
	op, err := s.operation(ctx, id)
	if err != nil || s.joined == nil || op.Group == "" {
		return op, err
	}
	if op.Since, err = s.joined.Joined(ctx, op); err != nil {
		return op, fmt.Errorf("tasks that joined the group of operation %s: %w", id, err)
	}
	return op, nil
}

// operation reads one; that there is none is a refusal.
func (s *Service) operation(ctx context.Context, id string) (operate.Operation, error) {
	op, err := s.store.Operation(ctx, id)
	if errors.Is(err, core.ErrNotFound) {
		return op, refuse(404, "%s", say.Of("refuse.no-operation", "id", core.QuoteShort(id), "time", operate.PreviewFor))
	}
	if err != nil {
		return op, fmt.Errorf("operation %s: %w", id, err)
	}
	return op, nil
}

// targetOf is what the audit trail calls an operation; its id is a stranger's word.
func targetOf(id string) string { return "operation/" + core.CutText(id, 90) }
