package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/wire"
)

// heavyStore has one task that no message holds, and a list of a thousand.
type heavyStore struct{ limits []int }

func (heavyStore) Get(_ context.Context, _ int, id string) (core.View, error) {
	switch id {
	case "none":
		return core.View{}, core.ErrNotFound
	case "broken":
		return core.View{}, errors.New("the database is away")
	}
	text := []byte(`"` + strings.Repeat("x", 60_000) + `"`)
	return core.View{ID: id, Type: "order", State: core.StateProcessed, Input: text, Steps: []core.StepView{{Name: "a", Result: text, Error: strings.Repeat("ü", 2000)}}}, nil
}

func (s *heavyStore) List(_ context.Context, f core.Filter) (core.Page, error) {
	s.limits = append(s.limits, f.Limit)
	if f.After == "bad" {
		return core.Page{}, core.ErrCursor
	}
	page := core.Page{Next: fmt.Sprint(f.Limit)}
	for i := range f.Limit {
		page.Tasks = append(page.Tasks, core.View{ID: fmt.Sprint("t", i), Type: "order", State: core.StateUndone, Reason: strings.Repeat("r", 1000)})
	}
	return page, nil
}

// An answer fits a message, whatever the store has.
//
// covers: C3
func TestReadsFitAMessage(t *testing.T) {
	store := &heavyStore{}
	s := &reads{node: &Node{cfg: config.Config{Partitions: 4}}, store: store, answer: 100_000, causes: newCauses(nil, time.Now)}
	data, _, err := s.read(t.Context(), &natsbus.ReadRequest{Type: "order", ID: "big"})
	view, decodeErr := wire.DecodeTask(data)
	if err != nil || decodeErr != nil || len(data) > s.answer || view.ID != "big" || len(view.Input) != 0 || len(view.Steps) != 1 || len(view.Steps[0].Result) != 0 {
		t.Errorf("%d bytes, %v, %v", len(data), err, decodeErr)
	}
	data, _, err = s.read(t.Context(), &natsbus.ReadRequest{List: core.Filter{Limit: 1000}})
	page, decodeErr := wire.DecodePage(data)
	if err != nil || decodeErr != nil || len(data) > s.answer || len(page.Tasks) < 50 || page.Next != fmt.Sprint(len(page.Tasks)) {
		t.Errorf("%d bytes, %d tasks, limits %v: %v, %v", len(data), len(page.Tasks), store.limits, err, decodeErr)
	}
	for code, r := range map[int]*natsbus.ReadRequest{
		404: {Type: "order", ID: "none"}, 503: {Type: "order", ID: "broken"}, 400: {List: core.Filter{Limit: 1, After: "bad"}},
	} {
		if _, got, err := s.read(t.Context(), r); got != code || err == nil {
			t.Errorf("%+v: %d, %v, want %d", r, got, err, code)
		}
	}
	if _, code, err := s.read(t.Context(), &natsbus.ReadRequest{Type: "parcel", ID: "big"}); code != 404 || err == nil || !strings.Contains(err.Error(), `no task "big" of type "parcel"`) {
		t.Errorf("another type: %d, %v", code, err)
	}
}

// heldReads is a store whose answers are held back.
type heldReads struct {
	viewReader
	asked, release chan struct{}
}

func (s heldReads) Get(context.Context, int, string) (core.View, error) {
	s.asked <- struct{}{}
	<-s.release
	return core.View{}, core.ErrNotFound
}

// TestReadsAreBounded: of requests to read tasks that come over NATS as many are worked on as may be, and others when these
// are answered.
func TestReadsAreBounded(t *testing.T) {
	s := heldReads{asked: make(chan struct{}, 2*readsMax), release: make(chan struct{})}
	r := &reads{node: &Node{cfg: config.Config{Partitions: 4}, log: slog.New(slog.DiscardHandler)}, store: s, bounded: newBounded(readsMax), ctx: t.Context()}
	for range 2 * readsMax {
		r.serve(&natsbus.ReadRequest{Type: "order", ID: "o-1"}) // whose sender waits for no answer
	}
	for range readsMax {
		<-s.asked
	}
	if r.try(func() {}) {
		t.Error("one more than the limit was taken")
	}
	close(s.release)
	r.wait()
	if len(s.asked) > 0 {
		t.Errorf("%d reads more than the limit", len(s.asked))
	}
	if !r.try(func() {}) {
		t.Error("the slots were not given back")
	}
	r.wait()
}
