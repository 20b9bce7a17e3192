package drone

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
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

// claim is the reason of the cancellation that makes way for a successor. Duly keeps the reason of the first one: of
// two different changes at once, one finds its claim on the delivery and the other does not.
func claim(next *Request) (string, error) {
	data, err := json.Marshal(next)
	if err != nil {
		return "", fmt.Errorf("reschedule as delivery %s: %w", next.DeliveryID, err)
	}
	sum := sha256.Sum256(data)
	return "rescheduled as " + next.DeliveryID + ", change " + hex.EncodeToString(sum[:8]), nil
}

// readPause is how long to wait between two looks at a delivery that is being undone.
const readPause = 50 * time.Millisecond

// patch reschedules a delivery that is not carried out yet. It is cancelled as a whole, and only when all of it is
// undone is its successor submitted: there are never two drones for one package. The same PATCH again goes on where
// the one before ended.
func (f *Face) patch(w http.ResponseWriter, r *http.Request) {
	id, ok := pathID(w, r)
	if !ok {
		return
	}
	change, p := readChange(w, r)
	if p == nil {
		var next *Request
		var position string
		after := cmp.Or(r.URL.Query().Get("after"), f.recent.position(id, time.Now()))
		if next, position, p = f.reschedule(r.Context(), id, after, change); p == nil {
			f.recent.add(next.DeliveryID, position, time.Now())
			accept(w, http.StatusAccepted, next, "?after="+url.QueryEscape(position))
			return
		}
	}
	p.DeliveryID = id
	p.write(w)
}

func (f *Face) reschedule(ctx context.Context, id, after string, change *Change) (next *Request, position string, p *problem) {
	task, err := f.read(ctx, id, after, func(t *Task) bool { return len(t.Input) > 0 || t.ended() })
	if err != nil {
		return nil, "", problemOf(err)
	}
	var now Request
	if err := json.Unmarshal(task.Input, &now); err != nil {
		return nil, "", conflict("delivery %s is %s, and what was asked of it is not kept", id, task.State)
	}
	changed, err := change.of(now)
	if err != nil {
		return nil, "", problemOf(err)
	}
	reason, err := claim(&changed)
	if err != nil {
		return nil, "", problemOf(err)
	}
	if p := f.makeWay(ctx, id, after, reason, &task, &changed); p != nil {
		return nil, "", p
	}
	if position, err = f.doors.Submit(ctx, &changed); err != nil {
		return nil, "", unfinished(id, changed.DeliveryID, err)
	}
	return &changed, position, nil
}

// makeWay returns nil once the delivery is undone for this successor, and for no other reason.
func (f *Face) makeWay(ctx context.Context, id, after, reason string, task *Task, next *Request) *problem {
	if task.mayBeCancelled() {
		// Nothing is cancelled for a successor whose id another delivery has.
		if p := f.free(ctx, next); p != nil {
			return p
		}
		if err := f.doors.Cancel(ctx, id, reason); err != nil {
			return problemOf(err)
		}
	}
	ours := false // an undo that is in trouble says so in place of the reason
	last, err := f.read(ctx, id, after, func(t *Task) bool {
		ours = ours || t.Reason == reason
		return t.ended()
	})
	switch {
	case err != nil:
		return unfinished(id, next.DeliveryID, err)
	case last.State == StateProcessed:
		return conflict("delivery %s is carried out: it is too late to reschedule it", id)
	case last.State == StateError:
		return conflict("delivery %s needs an operator, so it is not rescheduled: %s", id, last.Reason)
	case !ours:
		return conflict("delivery %s is %s already, so it is not rescheduled: %s", id, last.State, last.Reason)
	}
	return nil
}

// free tells whether the id of a successor has no task, or the successor itself.
func (f *Face) free(ctx context.Context, next *Request) *problem {
	task, err := f.tasks.Task(ctx, next.DeliveryID, "")
	if errors.Is(err, ErrNoTask) {
		return nil
	}
	if err != nil {
		return problemOf(err)
	}
	var stored Request
	if json.Unmarshal(task.Input, &stored) == nil && stored == *next {
		return nil
	}
	return conflict("deliveryId %s, which the rescheduled delivery would have, is taken by another request", next.DeliveryID)
}

// read looks at a delivery until it is as wanted or ctx ends.
func (f *Face) read(ctx context.Context, id, after string, wanted func(*Task) bool) (Task, error) {
	pause := time.NewTimer(readPause)
	defer pause.Stop()
	for {
		task, err := f.tasks.Task(ctx, id, after)
		if err != nil || wanted(&task) {
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

const stateUndoing = "undoing"

func (t *Task) ended() bool {
	return t.State == StateProcessed || t.State == StateUndone || t.State == StateError
}

func (t *Task) mayBeCancelled() bool { return !t.ended() && t.State != stateUndoing }

func conflict(format string, args ...any) *problem {
	return &problem{Status: http.StatusConflict, Detail: fmt.Sprintf(format, args...)}
}

// unfinished is the problem of a rescheduling that stopped behind its cancellation: the caller must ask again.
func unfinished(id, next string, err error) *problem {
	p := problemOf(err)
	p.Detail = fmt.Sprintf("delivery %s is being cancelled and its successor %s is not confirmed: send the same PATCH again (%v)", id, next, err)
	return p
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
