package books

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// cupboard is a Keeper in memory.
type cupboard struct {
	operate.BooksStore
	operate.SettingStore
	mu        sync.Mutex
	last      operate.BooksResult
	ghosts    []operate.Ghost
	accepted  []operate.Ghost
	documents map[string][]byte
	puts      int
	broken    error
	away      error // what a look at whether someone asks meets
}

func (c *cupboard) PutBooks(_ context.Context, r operate.BooksResult, ghosts []operate.Ghost) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.ghosts = r, ghosts
	c.puts++
	return nil
}

func (c *cupboard) LastBooks(context.Context) (operate.BooksResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.At.IsZero() {
		return c.last, core.ErrNotFound
	}
	return c.last, nil
}

func (c *cupboard) Ghosts(_ context.Context, statuses []operate.GhostStatus, _ int, _ string) ([]operate.Ghost, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(statuses, []operate.GhostStatus{operate.GhostAccepted}) {
		return nil, "", errors.New("want those that are accepted")
	}
	return c.accepted, "", c.broken
}

func (c *cupboard) Setting(_ context.Context, name string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, ok := c.documents[name]
	switch {
	case c.away != nil:
		return nil, c.away
	case !ok:
		return nil, core.ErrNotFound
	}
	return data, nil
}

func (c *cupboard) PutSetting(_ context.Context, name string, document []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.documents[name] = document
	return nil
}

func (c *cupboard) compared() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.puts
}

// chair is a Leader.
type chair struct {
	mu    sync.Mutex
	leads bool
}

func (c *chair) Leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leads
}

func (c *chair) set(leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leads = leads
}

// reconciling runs a reconciler in a bubble until its end.
func reconciling(t *testing.T, w *world, cfg Config, test func(r *Reconciler, c *cupboard, leader *chair, reports func() []error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, leader := &cupboard{documents: map[string][]byte{}}, &chair{leads: true}
		var mu sync.Mutex
		var reported []error
		cfg.Report = func(err error) { mu.Lock(); defer mu.Unlock(); reported = append(reported, err) }
		if cfg.Window == 0 {
			cfg.Window = 200 * 365 * 24 * time.Hour // the bubble's clock begins before the tasks
		}
		if cfg.Pages == 0 {
			cfg.Pages = 100
		}
		b := New(w, w, 1, func(string, int) int { return 0 }, nil)
		r, err := NewReconciler(cfg, b, c, leader)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		test(r, c, leader, func() []error { mu.Lock(); defer mu.Unlock(); return slices.Clone(reported) })
		cancel()
		<-done
	})
}

func after(d time.Duration) {
	<-time.After(d) // in a bubble
	synctest.Wait()
}

