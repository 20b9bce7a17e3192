package drone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
)

// ClientDoors are Doors over NATS.
type ClientDoors struct {
	nc     *nats.Conn
	client *duly.Client
	flow   *Workflow
}

// NewDoors returns doors on a connection, which stays the caller's to close.
// Options are those of its client.
func NewDoors(nc *nats.Conn, w *Workflow, options ...duly.ClientOption) (*ClientDoors, error) {
	client, err := duly.NewClient(nc, append([]duly.ClientOption{duly.Actor("delivery-requests")}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("doors of the deliveries: %w", err)
	}
	return &ClientDoors{nc: nc, client: client, flow: w}, nil
}

// Submit hands a delivery in under its own id. It returns without an error once
// Duly's fast door has said that the request is stored and synced. The position
// reads <partition>.<position in the task stream>.
func (d *ClientDoors) Submit(ctx context.Context, r *Request) (position string, err error) {
	return positionOf(d.flow.Plan.Submit(ctx, d.client, r.DeliveryID, *r))
}

// Reschedule is Submit of a rescheduling.
func (d *ClientDoors) Reschedule(ctx context.Context, r *Reschedule) (position string, err error) {
	return positionOf(d.flow.Rescheduling.Plan.Submit(ctx, d.client, r.id(), *r))
}

func positionOf(receipt duly.Receipt, err error) (string, error) {
	if err != nil {
		return "", doorError(err)
	}
	return strconv.Itoa(receipt.Partition) + "." + strconv.FormatUint(receipt.Seq, 10), nil
}

// Cancel returns nil once the request to cancel is stored.
func (d *ClientDoors) Cancel(ctx context.Context, id, reason string) error {
	return doorError(d.client.Cancel(ctx, Type, id, reason))
}

// Withdraw is Cancel also of an id that is not there yet: a submission under it is refused then.
func (d *ClientDoors) Withdraw(ctx context.Context, id, reason string) error {
	return doorError(d.client.Cancel(ctx, Type, id, reason, duly.EvenIfUnknown()))
}

// Delivery implements Deliveries.
func (d *ClientDoors) Delivery(ctx context.Context, id string) (Task, error) {
	task, err := d.client.Get(ctx, Type, id)
	if errors.Is(err, duly.ErrNotFound) {
		return Task{}, fmt.Errorf("%w: %s", ErrNoTask, id)
	}
	return Task{State: string(task.State), Reason: task.Reason, FailedStep: task.FailedStep, Input: task.Input}, err
}

// Probe asks the NATS server for a sign of life. ctx must have a deadline.
func (d *ClientDoors) Probe(ctx context.Context) error {
	if !d.nc.IsConnected() {
		return fmt.Errorf("connection is %s", d.nc.Status())
	}
	return d.nc.FlushWithContext(ctx)
}

// doorError gives an error the code that the face answers by. The client tries
// again until its time is over, so a time-out can hide a reason: it counts.
func doorError(err error) error {
	var refused *duly.SubmitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return &DoorError{Code: refused.Code, Text: refused.Description}
	case errors.Is(err, nats.ErrNoResponders):
		return &DoorError{Code: http.StatusServiceUnavailable, Text: "no node takes deliveries in"}
	case errors.Is(err, duly.ErrTimeout):
		return &DoorError{Code: http.StatusRequestTimeout, Text: err.Error()}
	}
	return err
}

// HTTPTasks are Tasks over Duly's HTTP API.
type HTTPTasks struct {
	base   string
	client *http.Client
}

// NewHTTPTasks reads from a base address such as http://127.0.0.1:7310.
func NewHTTPTasks(base string) (*HTTPTasks, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("address of Duly's HTTP API is %q, want http://host:port", base)
	}
	return &HTTPTasks{
		base: strings.TrimSuffix(base, "/") + "/v1/tasks/",
		// The requests carry their own, shorter times.
		client: &http.Client{Timeout: 30 * time.Second},
	}, nil
}

// taskBytesMax bounds an answer: a delivery has at most BodyBytesMax of input
// and five small results.
const taskBytesMax = 1 << 20

// Task reads one task; see Tasks.
func (h *HTTPTasks) Task(ctx context.Context, typ, id, after string) (Task, error) {
	at := h.base + typ + "/" + url.PathEscape(id)
	if after != "" {
		at += "?after=" + url.QueryEscape(after)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return Task{}, fmt.Errorf("read %s %s: %w", typ, id, err)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return Task{}, fmt.Errorf("read %s %s: %w", typ, id, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, taskBytesMax))
	switch {
	case err != nil:
		return Task{}, fmt.Errorf("read %s %s: %w", typ, id, err)
	case resp.StatusCode == http.StatusNotFound:
		return Task{}, fmt.Errorf("%w: %s", ErrNoTask, id)
	case resp.StatusCode == http.StatusBadRequest:
		return Task{}, &DoorError{Code: http.StatusBadRequest, Text: "read " + typ + " " + id + ": Duly refuses the query after=" + quoteShort(after)}
	case resp.StatusCode != http.StatusOK:
		return Task{}, fmt.Errorf("read %s %s: %s answered %s", typ, id, h.base, resp.Status)
	}
	var task Task
	if err := json.Unmarshal(body, &task); err != nil {
		return Task{}, fmt.Errorf("read %s %s: %w", typ, id, err)
	}
	return task, nil
}
