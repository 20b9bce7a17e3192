package drone

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/dev"
)

const patience = 90 * time.Second

// system is a server with the agents and the face of the example.
type system struct {
	flow     *Workflow
	services *Services
	client   *duly.Client
	doors    *ClientDoors
	url      string // of the HTTP API
	restarts func() int
}

// startSystem runs a server until the test ends: in one piece, or, when restarts is not 0, each role of it and the agent
// again every so often.
func startSystem(t *testing.T, store string, services ServiceOptions, restarts time.Duration) *system {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := dev.Config("one", 4)
	cfg.HTTPAddr, cfg.ScanInterval, cfg.Lease = listener.Addr().String(), 100*time.Millisecond, time.Second
	s := &system{flow: NewWorkflow(QuickPlan()), services: newServices(t, services), url: "http://" + cfg.HTTPAddr}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	sys, err := dev.Start(t.Context(), dev.Options{Dir: t.TempDir(), Store: store, Config: cfg, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sys.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	nc := connectNATS(t, sys.NATSURL)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	s.restarts = sys.Restarts
	run := sys.Run
	if restarts != 0 {
		run = func(ctx context.Context) error { return sys.Keep(ctx, restarts) }
	}
	running.Go(func() {
		if err := run(ctx); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	if s.doors, err = NewDoors(nc, s.flow); err == nil {
		s.client, err = duly.NewClient(nc)
	}
	if err == nil {
		err = s.flow.Apply(ctx, s.client)
	}
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		for ctx.Err() == nil {
			if err := s.serve(ctx, restarts); err != nil {
				t.Errorf("agent: %v", err)
				return
			}
		}
	})
	return s
}

// serve is one life of the agent, which ends after a while if that is not 0.
func (s *system) serve(ctx context.Context, life time.Duration) error {
	agent, err := NewAgent(s.doors.nc, s.flow, s.services)
	if err == nil {
		err = s.flow.Rescheduling.Serve(agent, s.doors)
	}
	if err != nil {
		return err
	}
	if life != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, life)
		defer cancel()
	}
	return agent.Run(ctx)
}

// Task is Tasks without the HTTP API.
func (s *system) Task(ctx context.Context, typ, id, _ string) (Task, error) {
	task, err := s.client.Get(ctx, typ, id)
	if errors.Is(err, duly.ErrNotFound) {
		return Task{}, ErrNoTask
	}
	return Task{State: string(task.State), Reason: task.Reason, Input: task.Input}, err
}

// await polls until a task has ended, and gives its state.
func (s *system) await(t *testing.T, typ, id string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		task, err := s.Task(ctx, typ, id, "")
		if err == nil && task.ended() {
			return task.State
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s %s is %q: %v", typ, id, task.State, err)
		}
	}
}

// Deliveries are rescheduled on a server whose roles, and whose agent, end and begin again all the time: everything that
// was accepted ends as a whole, and a delivery that is undone for its successor has one.
//
// covers: D3, T9
func TestRescheduleInAStorm(t *testing.T) {
	for _, store := range []string{dev.StoreSQLite, dev.StorePostgres} {
		t.Run(store, func(t *testing.T) {
			s := startSystem(t, store, ServiceOptions{Seed: 7, Scale: 1, Faults: Faults{Refused: 0.05, Transient: 0.1}}, 1500*time.Millisecond)
			face := NewFace(FaceOptions{Doors: s.doors, Tasks: s, Timeout: 20 * time.Second})
			var accepted []string
			outcomes, g, moved := OutcomeMap{}, NewGenerator(7), 0
			for s.restarts() < 6 {
				batch := make([]Request, 8)
				rescheduled := make([]bool, len(batch))
				var callers sync.WaitGroup
				for i := range batch {
					batch[i] = g.Request(len(accepted) + i)
					callers.Go(func() { rescheduled[i] = deliverAndPatch(t, face, &batch[i]) })
				}
				callers.Wait()
				for i := range batch {
					id := batch[i].DeliveryID
					accepted, outcomes[id] = append(accepted, id), Outcome{State: s.await(t, Type, id)}
					if !rescheduled[i] {
						continue
					}
					switch s.await(t, TypeReschedule, rescheduleID(successor(id))) {
					case StateProcessed:
						moved++
						next := successor(id)
						accepted, outcomes[next] = append(accepted, next), Outcome{State: s.await(t, Type, next)}
						if outcomes[id].State != StateUndone {
							t.Errorf("delivery %s is %s and has a successor", id, outcomes[id].State)
						}
					case StateError:
						t.Errorf("the rescheduling of %s is in error", id)
					}
				}
			}
			if err := s.services.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			report := s.services.Books().Check(accepted, outcomes)
			if !report.Clean() || moved == 0 {
				t.Errorf("report %+v", report)
			}
			t.Logf("%d deliveries, %d of them successors, %d restarts", report.Accepted, moved, s.restarts())
		})
	}
}

// deliverAndPatch hands a delivery in and reschedules it, twice as one that got no answer would.
func deliverAndPatch(t *testing.T, face *Face, r *Request) (rescheduled bool) {
	at := requests + "/" + r.DeliveryID
	insist(t, face, "POST", requests, bodyOf(t, *r))
	first, again := insist(t, face, "PATCH", at, later), insist(t, face, "PATCH", at, later)
	if first != again && first != http.StatusAccepted {
		t.Errorf("delivery %s: %d, then %d", r.DeliveryID, first, again)
	}
	return first == http.StatusAccepted
}

// insist asks until the answer is no trouble of the server.
func insist(t *testing.T, face *Face, method, at, body string) (code int) {
	for by := time.Now().Add(patience); ; {
		w := ask(face, method, at, body)
		if w.Code < 500 && w.Code != http.StatusNotFound {
			return w.Code
		}
		if time.Now().After(by) {
			t.Errorf("%s %s: %d %s", method, at, w.Code, w.Body)
			return w.Code
		}
	}
}

// TestRescheduleOverHTTP: the Location of a PATCH never answers 404, on a server with its HTTP API.
func TestRescheduleOverHTTP(t *testing.T) {
	s := startSystem(t, dev.StoreSQLite, ServiceOptions{Seed: 7, Scale: 8}, 0)
	tasks, err := NewHTTPTasks(s.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tasks.client.CloseIdleConnections)
	face := NewFace(FaceOptions{Doors: s.doors, Tasks: tasks, Timeout: 20 * time.Second})
	moved := 0
	for i := range 3 {
		r := NewGenerator(7).Request(i)
		insist(t, face, "POST", requests, bodyOf(t, r))
		w := ask(face, "PATCH", requests+"/"+r.DeliveryID, later)
		if w.Code == http.StatusConflict {
			continue // it was carried out meanwhile
		}
		another := NewFace(FaceOptions{Doors: s.doors, Tasks: tasks}) // that did not store it
		for now := ""; now != StateProcessed && now != StateUndone && !t.Failed(); {
			got := ask(another, "GET", w.Header().Get("Location"), "")
			if got.Code != http.StatusOK {
				t.Errorf("behind the 202: %d %s", got.Code, got.Body)
			}
			var answer state
			if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			now = answer.State
		}
		old := s.await(t, Type, r.DeliveryID)
		switch rescheduling := s.await(t, TypeReschedule, rescheduleID(successor(r.DeliveryID))); {
		case rescheduling == StateProcessed && old == StateUndone:
			moved++
		case rescheduling != StateUndone || old != StateProcessed:
			t.Errorf("delivery %s is %s, its rescheduling %s", r.DeliveryID, old, rescheduling)
		}
	}
	if moved == 0 {
		t.Error("no delivery was rescheduled")
	}
}
