package duly_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
)

// TestNamespace: a client and an agent work with the installation of the namespace
// they are given, by every way that the client has, and with no other.
//
// covers: A8
func TestNamespace(t *testing.T) {
	r := newRigIn(t, "prod", duly.Namespace("prod"))
	if err := Buy.Apply(t.Context(), r.Client); err != nil {
		t.Fatal(err)
	}
	s := &shop{}
	r.work(t, s, duly.Namespace("prod"))
	receipt, err := Buy.Submit(t.Context(), r.Client, "rich", Order{Cents: 100})
	if err != nil {
		t.Fatal(err)
	}
	if last := r.last(t, "rich", duly.Since(receipt.At)); last.State != duly.StateProcessed || s.paid.Load() != 1 {
		t.Errorf("ended %+v with %d payments", last, s.paid.Load())
	}
	if err := r.Cancel(t.Context(), "order", "rich", "test"); err != nil {
		t.Fatal(err)
	}

	other, err := duly.NewClient(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := Buy.Submit(ctx, other, "poor", Order{}); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("submitted to another namespace: %v, want that there is none", err)
	}
	for _, err := range other.Watch(t.Context(), "order", "rich") {
		if err == nil || !strings.Contains(err.Error(), "DULY_EVENTS") {
			t.Errorf("watched in another namespace: %v", err)
		}
	}
}

// TestNamespaceRefused: where it is given, not later.
func TestNamespaceRefused(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"Prod", "a.b", "prod.>", strings.Repeat("n", 33)} {
		if _, err := duly.NewClient(r.nc, duly.Namespace(name)); err == nil || !strings.Contains(err.Error(), `new client: namespace: "`+name[:1]) {
			t.Errorf("client in %q: %v", name, err)
		}
		if _, err := duly.NewAgent(nil, duly.Namespace(name)); err == nil || !strings.Contains(err.Error(), `new agent: namespace: "`+name[:1]) {
			t.Errorf("agent in %q: %v", name, err)
		}
	}
	if _, err := duly.NewClient(r.nc, duly.Namespace("")); err != nil {
		t.Errorf("an empty one is the default: %v", err)
	}
}
