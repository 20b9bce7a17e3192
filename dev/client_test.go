package dev_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/wire"
)

type parcel struct{ Weight int }

var (
	weigh    = duly.NewCheck[parcel, int]("weigh", "client.weigh")
	send     = duly.NewStep[parcel, string]("send", "client.send", duly.Attempts(1))
	shipping = duly.NewPlan("parcel", 1, weigh, send)
)

// TestClient reads tasks with Duly's own client, and watches those that have ended.
//
// covers: C2, C3, C14
func TestClient(t *testing.T) {
	w := start(t)
	c, err := duly.NewClient(w.nc)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := duly.NewAgent(w.nc, duly.Retries(0), duly.Log(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		weigh.Serve(agent, func(_ context.Context, call duly.Call[parcel]) (int, error) { return call.Input.Weight, nil }),
		send.Serve(agent, func(_ context.Context, call duly.Call[parcel]) (string, error) {
			if call.Input.Weight > 10 {
				return "", duly.Refuse(errors.New("too heavy"))
			}
			return call.Key, nil
		}, func(context.Context, duly.Undo[parcel, string]) error { return nil }),
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	bounded, stop := context.WithTimeout(t.Context(), 2*patience)
	defer stop()
	if err := shipping.Apply(bounded, c); err != nil {
		t.Fatal(err)
	}
	last := func(id string, options ...duly.WatchOption) (last duly.Status, failed error) {
		for status, err := range c.Watch(bounded, "parcel", id, options...) {
			last, failed = status, err
		}
		return last, failed
	}
	for id, weight := range map[string]int{"light": 1, "heavy": 11} {
		receipt, err := shipping.Submit(bounded, c, id, parcel{weight})
		if err != nil {
			t.Fatal(err)
		}
		first, err := last(id, duly.Since(receipt.At))
		if err != nil || !first.State.Ended() {
			t.Fatalf("%s: %+v, %v", id, first, err)
		}
		// An hour later it is submitted once more.
		for _, option := range []duly.WatchOption{duly.Since(time.Now().Add(time.Hour)), duly.Of(receipt)} {
			again, err := last(id, option)
			if err != nil || again.State != first.State || again.Step != first.Step || again.Error != first.Error {
				t.Errorf("%s again: %+v, %v; the first time %+v", id, again, err, first)
			}
		}
	}
	task, err := c.Get(bounded, "parcel", "heavy")
	if err != nil || task.State != duly.Undone || task.FailedStep != "send" || task.Reason != "too heavy" || len(task.Steps) != 2 || string(task.Input) != `{"Weight":11}` || task.EndedAt.IsZero() {
		t.Errorf("%+v, %v", task, err)
	}
	// What HTTP shows is the same.
	_, body := w.http("GET", "/v1/tasks/parcel/heavy", "", nil)
	view, err := wire.DecodeTask([]byte(body))
	if err != nil || view.FailedStep != "send" || view.ID != "heavy" || !reflect.DeepEqual(json.RawMessage(view.Input), task.Input) {
		t.Errorf("over HTTP: %s: %v", body, err)
	}
	if _, err := c.Get(bounded, "parcel", "nosuch"); !errors.Is(err, duly.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	var ids []string
	filter := duly.Filter{Type: "parcel", Limit: 1}
	for {
		page, err := c.List(bounded, filter)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Tasks {
			ids = append(ids, page.Tasks[i].ID)
		}
		if filter.After = page.Next; page.Next == "" {
			break
		}
	}
	if len(ids) != 2 || !strings.Contains(strings.Join(ids, " "), "heavy") {
		t.Errorf("listed %v", ids)
	}
	if _, err := c.List(bounded, duly.Filter{After: "nonsense"}); !errors.Is(err, duly.ErrRefused) {
		t.Errorf("a cursor that no page told: %v", err)
	}
	// Another input under the id: refused at once, or as soon as it is read.
	receipt, err := shipping.Submit(bounded, c, "light", parcel{2})
	if err == nil {
		_, err = last("light", duly.Of(receipt))
	}
	if refused, ok := errors.AsType[*duly.SubmitError](err); !ok || refused.Code != 409 || !errors.Is(err, duly.ErrRefused) {
		t.Errorf("another input: %v", err)
	}
	receipt, err = c.SubmitRaw(bounded, "parcel", "light", []byte(`{"Weight":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := last("light", duly.Of(receipt)); err != nil || again.State != duly.Processed {
		t.Errorf("the same input: %+v, %v", again, err)
	}
}
