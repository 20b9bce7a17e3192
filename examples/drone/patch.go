package drone

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Change is the body of a PATCH: what of a delivery is to be otherwise. A field that is left out stays.
type Change struct {
	PickupLocation  *string `json:"pickupLocation"`
	DropOffLocation *string `json:"dropOffLocation"`
	PickupTime      *string `json:"pickupTime"`
	Deadline        *string `json:"deadline"`
}

// of is the delivery as it is to be, under the id of its successor.
func (c *Change) of(r Request) (Request, error) {
	before := r
	for _, field := range []struct{ from, to *string }{
		{c.PickupLocation, &r.PickupLocation}, {c.DropOffLocation, &r.DropOffLocation},
		{c.PickupTime, &r.PickupTime}, {c.Deadline, &r.Deadline},
	} {
		if field.from != nil {
			*field.to = *field.from
		}
	}
	if r == before {
		return r, &InvalidError{Fields: []FieldError{{
			Field: "body", Value: "no change", Limit: "a new pickupLocation, dropOffLocation, pickupTime or deadline",
		}}}
	}
	r.DeliveryID = successor(r.DeliveryID)
	return r, r.Validate()
}

// patch stores a rescheduling: the rest is Duly's. The same PATCH again is the same rescheduling.
func (f *Face) patch(w http.ResponseWriter, r *http.Request) {
	id, ok := pathID(w, r)
	if !ok {
		return
	}
	change, p := readChange(w, r)
	if p == nil {
		var task *Reschedule
		after := cmp.Or(r.URL.Query().Get("after"), f.recent.position(id, time.Now()))
		if task, p = f.rescheduling(r.Context(), id, after, change); p == nil {
			position, err := f.doors.Reschedule(r.Context(), task)
			if err == nil {
				f.recent.add(task.id(), position, time.Now())
				accept(w, http.StatusAccepted, &task.Next, "?rescheduled="+url.QueryEscape(position))
				return
			}
			p = problemOf(err)
		}
	}
	p.DeliveryID = id
	p.write(w)
}

// rescheduling is the task that a change asks for. What it refuses would come to nothing: Duly has the last word.
func (f *Face) rescheduling(ctx context.Context, id, after string, change *Change) (*Reschedule, *problem) {
	delivery, err := f.read(ctx, id, after)
	if errors.Is(err, ErrNoTask) {
		if coming, err := f.coming(ctx, id, ""); err == nil {
			return nil, conflict("delivery %s is %s: send the same PATCH again once it is there", id, coming.State)
		}
	}
	if err != nil {
		return nil, problemOf(err)
	}
	var now Request
	if err := json.Unmarshal(delivery.Input, &now); err != nil {
		return nil, conflict("delivery %s is %s, and what was asked of it is not kept", id, delivery.State)
	}
	next, err := change.of(now)
	if err != nil {
		return nil, problemOf(err)
	}
	task := &Reschedule{DeliveryID: id, Next: next}
	if known, p := f.known(ctx, task); known || p != nil {
		return task, p
	}
	switch {
	case delivery.State == StateProcessed:
		return nil, conflict("delivery %s is carried out: it is too late to reschedule it", id)
	case delivery.State == StateError:
		return nil, conflict("delivery %s needs an operator, so it is not rescheduled: %s", id, delivery.Reason)
	case !delivery.mayBeCancelled():
		return nil, conflict("delivery %s is %s already, so it is not rescheduled: %s", id, delivery.State, delivery.Reason)
	}
	return task, f.free(ctx, &next)
}

// known tells whether Duly has the rescheduling already. Refused are another one of the same delivery, and one that
// came to nothing.
func (f *Face) known(ctx context.Context, asked *Reschedule) (bool, *problem) {
	task, err := f.tasks.Task(ctx, TypeReschedule, asked.id(), "")
	if errors.Is(err, ErrNoTask) {
		return false, nil
	}
	if err != nil {
		return false, problemOf(err)
	}
	var stored Reschedule
	if err := json.Unmarshal(task.Input, &stored); err == nil && stored != *asked {
		return false, conflict("delivery %s is rescheduled otherwise already", asked.DeliveryID)
	}
	if task.State != StateProcessed && !task.mayBeCancelled() {
		return false, conflict("delivery %s is not rescheduled: %s", asked.DeliveryID, task.Reason)
	}
	return true, nil
}

// free tells whether the id of a successor has no task, or the successor itself.
func (f *Face) free(ctx context.Context, next *Request) *problem {
	task, err := f.tasks.Task(ctx, Type, next.DeliveryID, "")
	switch {
	case errors.Is(err, ErrNoTask), err == nil && task.isOf(next):
		return nil
	case err != nil:
		return problemOf(err)
	}
	return conflict("deliveryId %s, which the rescheduled delivery would have, is taken by another request", next.DeliveryID)
}

// stateRescheduling is what GET says of a successor whose delivery is being undone.
const stateRescheduling = "rescheduling"

// coming is a successor that is not there yet, as its rescheduling has it; ErrNoTask: there is none. after is as of
// Tasks.Task.
func (f *Face) coming(ctx context.Context, id, after string) (Task, error) {
	of := rescheduleID(id)
	task, err := f.tasks.Task(ctx, TypeReschedule, of, cmp.Or(after, f.recent.position(of, time.Now())))
	switch {
	case errors.Is(err, ErrNoTask):
		return Task{}, fmt.Errorf("%w: %s", ErrNoTask, id)
	case err != nil:
		return Task{}, err
	case task.State == StateProcessed:
		return Task{State: statePending}, nil // it is stored, and not in the table yet
	case task.mayBeCancelled():
		task.State = stateRescheduling
	}
	return task, nil
}

// readPause is how long to wait between two looks at a delivery that is on its way into the table.
const readPause = 50 * time.Millisecond

// read looks at a delivery until it is in the table or ctx ends.
func (f *Face) read(ctx context.Context, id, after string) (Task, error) {
	pause := time.NewTimer(readPause)
	defer pause.Stop()
	for {
		task, err := f.tasks.Task(ctx, Type, id, after)
		if err != nil || len(task.Input) > 0 || task.ended() {
			return task, err
		}
		select {
		case <-ctx.Done():
			return Task{}, fmt.Errorf("delivery %s is %s still: %w", id, task.State, ctx.Err())
		case <-pause.C:
			pause.Reset(readPause)
		}
	}
}

const statePending = "pending"

func conflict(format string, args ...any) *problem {
	return &problem{Status: http.StatusConflict, Detail: fmt.Sprintf(format, args...)}
}

// readChange decodes a body; a field that cannot be changed is refused, not passed over.
func readChange(w http.ResponseWriter, r *http.Request) (*Change, *problem) {
	body, p := readBody(w, r)
	if p != nil {
		return nil, p
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	change := &Change{}
	if err := decoder.Decode(change); err != nil {
		return nil, badJSON(err)
	}
	if decoder.More() {
		return nil, badField(http.StatusBadRequest, "body", "more than one value", "one JSON object")
	}
	return change, nil
}
