package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// oneBreaker is the store of the breaker of one agent.
type oneBreaker struct {
	is    core.Breaker
	taken bool // another node is always first
}

func (s *oneBreaker) Breakers(context.Context) ([]core.Breaker, error) {
	if s.is.Agent == "" {
		return nil, nil
	}
	return []core.Breaker{s.is}, nil
}

func (s *oneBreaker) PutBreaker(_ context.Context, b core.Breaker) (bool, error) {
	if s.taken || b.Revision != s.is.Revision+1 {
		return false, nil
	}
	s.is = b
	return true, nil
}

func (s *oneBreaker) ReportCalls(_ context.Context, _, _ string, _ int64, _ core.Instant, calls core.Calls, _ core.Instant) (core.Calls, error) {
	return calls, nil
}

// breakerRig is the half of breakers that is a node's, with a shard's counts of one agent.
type breakerRig struct {
	t         *testing.T
	now       core.Instant
	store     oneBreaker
	sched     *Scheduler
	book      agentBook
	announced int
}

func newBreakerRig(t *testing.T, is core.Breaker) *breakerRig {
	r := &breakerRig{t: t, now: core.InstantOf(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), store: oneBreaker{is: is}}
	policy := core.BreakerPolicy{SharePct: 50, CallsMin: 3, Window: 10 * time.Second, OpenFor: time.Second, OpenMax: time.Minute}
	r.sched = New(RunConfig{
		Config: Config{Node: "n", Now: func() core.Instant { return r.now }}, Partitions: 1, Shards: 1, Rand: func() float64 { return 0.5 },
		Breakers: BreakerConfig{Store: &r.store, Policy: policy, Announce: func() { r.announced++ }},
	}, nil, nil, nil, nil, slog.New(slog.DiscardHandler))
	return r
}

// counts lets the shard count calls, under the breaker that it knows of.
func (r *breakerRig) counts(knows core.Breaker, calls core.Calls, trial bool) {
	r.book.set([]core.Breaker{knows})
	r.book.count(r.now, r.book.of("pay"), calls, trial)
	r.sched.breakers.collect(&r.book, r.now, &r.sched.cfg.Breakers.Policy)
}

// asked reports whether a turn is asked for, and takes that back.
func (r *breakerRig) asked() bool {
	select {
	case <-r.sched.breakers.kick:
		return true
	default:
		return false
	}
}

func (r *breakerRig) turn() core.Breaker {
	r.t.Helper()
	r.asked()
	if err := r.sched.BreakerTurn(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return r.store.is
}

// TestBreakerThatOpensIsTold: the turn that opens a breaker tells the node's shards, and has the other nodes told. Until they
// hear of it each further call fails as well.
func TestBreakerThatOpensIsTold(t *testing.T) {
	r := newBreakerRig(t, core.Breaker{})
	r.counts(core.Breaker{}, core.Calls{Failed: 3}, false)
	if is := r.turn(); is.State != core.BreakerOpen {
		t.Fatalf("it is %+v", is)
	}
	mail := r.sched.Committers()[0].Inbox().take()
	if told := r.sched.Breakers(); len(told) != 1 || mail.Breakers == nil || len(*mail.Breakers) != 1 || (*mail.Breakers)[0] != r.store.is {
		t.Errorf("shards are told %+v, want %+v", mail.Breakers, r.store.is)
	}
	if r.announced != 1 {
		t.Errorf("it is announced %d times", r.announced)
	}
}

// TestBreakerOfAnotherNode: a node that is not the first to change a breaker reads it again at once.
func TestBreakerOfAnotherNode(t *testing.T) {
	r := newBreakerRig(t, core.Breaker{})
	r.store.taken = true
	r.counts(core.Breaker{}, core.Calls{Failed: 3}, false)
	r.turn()
	if asked := r.asked(); !asked || r.announced != 0 {
		t.Errorf("another turn is asked for: %v, announced %d times", asked, r.announced)
	}
}

// TestCallsBeforeABreakerClosed: what failed before says nothing of the agent as it is now.
func TestCallsBeforeABreakerClosed(t *testing.T) {
	r := newBreakerRig(t, core.Breaker{})
	r.counts(core.Breaker{}, core.Calls{Failed: 3}, false)
	r.now = r.now.Add(2 * time.Second)
	r.store.is = core.Breaker{Agent: "pay", State: core.BreakerClosed, Since: r.now, Revision: 1}
	r.now = r.now.Add(time.Second)
	if is := r.turn(); is.State != core.BreakerClosed {
		t.Errorf("it is %+v", is)
	}
	r.counts(core.Breaker{}, core.Calls{Failed: 3}, false)
	if is := r.turn(); is.State != core.BreakerOpen {
		t.Errorf("after three more it is %+v", is)
	}
}

// TestEachTrialByItself: the outcomes of one stage of a trial, and those that come late, count for no other.
func TestEachTrialByItself(t *testing.T) {
	first := core.Breaker{Agent: "pay", State: core.BreakerTrial, Revision: 1}
	r := newBreakerRig(t, first)
	r.turn() // which reads it
	r.counts(first, core.Calls{Done: 1}, true)
	second := r.turn()
	if second.State != core.BreakerTrial || second.Stage != 1 {
		t.Fatalf("after a success it is %+v", second)
	}
	r.counts(second, core.Calls{Done: 1}, true)
	if is := r.turn(); is != second {
		t.Errorf("after one success of two it is %+v", is)
	}
	r.counts(first, core.Calls{Failed: 1}, true) // late
	if is := r.turn(); is != second {
		t.Errorf("after a late failure it is %+v", is)
	}
	r.counts(second, core.Calls{Done: 1}, true)
	third := r.turn()
	if third.State != core.BreakerTrial || third.Stage != 2 {
		t.Fatalf("after two successes with a late failure between them it is %+v", third)
	}
	r.counts(third, core.Calls{Failed: 3}, true)
	open := r.turn()
	if open.State != core.BreakerOpen {
		t.Fatalf("after failures it is %+v", open)
	}
	r.now = open.Until
	if is := r.turn(); is != open {
		t.Errorf("before any call of the next trial it is %+v", is)
	}
}

// TestAgentsThatAreCountedAreBounded: names of agents come from plans, and each has memory here.
func TestAgentsThatAreCountedAreBounded(t *testing.T) {
	r := newBreakerRig(t, core.Breaker{})
	for i := range breakerAgents + 1 {
		r.book.count(r.now, r.book.of(fmt.Sprint("agent", i)), core.Calls{Done: 1}, false)
	}
	r.sched.breakers.collect(&r.book, r.now, &r.sched.cfg.Breakers.Policy)
	if n := len(r.sched.breakers.windows); n != breakerAgents {
		t.Errorf("the calls of %d agents are counted", n)
	}
}
