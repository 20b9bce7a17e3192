package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// repairTasks are the members of an operation: waves of 1, 5, 25 and the rest.
const repairTasks = 45

// strangers are tasks that join the failure group after the freeze, and must not be touched.
const strangers = 4

// repair is one operation over planted failures.
type repair struct {
	w      *world
	action operate.Action
	step   drone.Step // that failed
	words  string
	by     []string // ids of its operations: of one as a rule

	ids     []string           // its members
	healed  []string           // of these, those whose service is open again
	outside map[string]int64   // strangers, with their newest journal row
	frozen  map[string]int64   // the members' newest rows when they were frozen
	asked   map[string]int     // actions that were answered well, by their name in the trail
	looks   int                // at the columns
	uneven  map[string]bool    // what was wrong with them
	last    *operate.Operation // as it was seen last
}

// newRepair plants failures of which all but some are about to be repairable.
func (w *world) newRepair(ctx context.Context, action operate.Action, step drone.Step, sick int) (*repair, error) {
	r := &repair{w: w, action: action, step: step, words: w.words(), asked: map[string]int{}, uneven: map[string]bool{}, frozen: map[string]int64{}, outside: map[string]int64{}}
	var err error
	if r.ids, err = w.plant(ctx, repairTasks, step, r.words); err != nil {
		return nil, err
	}
	slices.Sort(r.ids)
	r.healed = r.ids[min(sick, len(r.ids)):]
	for _, id := range r.ids {
		v, err := w.stored(ctx, id)
		if err != nil {
			return nil, err
		}
		r.frozen[id] = v.Seq
	}
	return r, nil
}

// freeze previews the operation, through the API. It gives the token.
func (r *repair) freeze(ctx context.Context, base string, result any) (string, error) {
	group, err := r.group(ctx)
	if err != nil {
		return "", err
	}
	asked := map[string]any{"reason": "chaos"}
	if result != nil {
		asked["result"] = result
	}
	body := map[string]any{"selection": map[string]any{"group": group}, "action": r.action, "request": asked}
	for {
		got, err := request(ctx, base, http.MethodPost, "/v1/operations/preview", "", body)
		if err == nil && got.status == http.StatusCreated {
			p, err := decoded[operate.Preview](got)
			if err == nil && p.Tasks != int64(len(r.ids)) {
				err = fmt.Errorf("preview of %d tasks has %d", len(r.ids), p.Tasks)
			}
			return p.Token, err
		}
		if err == nil && !got.passing() {
			return "", fmt.Errorf("preview: %s", got)
		}
		if late := pause(ctx, askAgain); late != nil {
			return "", fmt.Errorf("preview: %w", errors.Join(late, err))
		}
	}
}

// group is the id of the failure group that was planted.
func (r *repair) group(ctx context.Context) (id string, err error) {
	err = r.w.await(ctx, "the failure group is not there", func(ctx context.Context) (bool, error) {
		store, err := r.w.store()
		if err != nil {
			return false, err
		}
		page, err := store.Groups(ctx, operate.GroupFilter{Type: mendType, State: core.StateError, Limit: operate.ListMax})
		if err != nil {
			return false, err
		}
		for i := range page.Groups {
			if g := &page.Groups[i]; g.Step == r.step.String() && strings.Contains(g.Example, r.words) && g.Tasks.N == int64(len(r.ids)) {
				id = g.ID
				return true, nil
			}
		}
		return false, nil
	})
	return id, err
}

// join adds tasks to the group that are no members.
func (r *repair) join(ctx context.Context) error {
	ids, err := r.w.plant(ctx, strangers, r.step, r.words)
	if err != nil {
		return err
	}
	for _, id := range ids {
		v, err := r.w.stored(ctx, id)
		if err != nil {
			return err
		}
		r.outside[id] = v.Seq
	}
	return nil
}

// begin starts a preview. An answer that was lost is looked for in the operation's state.
func (r *repair) begin(ctx context.Context, token string, rate, brake int) error {
	body := startBody(token, rate, brake, len(r.ids))
	for {
		got, err := request(ctx, r.w.api(), http.MethodPost, "/v1/operations", "", body)
		switch {
		case err == nil && got.status == http.StatusCreated:
			r.asked["operation.start"]++
			r.by = append(r.by, token)
			return nil
		case err == nil && got.status == http.StatusConflict && strings.Contains(string(got.body), "has been started"):
			r.by = append(r.by, token)
			return nil
		case err == nil && !got.passing():
			return fmt.Errorf("start: %s", got)
		}
		if late := pause(ctx, askAgain); late != nil {
			return fmt.Errorf("start: %w", errors.Join(late, err))
		}
	}
}

