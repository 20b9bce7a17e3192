package operate_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"duly.dev/duly/internal/operate"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// shaky is a state store beside which something happens: at the entry, the change or the outcome, before it or after it.
type shaky struct {
	schema.Store
	at   string
	what func() error
}

// around calls what at its place; of an error after a change it is the answer that is lost.
func (s *shaky) around(at string, do func() error) error {
	if s.at == "before "+at {
		if err := s.what(); err != nil {
			return err
		}
	}
	err := do()
	if s.at == "after "+at {
		return errors.Join(err, s.what())
	}
	return err
}

func (s *shaky) Append(ctx context.Context, e operate.AuditEntry) (number int64, again *operate.AuditEntry, err error) {
	err = s.around("the entry", func() (err error) { number, again, err = s.Store.Append(ctx, e); return err })
	return number, again, err
}

func (s *shaky) PutPause(ctx context.Context, p operate.Pause) error {
	return s.around("the change", func() error { return s.Store.PutPause(ctx, p) })
}

func (s *shaky) SetOutcome(ctx context.Context, number int64, outcome string) error {
	return s.around("the outcome", func() error { return s.Store.SetOutcome(ctx, number, outcome) })
}

var moments = []string{"before the entry", "after the entry", "before the change", "after the change", "before the outcome", "after the outcome"}

func newShaky(t *testing.T) *shaky {
	t.Helper()
	store, err := dialects.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "duly.db"), schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &shaky{Store: store}
}

func (s *shaky) desk(now time.Time) *operate.Desk {
	return operate.NewDesk(s, func() time.Time { return now }, slog.New(slog.DiscardHandler))
}

// pause sets a pause, in a goroutine that may be killed.
func (s *shaky) pause(ctx context.Context, now time.Time) (err error) {
	var killed sync.WaitGroup
	err = errors.New("killed")
	killed.Go(func() {
		p := &operate.Pausing{Store: s, Desk: s.desk(now), Flow: s.Store.(operate.FlowReader), Announce: func() error { return nil }, Now: func() time.Time { return now }}
		_, err = p.SetPause(ctx, olga, operate.Pause{Agent: "ship", Reason: "strike", EvenIfUnknown: true})
	})
	killed.Wait()
	return err
}

