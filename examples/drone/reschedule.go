package drone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly"
)

// TypeReschedule is the task type of a rescheduling.
const TypeReschedule = "reschedule"

// agentReschedule performs the three steps of a rescheduling.
const agentReschedule = "delivery.reschedule"

// Reschedule is the input of a rescheduling: a delivery is cancelled, and once all of it is undone its successor is
// submitted. So there are never two drones for one package.
type Reschedule struct {
	DeliveryID string  `json:"deliveryId"` // of the delivery that makes way
	Next       Request `json:"next"`       // its successor
}

// id is that of the task. It depends on the successor's alone: the same change again is the same task, and of two
// changes of one delivery Duly takes the first.
func (r *Reschedule) id() string { return rescheduleID(r.Next.DeliveryID) }

func rescheduleID(successor string) string { return duly.ID(TypeReschedule + "/" + successor) }

// successor is the id of the delivery that takes the place of another: a-1-r1 of a-1, a-1-r2 of a-1-r1. It depends on
// the id alone, so that a delivery has one successor, whatever is asked of it and however often.
func successor(id string) string {
	if at := strings.LastIndex(id, "-r"); at > 0 {
		if n, err := strconv.ParseUint(id[at+2:], 10, 32); err == nil && n > 0 && strconv.FormatUint(n, 10) == id[at+2:] {
			return id[:at+2] + strconv.FormatUint(n+1, 10)
		}
	}
	return id + "-r1"
}

// Rescheduled is what a rescheduling leads to.
type Rescheduled struct {
	DeliveryID string `json:"deliveryId"` // the successor's
}

// Rescheduling is the plan of a rescheduling and its typed steps. A cancellation is not taken back, so the first is a
// check to Duly as the second is.
type Rescheduling struct {
	Cancel    *duly.Check[Reschedule, struct{}]
	Undone    *duly.Check[Reschedule, struct{}]
	Successor *duly.Step[Reschedule, Rescheduled]
	Plan      *duly.Plan[Reschedule]
}

// rescheduleBy is how long a rescheduling waits at most: Duly tries an undo for a day, and then an operator has another.
const rescheduleBy = 48 * time.Hour

func newRescheduling(o PlanOptions) *Rescheduling {
	// Only a refusal ends a step: what does not answer, or is not undone yet, is asked again until the deadline.
	var checks []duly.CheckOption
	var steps []duly.StepOption
	for _, option := range append(o.options(), duly.Attempts(10), duly.Backoff(100*time.Millisecond, 30*time.Second)) {
		checks, steps = append(checks, option), append(steps, option)
	}
	checks, steps = append(checks, duly.OnExhausted(duly.PolicyPause)), append(steps, duly.OnExhausted(duly.PolicyPause))
	r := &Rescheduling{
		Cancel:    duly.NewCheck[Reschedule, struct{}]("cancel", agentReschedule, checks...),
		Undone:    duly.NewCheck[Reschedule, struct{}]("undone", agentReschedule, checks...),
		Successor: duly.NewStep[Reschedule, Rescheduled]("successor", agentReschedule, steps...),
	}
	r.Plan = duly.NewPlan(TypeReschedule, max(o.Version, 1), r.Cancel, r.Undone, r.Successor).
		With(duly.TaskCompleteBy(rescheduleBy))
	return r
}

// Deliveries is how the steps of a rescheduling reach deliveries: see ClientDoors.
type Deliveries interface {
	Submit(ctx context.Context, r *Request) (position string, err error)
	Cancel(ctx context.Context, id, reason string) error
	// Withdraw is Cancel also of an id that is not there yet: a submission under it is refused then.
	Withdraw(ctx context.Context, id, reason string) error
	// Delivery returns ErrNoTask for an id that Duly does not know.
	Delivery(ctx context.Context, id string) (Task, error)
}

// Serve lets an agent perform the steps.
func (r *Rescheduling) Serve(a *duly.Agent, d Deliveries) error {
	s := rescheduler{d}
	return errors.Join(r.Cancel.Serve(a, s.cancel), r.Undone.Serve(a, s.undone), r.Successor.Serve(a, s.submit, s.withdraw))
}