func startBody(token string, rate, brake, tasks int) map[string]any {
	return map[string]any{"token": token, "rate": rate, "brake": brake, "reason": "chaos", "confirm": tasks}
}

// change asks for another state or rate until the operation has it. Where the answer was lost it may
// be asked twice: then the second is a conflict.
func (r *repair) change(ctx context.Context, change operate.Change) error {
	name := map[operate.OperationState]string{"": "rate", operate.OperationPaused: "pause", operate.OperationRunning: "resume", operate.OperationStopped: "stop"}[change.State]
	change.Reason = "chaos"
	got, err := r.w.insist(ctx, http.MethodPatch, "/v1/operations/"+r.by[0], "", change, nil)
	switch {
	case err != nil:
		return err
	case got.status < 300:
		r.asked["operation."+name]++
	case got.status != http.StatusConflict:
		return fmt.Errorf("%s: %s", name, got)
	}
	return nil
}

// look reads an operation by the harness's own link, and holds its columns against its total.
func (r *repair) look(ctx context.Context, id string) (operate.Operation, error) {
	store, err := r.w.store()
	if err != nil {
		return operate.Operation{}, err
	}
	step, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	op, err := store.Operation(step, id)
	if err != nil {
		return op, err
	}
	r.looks++
	if op.Tally.Total() != op.Tasks || op.Tasks != int64(len(r.ids)) {
		r.uneven[fmt.Sprintf("operation %s: columns %+v add up to %d of %d frozen tasks", id, op.Tally, op.Tally.Total(), op.Tasks)] = true
	}
	r.last = &op
	return op, nil
}

// until looks at the operation until it is so.
func (r *repair) until(ctx context.Context, what string, so func(*operate.Operation) bool) error {
	return r.w.await(ctx, "operation "+r.by[0]+" "+what, func(ctx context.Context) (bool, error) {
		op, err := r.look(ctx, r.by[0])
		return err == nil && so(&op), err
	})
}

// inEachWave calls hit when a wave has begun, for most waves at most, until the operation is over.
func (r *repair) inEachWave(ctx context.Context, most int, hit func(wave int) error) (hits int, err error) {
	wave, over := 0, false
	for !over {
		err := r.until(ctx, "goes no further", func(op *operate.Operation) bool {
			over = op.State == operate.OperationDone || op.State == operate.OperationStopped || op.State == operate.OperationBraked
			return over || op.Wave > wave
		})
		if err != nil {
			return hits, err
		}
		if wave = r.last.Wave; over || hits == most {
			continue
		}
		hits++
		if err := hit(wave); err != nil {
			return hits, err
		}
	}
	return hits, nil
}

// settled waits until an operation that is over has an outcome for all that were asked.
func (r *repair) settled(ctx context.Context) error {
	return r.until(ctx, "has members without an outcome", func(op *operate.Operation) bool { return op.Tally.Asked == 0 })
}

// members reads all members of an operation.
func (r *repair) members(ctx context.Context, id string) ([]operate.Member, error) {
	store, err := r.w.store()
	if err != nil {
		return nil, err
	}
	return store.Members(ctx, id, "", 0, 10_000)
}

// judge holds the operations against their tasks as they are, and returns what is wrong.
func (r *repair) judge(ctx context.Context) ([]string, error) {
	var wrong []string
	for what := range r.uneven {
		wrong = append(wrong, what)
	}
	if _, err := r.w.endedAll(ctx, r.ids); err != nil {
		return nil, err
	}
	outcomes := map[string][]operate.Outcome{}
	for _, id := range r.by {
		op, err := r.look(ctx, id)
		if err != nil {
			return nil, err
		}
		members, err := r.members(ctx, id)
		if err != nil {
			return nil, err
		}
		var tally operate.Tally
		for i := range members {
			m := &members[i]
			if n := tally.Of(m.Outcome); n != nil {
				*n++
			}
			if !slices.Contains(r.ids, m.ID) {
				wrong = append(wrong, fmt.Sprintf("operation %s: %s is a member, and was not in the group when it was frozen", id, m.ID))
			}
			outcomes[m.ID] = append(outcomes[m.ID], m.Outcome)
		}
		if tally != op.Tally {
			wrong = append(wrong, fmt.Sprintf("operation %s: its columns are %+v, and those of its members %+v", id, op.Tally, tally))
		}
		r.w.mended.add(&tally)
	}
	r.w.mended.Looks += r.looks
	for _, id := range r.ids {
		why, err := r.member(ctx, id, outcomes[id])
		if err != nil {
			return nil, err
		}
		wrong = append(wrong, why...)
	}
	for id, seq := range r.outside {
		v, err := r.w.stored(ctx, id)
		if err != nil {
			return nil, err
		}
		if v.Seq != seq {
			wrong = append(wrong, fmt.Sprintf("task %s joined the group after the freeze, and was touched: row %d, was %d", id, v.Seq, seq))
		}
	}
	least := map[string]int{"operation.start": len(r.by)}
	for action, n := range r.asked {
		least[action] = max(least[action], n)
	}
	if r.last.State == operate.OperationDone {
		least["operation.done"] = 1
	}
	for _, id := range r.by {
		if len(r.by) > 1 {
			least = map[string]int{"operation.start": 1}
		}
		why, err := r.w.audited(ctx, "operation/"+id, least)
		if err != nil {
			return nil, err
		}
		wrong = append(wrong, why...)
	}
	return wrong, nil
}

