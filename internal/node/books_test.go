package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/wire"
)

// vault is a service that keeps books of its effects.
type vault struct {
	mu      sync.Mutex
	effects map[string]int // by key: how often it was made
}

func (v *vault) change(key string, by int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.effects[key] += by; v.effects[key] <= 0 {
		delete(v.effects, key)
	}
}

// Since implements duly.Books.
func (v *vault) Since(_ context.Context, _ time.Time, after string, limit int) (page []duly.Effect, next string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var keys []string
	for key := range v.effects {
		if key > after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if len(keys) > limit {
		keys, next = keys[:limit], keys[limit-1]
	}
	for _, key := range keys {
		page = append(page, duly.Effect{Key: key, Times: v.effects[key]})
	}
	return page, next, nil
}

// Find implements duly.Books.
func (v *vault) Find(_ context.Context, keys []string) (found []duly.Effect, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, key := range keys {
		if n := v.effects[key]; n > 0 {
			found = append(found, duly.Effect{Key: key, Times: n})
		}
	}
	return found, nil
}

// TestCompareBooks: over a real node, agent and NATS the books close, and what is planted in them is named; by the command
// beside the node, and by the node's own reconciler, which tells operators, repairs what the task's owner can undo, and
// remembers what was accepted.
//
// covers: OP10, OP16
func TestCompareBooks(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := startNATS(t)
	cfg := good()
	cfg.NATSURL, cfg.DatabaseURL, cfg.Namespace = server.ClientURL(), "sqlite:"+filepath.Join(t.TempDir(), "duly.db"), wire.DefaultNamespace
	cfg.Lease, cfg.ScanInterval, cfg.ReplyTo = 2*time.Second, 100*time.Millisecond, []string{"_INBOX."}
	if err := Migrate(ctx, cfg.DatabaseURL); err != nil {
		t.Fatal(err)
	}
	n, err := Open(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	v := &vault{effects: map[string]int{}}
	a, err := duly.NewAgent(nc, duly.Log(slog.New(slog.DiscardHandler)), duly.WithBooks("vault", v))
	if err != nil {
		t.Fatal(err)
	}
	put := duly.NewStep[int, int]("put", "vault")
	check := duly.NewCheck[int, int]("check", "guard")
	plan := duly.NewPlan[int]("deposit", 1, put, check)
	err = errors.Join(
		put.Serve(a, func(_ context.Context, c duly.Call[int]) (int, error) { v.change(c.Key, 1); return 1, nil },
			func(_ context.Context, u duly.Undo[int, int]) error { v.change(u.Key, -1); return nil }),
		check.Serve(a, func(_ context.Context, c duly.Call[int]) (int, error) {
			if c.Input == 0 {
				return 0, duly.Refuse(errors.New("not today"))
			}
			return 1, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { err = errors.Join(n.Run(running), n.Close()) })
	wg.Go(func() { _ = a.Run(running) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		nc.Close()
		if err != nil {
			t.Error(err)
		}
	})
	c, err := duly.NewClient(nc)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the plan is taken", func() bool { return plan.Apply(ctx, c) == nil })
	for i := range 5 {
		until(t, "a task is taken", func() bool { _, err := plan.Submit(ctx, c, fmt.Sprintf("d-%d", i), i); return err == nil })
	}
	until(t, "all have ended", func() bool {
		counts, _ := n.store.Counts(ctx)
		ended := int64(0)
		for _, c := range counts {
			if c.State == core.StateProcessed || c.State == core.StateUndone {
				ended += c.Tasks
			}
		}
		return ended == 5
	})
	beside := cfg
	beside.Partitions = 3 // whoever compares need not know how many there are
	report, err := CompareBooks(ctx, beside, time.Now().Add(-time.Hour))
	if err != nil || !report.Closed || report.Effects != 4 || report.Tasks != 4 {
		t.Fatalf("%+v, %v", report, err)
	}
	v.change("d-1/put/0", -1)
	v.change("d-2/put/0", 1)
	v.change("d-0/put/0", 1)
	if report, err = CompareBooks(ctx, cfg, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	got := map[string]operate.GhostKind{}
	for _, g := range report.Ghosts {
		got[g.Key] = g.Kind
	}
	if len(got) != 3 || got["d-1/put/0"] != operate.GhostMissing || got["d-2/put/0"] != operate.GhostDoubled || got["d-0/put/0"] != operate.GhostOfUndone || report.Closed {
		t.Errorf("%+v", report)
	}
	reconciled(t, n, v)
}

// reconciled has the node compare, and repairs each of the three ghosts that are planted.
func reconciled(t *testing.T, n *Node, v *vault) {
	t.Helper()
	ctx := t.Context()
	asks, err := n.newRequests()
	if err != nil {
		t.Fatal(err)
	}
	b, by := n.bookkeeping(api.NewActions(asks)), operate.Actor{Name: "olga", Role: operate.RoleOperator, Via: "http"}
	compare := func() operate.BooksView {
		t.Helper()
		asked, err := b.Compare(ctx, by, "")
		if err != nil {
			t.Fatal(err)
		}
		var view operate.BooksView
		until(t, "the node compares", func() bool {
			view, err = b.Books(ctx)
			return err == nil && view.Answers == asked.Asked.ID
		})
		return view
	}
	in := func(name string) (keys []string) {
		for _, trouble := range n.ground.Troubles() {
			if trouble.Name == name {
				keys = append(keys, trouble.Key)
			}
		}
		slices.Sort(keys)
		return keys
	}
	if view := compare(); view.Total != 3 || view.Closed || view.Effects != 4 {
		t.Fatalf("%+v", view)
	}
	until(t, "operators are told", func() bool {
		return slices.Equal(in(condGhosts), []string{"effect_doubled", "effect_missing", "effect_of_undone"})
	})
	for _, want := range []string{"duly_books_closed 0\n", `duly_books_ghosts{kind="effect_missing"} 1` + "\n"} {
		if text := measured(t, n); !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	for effect, repair := range map[string]operate.Repair{"d-0/put/0": operate.RepairUndo, "d-1/put/0": operate.RepairUndo, "d-2/put/0": operate.RepairAccept} {
		if _, err := b.Repair(ctx, by, operate.RepairRequest{Agent: "vault", Effect: effect, Repair: repair, Reason: "seen to", Key: effect}); err != nil {
			t.Fatalf("%s of %s: %v", repair, effect, err)
		}
	}
	state := func(id string) core.State {
		view, err := n.store.Get(ctx, wire.PartitionOf(id, n.cfg.Partitions), id)
		if err != nil {
			t.Fatal(err)
		}
		return view.State
	}
	until(t, "the effect of the undone task is taken back", func() bool {
		found, _ := v.Find(ctx, []string{"d-0/put/0"})
		return len(found) == 0 && state("d-0") == core.StateUndone
	})
	until(t, "the task without its effect is undone", func() bool { return state("d-1") == core.StateUndone })
	if view := compare(); !view.Closed || view.Accepted != 1 || !strings.HasSuffix(view.Sentence, " 1 accepted difference is not counted.") {
		t.Errorf("after the repairs: %+v", view)
	}
	if ghosts, _, err := b.Ghosts(ctx, []operate.GhostStatus{operate.GhostOpen, operate.GhostAsked}, 10, ""); err != nil || len(ghosts) != 0 {
		t.Errorf("%+v, %v", ghosts, err)
	}
	until(t, "operators are told of the end", func() bool { return len(in(condGhosts)) == 0 })
}