// agrees holds the trail to what is in force: each entry has its outcome, and done are those whose pause is there.
func (s *shaky) agrees(t *testing.T) {
	t.Helper()
	s.at = ""
	pauses, err := s.Pauses(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page, err := s.Audit(t.Context(), operate.AuditFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	done := 0
	for _, e := range page.Entries {
		there := slices.ContainsFunc(pauses, func(p operate.Pause) bool { return e.Target == "pause/"+p.ID })
		if there {
			done++
		}
		if !operate.IsSettled(e.Outcome) || there != (e.Outcome == operate.WasMade) {
			t.Errorf("the pause is there: %v; the trail says: %q", there, e.Outcome)
		}
	}
	if done != len(pauses) {
		t.Errorf("%d pauses, %d of them in the trail", len(pauses), done)
	}
}

// TestOutcomesOutliveTheirClients: a client that goes, at any moment, leaves no entry without its outcome.
//
// covers: O1
func TestOutcomesOutliveTheirClients(t *testing.T) {
	now := time.Now()
	for _, at := range moments {
		t.Run(at, func(t *testing.T) {
			s := newShaky(t)
			ctx, leave := context.WithCancel(t.Context())
			s.at, s.what = at, func() error { leave(); return nil }
			_ = s.pause(ctx, now) // its answer is lost
			s.agrees(t)
		})
	}
}

// TestInForceIsDone: whatever the maker of a change hears, and whether it lives on, an entry says done when its change is in
// force, and then alone. What is left without an outcome is settled later, by any number of nodes at once.
//
// covers: O1, O12
func TestInForceIsDone(t *testing.T) {
	now := time.Now()
	for what, happens := range map[string]func() error{
		"killed":        func() error { runtime.Goexit(); return nil },
		"not answering": func() error { return errors.New("connection reset") },
	} {
		for _, at := range moments {
			t.Run(what+" "+at, func(t *testing.T) {
				s := newShaky(t)
				s.at, s.what = at, happens
				err := s.pause(t.Context(), now)
				s.at = ""
				if pauses, _ := s.Pauses(t.Context()); what == "not answering" && (err == nil) != (len(pauses) == 1) {
					t.Errorf("%d pauses, and it was told %v", len(pauses), err)
				}
				s.settle(t, now.Add(time.Minute), 3)
				s.agrees(t)
			})
		}
	}
}

// settle settles as so many nodes do.
func (s *shaky) settle(t *testing.T, now time.Time, nodes int) {
	t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	for range nodes {
		all.Go(func() {
			look := func(context.Context, *operate.AuditEntry) (string, error) { return operate.NotMade, nil }
			if err := s.desk(now).Settle(t.Context(), s, look); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestChangesBesideTheirVerdict: a change that comes late, while its entry is settled as not made, is in force or failed, never both.
//
// covers: O12
func TestChangesBesideTheirVerdict(t *testing.T) {
	s, now := newShaky(t), time.Now()
	for range 30 {
		var both sync.WaitGroup
		both.Go(func() { _ = s.pause(t.Context(), now) })
		both.Go(func() { s.settle(t, now.Add(time.Minute), 1) })
		both.Wait()
	}
	s.settle(t, now.Add(time.Minute), 1)
	s.agrees(t)
}

// TestSettleWaits: an entry that is worked on is not settled, and what is not known yet is looked at again.
func TestSettleWaits(t *testing.T) {
	s, now := newShaky(t), time.Now()
	s.at, s.what = "before the change", func() error { runtime.Goexit(); return nil }
	_ = s.pause(t.Context(), now)
	s.at = ""
	key := operate.Act{By: olga, Action: "undo", Target: "task/order/o-1", Key: "k"}
	if err := s.desk(now).Ask(t.Context(), &key, func(context.Context) (string, error) { return "", errors.New("it may be stored") }); err == nil {
		t.Fatal("asked")
	}
	asked := operate.Act{By: olga, Action: "undo", Target: "task/order/o-2"}
	if err := s.desk(now).Ask(t.Context(), &asked, func(context.Context) (string, error) { return "2.7", nil }); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		after time.Duration
		want  []int64
	}{{0, []int64{3}}, {time.Second, []int64{3}}, {time.Minute, []int64{1, 3}}, {16 * time.Minute, []int64{1, 2, 3}}} {
		var looked []int64
		if err := s.desk(now.Add(x.after)).Settle(t.Context(), s, func(_ context.Context, e *operate.AuditEntry) (string, error) {
			if partition, position, known := e.Place(); known != (e.Number == 3) || known && (partition != 2 || position != 7) {
				t.Errorf("entry %d: %d.%d, %v", e.Number, partition, position, known)
			}
			looked = append(looked, e.Number)
			return "", nil
		}); err != nil || !slices.Equal(looked, x.want) {
			t.Errorf("after %v looked at %v, %v, want %v", x.after, looked, err, x.want)
		}
	}
}

// TestKeysBesideTheirVerdict: what is asked again by a key is not carried out while what became of it may be looked up. It would
// be carried out, and the trail would say that it was not.
//
// covers: O12
func TestKeysBesideTheirVerdict(t *testing.T) {
	now := time.Now()
	lost := errors.New("killed, or the answer is lost")
	for name, ask := range map[string]func(*operate.Desk, func()) error{
		"change": func(d *operate.Desk, do func()) error {
			return d.Change(t.Context(), &operate.Act{By: olga, Action: operate.ScheduleRunNow, Target: "schedule/s", Key: "k", Away: true}, func(context.Context) error { do(); return lost })
		},
		"ask": func(d *operate.Desk, do func()) error {
			return d.Ask(t.Context(), &operate.Act{By: olga, Action: "undo", Target: "task/order/o-1", Key: "k"}, func(context.Context) (string, error) { do(); return "", lost })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, done := newShaky(t), 0
			for after := time.Duration(0); after < 20*time.Minute; after += 15 * time.Second {
				was := done
				err := ask(s.desk(now.Add(after)), func() { done++ })
				if bad, refused := errors.AsType[*operate.Refusal](err); done == was && (!refused || bad.Code != 503 || bad.RetryMS == 0) {
					t.Fatalf("after %v: %v", after, err)
				}
				if err := s.desk(now.Add(after+operate.DeskMax)).Settle(t.Context(), s, func(context.Context, *operate.AuditEntry) (string, error) {
					if done > was {
						t.Fatalf("what became of it is looked up %v after the first request, and it is carried out from %v after it on", after+operate.DeskMax, after)
					}
					return "", nil // its owner is away
				}); err != nil {
					t.Fatal(err)
				}
			}
			if done < 14*60/15 {
				t.Errorf("it was carried out %d times: a request whose answer is lost is to be repeated for some minutes", done)
			}
			s.settle(t, now.Add(20*time.Minute), 1)
			if bad, refused := errors.AsType[*operate.Refusal](ask(s.desk(now.Add(20*time.Minute)), func() { t.Error("it is carried out after its verdict") })); !refused || bad.Code != 409 {
				t.Errorf("after its verdict: %+v", bad)
			}
		})
	}
}
