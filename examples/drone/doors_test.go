package drone

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
)

func TestHTTPTasks(t *testing.T) {
	duly := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/tasks/delivery/a-1":
			_, _ = fmt.Fprint(w, `{"id":"a-1","state":"undone","reason":"r","input":{"deliveryId":"a-1"},"steps":[{"name":"account","status":"failed","error":"e"}]}`)
		case "/v1/tasks/delivery/new":
			if r.URL.Query().Get("after") != "3.17" {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			_, _ = fmt.Fprint(w, `{"id":"new","state":"pending","partition":3}`)
		case "/v1/tasks/delivery/bad":
			_, _ = fmt.Fprint(w, `{`)
		case "/v1/tasks/delivery/broken":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer duly.Close()
	tasks, err := NewHTTPTasks(duly.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	got, err := tasks.Task(t.Context(), Type, "a-1", "")
	if err != nil || got.State != "undone" || got.Reason != "r" || len(got.Steps) != 1 || got.Steps[0].Error != "e" || string(got.Input) != `{"deliveryId":"a-1"}` {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := tasks.Task(t.Context(), Type, "b", ""); !errors.Is(err, ErrNoTask) {
		t.Errorf("unknown: %v", err)
	}
	if got, err := tasks.Task(t.Context(), Type, "new", "3.17"); err != nil || got.State != "pending" {
		t.Errorf("stored, not yet in the table: %+v, %v", got, err)
	}
	var refused *DoorError
	if _, err := tasks.Task(t.Context(), Type, "new", "x&y"); !errors.As(err, &refused) || refused.Code != http.StatusBadRequest {
		t.Errorf("a bad position: %v", err)
	}
	for _, id := range []string{"bad", "broken"} {
		if _, err := tasks.Task(t.Context(), Type, id, ""); err == nil || errors.Is(err, ErrNoTask) {
			t.Errorf("%s: %v", id, err)
		}
	}
	duly.Close()
	if _, err := tasks.Task(t.Context(), Type, "a-1", ""); err == nil {
		t.Error("Duly is gone, and there was no error")
	}
	for _, bad := range []string{"", "127.0.0.1:7310", "ftp://x", "http://"} {
		if _, err := NewHTTPTasks(bad); err == nil {
			t.Errorf("address %q was accepted", bad)
		}
	}
}

func TestDoorError(t *testing.T) {
	submit := func(code int) error { return &duly.SubmitError{Code: code, Description: "d"} }
	other := errors.New("other")
	tests := []struct {
		name string
		err  error
		code int // 0: as it was
	}{
		{"none", nil, 0},
		{"refused", fmt.Errorf("x: %w", submit(413)), 413},
		{"busy until the end", fmt.Errorf("x: %w: %w", duly.ErrTimeout, submit(429)), 429},
		{"no node there", fmt.Errorf("x: %w: %w", duly.ErrTimeout, nats.ErrNoResponders), 503},
		{"no answer", fmt.Errorf("x: %w: %w", duly.ErrTimeout, context.DeadlineExceeded), 408},
		{"something else", other, 0},
	}
	for _, test := range tests {
		got := doorError(test.err)
		var coded *DoorError
		switch {
		case test.code == 0 && !errors.Is(got, test.err):
			t.Errorf("%s: %v", test.name, got)
		case test.code != 0 && (!errors.As(got, &coded) || coded.Code != test.code):
			t.Errorf("%s: %v, want code %d", test.name, got, test.code)
		}
	}
}

func TestDoorsOverNATS(t *testing.T) {
	nc := startNATS(t)
	doors, err := NewDoors(nc, NewWorkflow(QuickPlan()))
	if err != nil {
		t.Fatal(err)
	}
	request := NewGenerator(1).Request(0)
	answer := `{"stream":"DULY_TASKS","seq":7,"task":"` + request.DeliveryID + `","partition":3}`
	sub, err := nc.Subscribe("duly.submit.delivery."+request.DeliveryID, func(m *nats.Msg) { _ = m.Respond([]byte(answer)) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := doors.Probe(ctx); err != nil {
		t.Errorf("probe: %v", err)
	}
	if position, err := doors.Submit(ctx, &request); err != nil || position != "3.7" {
		t.Errorf("submit: %q, %v", position, err)
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var coded *DoorError
	if _, err := doors.Submit(short, &request); !errors.As(err, &coded) {
		t.Errorf("submit with no node there: %v", err)
	}
	nc.Close()
	if err := doors.Probe(ctx); err == nil {
		t.Error("probe is healthy without a connection")
	}
	if _, err := NewDoors(nc, NewWorkflow(PlanOptions{})); err == nil {
		t.Error("doors on a closed connection")
	}
}