// rescheduler performs the steps. Each looks once and answers: Duly does the waiting.
type rescheduler struct{ deliveries Deliveries }

// byClient is the reason of a cancellation that a caller asks for.
const byClient = "cancelled by the client"

// cancel makes the delivery give way, unless it ends, or has ended, for a reason of its own.
func (s rescheduler) cancel(ctx context.Context, c duly.Call[Reschedule]) (none struct{}, err error) {
	id := c.Input.DeliveryID
	old, err := s.old(ctx, id)
	switch {
	case err != nil:
		return none, err
	case old.State == StateError:
		return none, refuse("delivery %s needs an operator, so it is not rescheduled: %s", id, old.Reason)
	case old.mayBeCancelled():
		return none, answerOfDoors(s.deliveries.Cancel(ctx, id, "rescheduled as "+c.Input.Next.DeliveryID))
	case old.FailedStep != "":
		return none, refuse("delivery %s failed, so it is not rescheduled: %s", id, old.Reason)
	}
	return none, nil // an earlier attempt has cancelled it
}

// undone succeeds when nothing of the delivery is left. One that needs an operator is waited for.
func (s rescheduler) undone(ctx context.Context, c duly.Call[Reschedule]) (none struct{}, err error) {
	old, err := s.old(ctx, c.Input.DeliveryID)
	if err == nil && old.State != StateUndone {
		err = duly.RefuseCode(http.StatusTooEarly, fmt.Errorf("delivery %s is %s still: %s", c.Input.DeliveryID, old.State, old.Reason))
	}
	return none, err
}

// old reads the delivery that makes way. It refuses one that has no successor, whatever comes.
func (s rescheduler) old(ctx context.Context, id string) (Task, error) {
	task, err := s.deliveries.Delivery(ctx, id)
	switch {
	case errors.Is(err, ErrNoTask):
		return task, duly.RefuseCode(http.StatusNotFound, err)
	case err != nil:
		return task, err
	case task.State == StateProcessed:
		return task, refuse("delivery %s is carried out: it is too late to reschedule it", id)
	case task.Reason == byClient:
		return task, refuse("delivery %s was %s, so it is not rescheduled", id, byClient)
	}
	return task, nil
}

func (s rescheduler) submit(ctx context.Context, c duly.Call[Reschedule]) (Rescheduled, error) {
	_, err := s.deliveries.Submit(ctx, &c.Input.Next)
	return Rescheduled{DeliveryID: c.Input.Next.DeliveryID}, answerOfDoors(err)
}

// withdraw undoes the successor, also one that is on its way, and waits until it is undone.
func (s rescheduler) withdraw(ctx context.Context, u duly.Undo[Reschedule, Rescheduled]) error {
	next := &u.Input.Next
	task, err := s.deliveries.Delivery(ctx, next.DeliveryID)
	switch {
	case err == nil && (!task.isOf(next) || task.State == StateUndone):
		return nil // the id is another's, or cannot be submitted any more, or all is undone
	case err == nil, errors.Is(err, ErrNoTask):
		if err := s.deliveries.Withdraw(ctx, next.DeliveryID, "its rescheduling is undone"); err != nil {
			return answerOfDoors(err)
		}
		return duly.RefuseCode(http.StatusTooEarly, fmt.Errorf("delivery %s is being undone", next.DeliveryID))
	}
	return err
}

// isOf reports whether the delivery is what was asked for.
func (t *Task) isOf(r *Request) bool {
	var stored Request
	return json.Unmarshal(t.Input, &stored) == nil && stored == *r
}

const stateUndoing = "undoing"

func (t *Task) ended() bool {
	return t.State == StateProcessed || t.State == StateUndone || t.State == StateError
}

func (t *Task) mayBeCancelled() bool { return !t.ended() && t.State != stateUndoing }

func refuse(format string, args ...any) error {
	return duly.RefuseCode(http.StatusConflict, fmt.Errorf(format, args...))
}

// answerOfDoors makes a conflict final: another delivery has the id, or the delivery was carried out. Anything else is
// worth another try.
func answerOfDoors(err error) error {
	var refused *DoorError
	if errors.As(err, &refused) && refused.Code == http.StatusConflict {
		return duly.RefuseCode(refused.Code, err)
	}
	return err
}