// member holds what operations say of one task against its row, journal and ledgers.
func (r *repair) member(ctx context.Context, id string, outcomes []operate.Outcome) ([]string, error) {
	v, err := r.w.stored(ctx, id)
	if err != nil {
		return nil, err
	}
	store, err := r.w.store()
	if err != nil {
		return nil, err
	}
	rows, err := store.Journal(ctx, v.Partition, v.Number)
	if err != nil {
		return nil, err
	}
	return r.contradictions(&v, rows, outcomes), nil
}

// contradictions are what the operations' outcomes of a task say that its row, journal and ledgers do not.
func (r *repair) contradictions(v *core.View, rows []core.Record, outcomes []operate.Outcome) (wrong []string) {
	bad := func(format string, a ...any) {
		wrong = append(wrong, fmt.Sprintf("task %s, which is %s: ", v.ID, v.State)+fmt.Sprintf(format, a...))
	}
	asked := 0
	for i := range rows {
		for _, op := range r.by {
			if rows[i].Seq > r.frozen[v.ID] && rows[i].Actor == operate.OperationActor(op) {
				asked++
			}
		}
	}
	if len(outcomes) != len(r.by) {
		bad("it is a member of %d operations, want %d", len(outcomes), len(r.by))
	}
	acted := 0
	for _, outcome := range outcomes {
		switch outcome {
		case operate.OutcomeDone:
			acted++
			if !r.passed(v) {
				bad("done, but the action has not come about")
			}
		case operate.OutcomeFailedAgain:
			acted++
			if !v.State.Ended() || v.State == core.StateProcessed {
				bad("failed again, but it has not failed")
			}
		case operate.OutcomeAsked:
			bad("asked, though the operation is over")
		}
	}
	if asked != acted {
		bad("%d operations acted on it by their columns, and its journal has %d rows of theirs", acted, asked)
	}
	if acted > 1 {
		bad("%d operations acted on it", acted)
	}
	if acted == 0 && v.Seq != r.frozen[v.ID] {
		bad("it was not acted on, and has moved from row %d to %d", r.frozen[v.ID], v.Seq)
	}
	return wrong
}

// passed reports whether what was asked of a task has come about.
func (r *repair) passed(v *core.View) bool {
	if r.action == operate.ActionUndo {
		if v.State != core.StateUndone {
			return false
		}
		for step := range drone.Step(drone.StepCount) {
			if r.w.services.Books().Entry(v.ID, step).Live > 0 {
				return false
			}
		}
		return true
	}
	passed := slices.ContainsFunc(v.Steps, func(s core.StepView) bool {
		return s.Name == r.step.String() && s.Status == core.StepDone.String()
	})
	return (passed || v.State == core.StateProcessed) && r.w.services.Books().Entry(v.ID, r.step).Applied > 0
}

// mended counts what became of the members of all operations of a round.
type mended struct {
	Operations  int   `json:"operations"`
	Members     int64 `json:"members"`
	Done        int64 `json:"done"`
	FailedAgain int64 `json:"failed_again"`
	Skipped     int64 `json:"skipped"`
	Waiting     int64 `json:"waiting"` // of operations that were stopped
	Kills       int   `json:"kills"`   // of processes and servers in the midst of operators' work
	Looks       int   `json:"looks"`   // at the columns while one ran
}

func (m *mended) add(t *operate.Tally) {
	m.Operations++
	m.Members += t.Total()
	m.Done += t.Done
	m.FailedAgain += t.FailedAgain
	m.Skipped += t.Skipped
	m.Waiting += t.Waiting
}
