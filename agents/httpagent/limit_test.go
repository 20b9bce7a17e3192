package httpagent

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"duly.dev/duly/internal/core"
)

// TestBreaker: a service that fails is left alone for a while. That is no attempt, and one request later tries it again.
func TestBreaker(t *testing.T) {
	ill := atomic.Bool{}
	ill.Store(true)
	w := start(t, func(w http.ResponseWriter, _ *http.Request) {
		if ill.Load() {
			w.WriteHeader(500)
			return
		}
		w.WriteHeader(204)
	}, "tries: 1\nbreaker: {percent: 50, calls: 4, within: 10s, open: 1s}", plain)
	codes := map[int]int{}
	for range 10 {
		reply, _ := w.handle(command())
		codes[reply.Code]++
	}
	if n := w.calls.Load(); codes[500] != int(n) || codes[503] != 10-int(n) || n < 4 || n > 5 {
		t.Fatalf("codes %v after %d calls", codes, n)
	}
	w.want(command(), 503, "its breaker is open: over 50 % of its requests failed")
	if !core.BusyCode(503) {
		t.Error("an open breaker costs an attempt")
	}
	ill.Store(false)
	deadline := time.Now().Add(patience)
	for {
		reply, _ := w.handle(command())
		if reply.Code == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the breaker stays open: %d %s", reply.Code, reply.Error)
		}
	}
	w.want(command(), 0, "")
}

// TestBreakerPassesRefusals: that a service refuses does not mean that it is ill.
func TestBreakerPassesRefusals(t *testing.T) {
	w := start(t, answers(422, ""), "tries: 1\nbreaker: {percent: 1, calls: 1}", plain)
	for range 10 {
		w.want(command(), 422, "")
	}
}

// TestBreakerCountsRequestsAlone: while all places are taken by requests to a service that hangs, one that finds none says
// nothing of the service, and does not close its breaker.
func TestBreakerCountsRequestsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{limits: limits{tries: 1, concurrent: 1, wait: time.Second, breaker: &breaker{percent: 50, calls: 1, within: 10 * time.Second, open: 5 * time.Second}}}
		s.limit()
		fail, hang := make(chan bool), make(chan bool)
		ill := func(until <-chan bool) error {
			_, err := s.run.Get(func() ([]byte, error) { <-until; return nil, &failure{err: errors.New("ill"), ill: true} })
			return err
		}
		var wg sync.WaitGroup
		wg.Go(func() { _ = ill(fail) })
		synctest.Wait()
		wg.Go(func() { _ = ill(hang) }) // it waits for the place of the first
		synctest.Wait()
		close(fail) // the breaker opens
		<-time.After(6 * time.Second)
		_ = ill(fail)
		if err := ill(fail); !errors.Is(err, circuitbreaker.ErrOpen) {
			t.Errorf("after a trial that did not succeed: %v, want %v", err, circuitbreaker.ErrOpen)
		}
		close(hang)
		wg.Wait()
	})
}

// TestBulkhead: no more requests than the service bears at a time, for all its steps together. One more waits, and is
// busy after that.
func TestBulkhead(t *testing.T) {
	in, out := make(chan bool, 10), make(chan bool)
	w := start(t, func(w http.ResponseWriter, _ *http.Request) {
		in <- true
		<-out
		w.WriteHeader(204)
	}, "concurrent: 2\nwait: 10ms", plain)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { w.want(command(), 0, "") })
		<-in
	}
	w.want(command(), 429, "2 requests are under way, which is concurrent")
	w.want(undo(), 429, "2 requests are under way")
	close(out)
	wg.Wait()
	w.want(command(), 0, "")
	if !core.BusyCode(429) {
		t.Error("a full bulkhead costs an attempt")
	}
}

// TestRate: no more requests than the service bears in a second.
func TestRate(t *testing.T) {
	w := start(t, answers(204, ""), "rate: 5\nwait: 0s", plain)
	codes := map[int]int{}
	for range 20 {
		reply, _ := w.handle(command())
		codes[reply.Code]++
	}
	if codes[0] == 0 || codes[429] < 10 || codes[0]+codes[429] != 20 {
		t.Errorf("codes %v", codes)
	}
	waits := start(t, answers(204, ""), "rate: 50\nwait: 5s", plain)
	began := time.Now()
	for range 6 {
		waits.want(command(), 0, "")
	}
	if took := time.Since(began); took < 80*time.Millisecond {
		t.Errorf("6 requests at 50 a second took %v", took)
	}
}

// A panic is passed on to the runtime, which logs it, and gives its place among the requests back.
func TestPanicGivesItsPlaceBack(t *testing.T) {
	server := httptest.NewServer(answers(204, ""))
	defer server.Close()
	all, err := Read("agents.yaml", []byte(text(server.URL, "concurrent: 1\nwait: 0s", plain)))
	if err != nil {
		t.Fatal(err)
	}
	defer all.services["bank"].close()
	for range 3 {
		func() {
			defer func() {
				if v := recover(); v != "a bug" {
					t.Errorf("recovered %v", v)
				}
			}()
			_, err := all.agents[0].steps[0].do.perform(t.Context(), new(command()), func(*values) ([]byte, error) { panic("a bug") })
			t.Errorf("no panic: %v", err)
		}()
	}
}