// TestReconcilesFromTimeToTime: the leader compares at once, then once an interval, and keeps what it found; a process that
// does not lead does not.
//
// covers: OP7
func TestReconcilesFromTimeToTime(t *testing.T) {
	w := newWorld()
	w.run(t, "undone", 0, 0, 422)
	w.effects["warehouse"]["undone/reserve/0"] = 1
	reconciling(t, w, Config{Interval: time.Hour}, func(r *Reconciler, c *cupboard, leader *chair, reports func() []error) {
		after(time.Minute)
		last, ok := r.Last()
		if !ok || c.compared() != 1 || last.Total != 1 || len(c.ghosts) != 1 || c.ghosts[0].Kind != operate.GhostOfUndone {
			t.Fatalf("%d comparisons, %+v, %+v", c.compared(), last, c.ghosts)
		}
		after(50 * time.Minute)
		if c.compared() != 1 {
			t.Errorf("%d comparisons within an hour", c.compared())
		}
		after(10 * time.Minute)
		if c.compared() != 2 {
			t.Errorf("%d comparisons after an hour, want 2", c.compared())
		}
		leader.set(false)
		after(3 * time.Hour)
		if _, ok := r.Last(); ok || c.compared() != 2 {
			t.Errorf("%d comparisons without leading, and it tells of them: %v", c.compared(), ok)
		}
		for _, err := range reports() {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// TestReconcilesWhenAsked: without an interval a comparison is made for each request, once, also by a leader that comes
// after.
func TestReconcilesWhenAsked(t *testing.T) {
	ask := func(c *cupboard, id string) {
		data, err := json.Marshal(operate.BooksAsked{ID: id, By: "olga"})
		if err != nil {
			t.Fatal(err)
		}
		_ = c.PutSetting(t.Context(), operate.SettingBooksAsked, data)
	}
	reconciling(t, newWorld(), Config{}, func(_ *Reconciler, c *cupboard, leader *chair, _ func() []error) {
		after(2 * time.Hour)
		if c.compared() != 0 {
			t.Fatalf("%d comparisons that no one asked for", c.compared())
		}
		ask(c, "one")
		after(time.Minute)
		if c.compared() != 1 || c.last.Answers != "one" {
			t.Fatalf("%d comparisons, %+v", c.compared(), c.last)
		}
		leader.set(false)
		after(time.Minute)
		leader.set(true)
		after(time.Hour)
		if c.compared() != 1 {
			t.Errorf("%d comparisons for one request", c.compared())
		}
		ask(c, "two")
		after(time.Minute)
		if c.compared() != 2 || c.last.Answers != "two" {
			t.Errorf("%d comparisons, %+v", c.compared(), c.last)
		}
	})
}

// TestReconcilerHoldsNothingUp: pages come no faster than they may, none while the engine has too much to do, and none any
// more when another leads.
func TestReconcilerHoldsNothingUp(t *testing.T) {
	w := newWorld()
	for i := range 40 {
		w.run(t, "good-"+string(rune('a'+i%26))+string(rune('a'+i/26)), 0, 0, 0)
	}
	var mu sync.Mutex
	full := false
	cfg := Config{Interval: time.Hour, Pages: 1, Overloaded: func() bool { mu.Lock(); defer mu.Unlock(); return full }}
	reconciling(t, w, cfg, func(_ *Reconciler, c *cupboard, leader *chair, reports func() []error) {
		after(30 * time.Second)
		if c.compared() != 0 {
			t.Fatal("40 pages of two effects were read within 30 s, at one a second")
		}
		mu.Lock()
		full = true
		mu.Unlock()
		after(10 * time.Minute)
		if c.compared() != 0 {
			t.Fatal("it went on while the engine had too much to do")
		}
		mu.Lock()
		full = false
		mu.Unlock()
		after(5 * time.Second)
		leader.set(false)
		after(10 * time.Minute)
		if c.compared() != 0 || len(reports()) != 0 {
			t.Errorf("it went on while another led: %v", reports())
		}
		leader.set(true)
		after(2 * time.Minute)
		if c.compared() != 1 {
			t.Errorf("%d comparisons, want one that was begun again", c.compared())
		}
	})
}

// TestReconcilerFails: a comparison that fails is reported and noted for people, and tried again after a while.
func TestReconcilerFails(t *testing.T) {
	reconciling(t, newWorld(), Config{Interval: time.Hour}, func(_ *Reconciler, c *cupboard, _ *chair, reports func() []error) {
		c.mu.Lock()
		c.broken = errors.New("the state store is away")
		c.mu.Unlock()
		after(10 * time.Minute)
		n := len(reports())
		var failed operate.BooksFailed
		if err := json.Unmarshal(c.documents[operate.SettingBooksFailed], &failed); err != nil || failed.Text == "" || n < 5 || n > 12 || reports()[0] == nil {
			t.Fatalf("%d reports, %+v, %v", n, failed, err)
		}
		c.mu.Lock()
		c.broken = nil
		c.mu.Unlock()
		after(2 * time.Minute)
		if all := reports(); c.compared() != 1 || all[len(all)-1] != nil {
			t.Errorf("%d comparisons, %v", c.compared(), all)
		}
	})
}

// TestReconcilerSeesAgain: a look that failed because the state store was away is no trouble for longer than that, nor once
// another leads.
func TestReconcilerSeesAgain(t *testing.T) {
	reconciling(t, newWorld(), Config{Interval: time.Hour}, func(_ *Reconciler, c *cupboard, leader *chair, reports func() []error) {
		away := func(err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.away = err
		}
		last := func() error { all := reports(); return all[len(all)-1] }
		after(time.Minute)
		for _, end := range []func(){func() { away(nil) }, func() { leader.set(false) }} {
			away(errors.New("the state store is away"))
			after(10 * time.Second)
			if last() == nil {
				t.Error("a look that failed is not told")
			}
			end()
			after(10 * time.Second)
			if last() != nil {
				t.Errorf("it is told as if it failed still: %v", last())
			}
		}
	})
}
