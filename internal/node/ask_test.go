package node

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/wire"
)

// slowAsks is a store and a control stream; what is asked of a task called slow is not
// answered before release is closed.
type slowAsks struct {
	release chan struct{}
	actors  chan string
}

func (s slowAsks) Get(_ context.Context, partition int, id string) (core.View, error) {
	return core.View{ID: id, Type: "order", Partition: partition, State: core.StateProcessing, Possible: []string{"cancel", "signal", "undo"}}, nil
}

func (s slowAsks) Ask(_ context.Context, _ int, c core.Control) (uint64, error) {
	if c.ID == "slow" {
		<-s.release
	}
	s.actors <- c.Actor
	return 7, nil
}

// Append implements operate.TrailWriter.
func (s slowAsks) Append(context.Context, operate.AuditEntry) (int64, *operate.AuditEntry, error) {
	return 1, nil, nil
}

// SetOutcome implements operate.TrailWriter.
func (s slowAsks) SetOutcome(context.Context, int64, string) error { return nil }

// slowDoor is a door before them.
func slowDoor(t *testing.T) (slowAsks, *askDoor) {
	t.Helper()
	s := slowAsks{release: make(chan struct{}), actors: make(chan string, 2*asksMax)}
	log := slog.New(slog.DiscardHandler)
	asks, err := api.NewRequests(api.RequestsConfig{Partitions: 4, PartitionOf: wire.PartitionOf, Desk: operate.NewDesk(s, time.Now, log)}, s, s, log)
	if err != nil {
		t.Fatal(err)
	}
	return s, newAskDoor(asks)
}

// brokenTrail writes nothing down.
type brokenTrail struct{ slowAsks }

// Append implements operate.TrailWriter.
func (brokenTrail) Append(context.Context, operate.AuditEntry) (int64, *operate.AuditEntry, error) {
	return 0, nil, errors.New("no space is left")
}

// TestAskWithoutTrail: what cannot be written down is not asked, and an operator is told so over NATS as over HTTP.
func TestAskWithoutTrail(t *testing.T) {
	t.Parallel()
	s := brokenTrail{}
	log := slog.New(slog.DiscardHandler)
	asks, err := api.NewRequests(api.RequestsConfig{Partitions: 4, PartitionOf: wire.PartitionOf, Desk: operate.NewDesk(s, time.Now, log)}, s, s, log)
	if err != nil {
		t.Fatal(err)
	}
	_, bad := asks.AskAs(t.Context(), operate.Actor{Name: "olga", Role: operate.RoleOperator, Via: "nats"}, core.Control{Kind: core.EventCancel, ID: "o-1", Type: "order", Actor: "olga"})
	if bad == nil || bad.Code != 503 || bad.ErrCode != ingest.CauseStore || bad.Retry != time.Second || bad.Error() != say.Of("refuse.trail-not-changed") {
		t.Errorf("%+v", bad)
	}
}

// A request whose publish takes long delays none of the others; over the limit they are
// refused at once, to come again.
func TestAsksDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := slowDoor(t)
		answers := make(chan int, 2*asksMax) // codes; 0: taken
		answer := func(asked api.Asked, bad *ingest.Refusal) {
			if bad != nil {
				answers <- bad.Code
				if bad.Retry <= 0 {
					t.Error("no word of when to come again")
				}
				return
			}
			if asked.Seq != 7 || asked.State != core.StateProcessing {
				t.Errorf("answered %+v", asked)
			}
			answers <- 0
		}
		ask := func(id string) {
			d.take(d.try, core.Control{Kind: core.EventCancel, ID: id, Type: "order", Actor: "olga"}, answer)
		}
		for range asksMax - 1 {
			ask("slow")
		}
		for range 10 { // one slot is free, again and again
			ask("quick")
			synctest.Wait()
			if len(answers) != 1 || <-answers != 0 {
				t.Fatal("a quick request waits for slow ones")
			}
		}
		ask("slow")
		ask("quick")
		if len(answers) != 1 || <-answers != 429 {
			t.Fatal("one more than the limit was taken")
		}
		close(s.release)
		d.wg.Wait()
		if len(answers) != asksMax || <-s.actors != "olga@nats" {
			t.Errorf("%d answers", len(answers))
		}
		ask("quick")
		d.wg.Wait()
		if len(answers) != asksMax+1 {
			t.Error("the slots were not given back")
		}
	})
}

// TestOperatorsHaveRoom: however many requests submitters make, one of an operator finds room beside them: to look, to cancel
// a task of any type, and for what operators alone may ask.
//
// covers: E25
func TestOperatorsHaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := slowDoor(t)
		ask := func(ofType bool, kind core.EventKind) {
			c := core.Control{Kind: kind, ID: "slow", Type: "order"}
			if kind == core.EventSignal {
				c.Step, c.Result = "approve", []byte("1")
			}
			d.serve(&natsbus.AskRequest{Control: c, OfType: ofType})
		}
		for range 2 * asksMax {
			ask(true, core.EventCancel)
			ask(true, core.EventSignal)
		}
		synctest.Wait()
		common := len(d.slots)
		if common != asksMax-asksMax/4 {
			t.Errorf("%d requests that submitters may make are worked on, of %d", common, asksMax)
		}
		ask(false, core.EventCancel)
		ask(true, core.EventUndo)
		synctest.Wait()
		if len(d.slots) != common+2 {
			t.Errorf("%d of 2 requests of operators are worked on", len(d.slots)-common)
		}
		close(s.release)
		d.wait()
		if len(d.slots)+len(d.common) != 0 {
			t.Error("room is not given back")
		}
	})
}

// TestOneTableOfCodes: the finer codes that the wire gives are ingest's.
func TestOneTableOfCodes(t *testing.T) {
	for is, want := range map[int]int{
		wire.ErrCodeType: ingest.CauseTypeName, wire.ErrCodeID: ingest.CauseIDName, wire.ErrCodeLabels: ingest.CauseLabels, wire.ErrCodeHeader: ingest.CauseHeader,
		wire.ErrCodeTaken: ingest.CauseConflict, wire.ErrCodeQuery: ingest.CauseQuery, wire.ErrCodeStore: ingest.CauseStore, wire.ErrCodeBody: ingest.CauseBody,
	} {
		if is != want {
			t.Errorf("wire says %d, ingest %d", is, want)
		}
	}
}
