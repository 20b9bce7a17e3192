package scheduler_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// purge is one call of Purge.
type purge struct {
	partition   int
	epoch       int64
	detail, row core.Instant
}

// oldStore has old tasks to forget.
type oldStore struct {
	*spyStore
	mu     sync.Mutex
	old    map[int]int // per partition
	calls  []purge
	failed bool          // the next call fails
	takes  time.Duration // each call
}

func (s *oldStore) Purge(_ context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error) {
	if s.takes > 0 {
		<-time.After(s.takes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, purge{partition, epoch, detail, row})
	if s.failed {
		s.failed = false
		return 0, errors.New("database is away")
	}
	n := min(limit, s.old[partition])
	s.old[partition] -= n
	return n, nil
}

// Old tasks of every partition held here are forgotten, all of them although
// little at a time, under the epoch of the owner; an error is tried again.
func TestOldTasksAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		store := &oldStore{spyStore: c.store, old: map[int]int{3: 1000, 5: 1}, failed: true}
		cfg := scheduler.RunConfig{
			Config: scheduler.Config{Node: "a"}, Partitions: 8, Rand: locked(chance("a")),
			Retain: scheduler.Retention{Detail: time.Hour, Row: 3 * time.Hour},
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- scheduler.New(cfg, store, c, c, c, c.logs).Run(ctx) }()
		c.setLive("a")
		pass(3500 * time.Millisecond)
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		store.mu.Lock()
		defer store.mu.Unlock()
		if store.old[3] != 0 || store.old[5] != 0 {
			t.Errorf("old tasks left: %v", store.old)
		}
		if len(store.calls) < 2*8 {
			t.Errorf("%d calls, want each of 8 partitions twice at least", len(store.calls))
		}
		now := core.InstantOf(time.Now())
		for _, call := range store.calls {
			if call.epoch != store.Partition(call.partition).Epoch {
				t.Errorf("%+v is not under the epoch of the owner", call)
			}
			if gap := call.detail.Sub(call.row); gap != 2*time.Hour || now.Sub(call.detail) < time.Hour || now.Sub(call.detail) > time.Hour+4*time.Second {
				t.Errorf("%+v: wrong times", call)
			}
		}
	})
}

// A partition, and an audit trail, with much to forget keep no other partition waiting.
func TestMuchToForgetKeepsNoOneWaiting(t *testing.T) {
	for name, old := range map[string]int{"a partition": 1 << 30, "the audit trail": 0} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			store := &trailStore{oldStore: &oldStore{spyStore: c.store, old: map[int]int{3: old}, takes: 10 * time.Millisecond}, entries: 1<<30 - old}
			cfg := scheduler.RunConfig{
				Config: scheduler.Config{Node: "a"}, Partitions: 8, Rand: locked(chance("a")), Retain: scheduler.Retention{Detail: time.Hour, Audit: time.Hour},
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- scheduler.New(cfg, store, c, c, c, c.logs).Run(ctx) }()
			c.setLive("a")
			pass(62 * time.Second)
			store.mu.Lock()
			store.old[5] = 10
			was := store.old[3]
			store.mu.Unlock()
			pass(20 * time.Second)
			store.mu.Lock()
			if store.old[5] != 0 || old > 0 && was-store.old[3] < 100*250 {
				t.Errorf("%s has much to forget: %d tasks of another partition are left, %d of its own are gone", name, store.old[5], was-store.old[3])
			}
			store.mu.Unlock()
			stop()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Without a retention nothing is ever forgotten.
func TestNothingIsForgottenUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		store := &oldStore{spyStore: c.store, old: map[int]int{3: 1}}
		cfg := scheduler.RunConfig{Config: scheduler.Config{Node: "a"}, Partitions: 8, Rand: locked(chance("a"))}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- scheduler.New(cfg, store, c, c, c, c.logs).Run(ctx) }()
		c.setLive("a")
		pass(time.Minute)
		stop()
		if err := <-done; err != nil || len(store.calls) > 0 {
			t.Errorf("error %v, %d calls", err, len(store.calls))
		}
	})
}

// trailStore has old entries of the audit trail as well.
type trailStore struct {
	*oldStore
	entries int
	before  []core.Instant
	away    bool // the next call fails
}

func (s *trailStore) ForgetAudit(_ context.Context, before core.Instant, most int) (int, error) {
	if s.takes > 0 {
		<-time.After(s.takes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = append(s.before, before)
	if s.away {
		s.away = false
		return 0, errors.New("database is away")
	}
	n := min(most, s.entries)
	s.entries -= n
	return n, nil
}

// Old entries of the audit trail go once a minute, a few at a time, at the owner of one partition alone; without a
// retention none goes.
//
// covers: OP16
func TestOldAuditEntriesAreForgotten(t *testing.T) {
	const forever, year = time.Duration(0), 400 * 24 * time.Hour
	first := scheduler.Place([]string{"a", "b"}, 8)[0] // who owns partition 0 of both
	for _, x := range []struct {
		live []string
		keep time.Duration
		does bool
	}{{[]string{"a"}, forever, false}, {[]string{"a"}, year, true}, {[]string{"a", "b"}, year, first == "a"}, {[]string{"b", "a"}, year, first == "b"}} {
		keep := x.keep
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			store := &trailStore{oldStore: &oldStore{spyStore: c.store, old: map[int]int{}}, entries: 600, away: true}
			cfg := scheduler.RunConfig{Config: scheduler.Config{Node: x.live[0]}, Partitions: 8, Rand: locked(chance("a")), Retain: scheduler.Retention{Detail: time.Hour, Audit: keep}}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- scheduler.New(cfg, store, c, c, c, c.logs).Run(ctx) }()
			c.setLive(x.live...)
			pass(3*time.Minute + 10*time.Second)
			stop()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			store.mu.Lock()
			defer store.mu.Unlock()
			calls, left := 1+3+1, 0 // failed; 250, 250 and 100; none
			if !x.does {
				calls, left = 0, 600
			}
			if len(store.before) != calls || store.entries != left {
				t.Errorf("%v, kept for %v: %d calls, %d entries left, want %d and %d", x.live, keep, len(store.before), store.entries, calls, left)
			}
			now := core.InstantOf(time.Now())
			for _, at := range store.before {
				if age := now.Sub(at) - keep; age < 0 || age > 4*time.Minute {
					t.Errorf("entries before %v are forgotten, which is %v too far", at, age)
				}
			}
		})
	}
}

// A task that is taken up again keeps its journal, however long the commit takes
// that says so: without it no later owner could finish it.
//
// covers: inv8
func TestWhatIsTakenUpAgainIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.setLive("n1")
		n1 := c.run("n1", func(cfg *scheduler.RunConfig) { cfg.Retain.Detail = 10 * time.Second })
		pass(time.Second)
		c.submit(3, order("t1"))
		pass(9500 * time.Millisecond)
		c.want(core.StateProcessed, 3, "t1")
		c.store.BeforeCommit = func(b *core.Batch) error {
			if len(b.Writes) > 0 && b.Writes[0].Task.State == core.StateUndoing {
				<-time.After(3 * time.Second)
			}
			return nil
		}
		c.mu.Lock()
		in := c.ears[3][0]
		c.mu.Unlock()
		in.Control(scheduler.ControlMail{Partition: 3, Pos: 1, Control: core.Control{Kind: core.EventUndo, ID: "t1", Actor: "olga"}})
		pass(8 * time.Second)
		c.want(core.StateUndone, 3, "t1")
		c.end(n1)
	})
}

// A request about a task whose journal is forgotten changes nothing, takes no id, and the log says why.
func TestRequestAboutWhatIsForgotten(t *testing.T) {
	r := newRig(t, scheduler.Config{})
	r.tasks(0, order("t1"))
	r.cycle()
	r.finish()
	r.flush()
	r.flush()
	if n, err := r.store.Purge(t.Context(), 0, 1, r.now.Add(time.Hour), 0, 10); n != 1 || err != nil {
		t.Fatalf("forgotten: %d, %v", n, err)
	}
	before := r.store.Partition(0)
	for _, kind := range []core.EventKind{core.EventUndo, core.EventResubmit, core.EventCancel} {
		r.control(core.Control{Kind: kind, ID: "t1", Type: "order", Actor: "olga"})
	}
	r.control(core.Control{Kind: core.EventUndo, Numbers: []int64{1}, Seqs: []int64{4}, Actor: "olga"})
	r.flush()
	if st := r.store.Partition(0); st.NextNumber != before.NextNumber || st.NextEnd != before.NextEnd {
		t.Errorf("the partition was %+v, and is %+v", before, st)
	}
	r.logged("a request about a task changed nothing: its journal is forgotten")
	if logs := r.logs.String(); strings.Contains(logs, "does not exist") || strings.Contains(logs, "level=ERROR") {
		t.Errorf("it logs:\n%s", logs)
	}
}

// Nor does one about a task that is in memory for the sake of a child that has not ended: without its journal no later owner
// could read it.
//
// covers: inv8
func TestRequestAboutAForgottenParent(t *testing.T) {
	r := newFamily(t, core.Step{Kind: core.TaskStep, OnExhausted: core.PolicyError}, scheduler.Config{})
	r.family("t1", []byte(`{}`))
	r.now = r.now.Add(time.Minute)
	r.control(core.Control{Kind: core.EventOverdue, Numbers: []int64{1}, Actor: "supervisor"})
	r.cycle()
	r.control(core.Control{Kind: core.EventResolve, ID: "t1", As: core.StateProcessed, Actor: "olga"})
	r.flush()
	r.flush()
	r.state("t1", core.StateProcessed)
	r.state("t1~kids", core.StateProcessing)
	if n, err := r.store.Purge(t.Context(), 0, 1, r.now.Add(time.Hour), 0, 10); n != 1 || err != nil {
		t.Fatalf("forgotten: %d, %v", n, err)
	}
	r.control(core.Control{Kind: core.EventUndo, ID: "t1", Type: "family", Actor: "olga"})
	r.control(core.Control{Kind: core.EventUndo, Numbers: []int64{1}, Seqs: []int64{0}, Actor: "olga"})
	r.cycle()
	if is := r.store.History(0, "t1"); !strings.Contains(is, ": processed,") || strings.Count(is, "\n") != 1 {
		t.Errorf("it has rows again: %s", is)
	}
	r.logged("its journal is forgotten")
}

// What is to be kept for ever is, whatever else is forgotten.
//
// covers: inv9
func TestKeptForEver(t *testing.T) {
	for _, retain := range []scheduler.Retention{{Detail: time.Hour}, {Row: time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			store := &oldStore{spyStore: c.store, old: map[int]int{}}
			cfg := scheduler.RunConfig{Config: scheduler.Config{Node: "a"}, Partitions: 8, Rand: locked(chance("a")), Retain: retain}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- scheduler.New(cfg, store, c, c, c, c.logs).Run(ctx) }()
			c.setLive("a")
			pass(5 * time.Second)
			stop()
			if err := <-done; err != nil || len(store.calls) == 0 {
				t.Errorf("error %v, %d calls", err, len(store.calls))
			}
			for _, call := range store.calls {
				if (call.detail == 0) != (retain.Detail == 0) || (call.row == 0) != (retain.Row == 0) {
					t.Fatalf("%+v forgets %+v", retain, call)
				}
			}
		})
	}
}

// For an hour after the database went back nothing is forgotten of that partition: requests that are read again may be about
// tasks that ended long before. Others are not held up.
//
// covers: A1
func TestNothingIsForgottenAfterTheDatabaseWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		store := &trailStore{oldStore: &oldStore{spyStore: c.store, old: map[int]int{}}, entries: 600}
		if _, err := store.TakeOver(t.Context(), 0, core.Claim{Owner: "before", WentBack: true, At: core.InstantOf(time.Now())}); err != nil {
			t.Fatal(err)
		}
		cfg := scheduler.RunConfig{
			Config: scheduler.Config{Node: "a"}, Partitions: 2, Rand: locked(chance("a")), Retain: scheduler.Retention{Detail: time.Hour, Audit: time.Hour},
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- scheduler.New(cfg, store, c, c, c, c.logs).Run(ctx) }()
		c.setLive("a")
		looks := func() (of [2]int, audit int) {
			store.mu.Lock()
			defer store.mu.Unlock()
			for _, call := range store.calls {
				of[call.partition]++
			}
			return of, len(store.before)
		}
		pass(55 * time.Minute)
		if of, audit := looks(); of[0] != 0 || of[1] == 0 || audit != 0 {
			t.Errorf("after 55 minutes the partitions were looked at %v times, the trail %d times", of, audit)
		}
		pass(10 * time.Minute)
		if of, audit := looks(); of[0] == 0 || audit == 0 {
			t.Errorf("after 65 minutes the partitions were looked at %v times, the trail %d times", of, audit)
		}
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// TestRowsOutliveTheirSubmissions: no row is forgotten whose submission the task stream still has, or of which that is not
// known; what a task was made of is.
//
// covers: L2
func TestRowsOutliveTheirSubmissions(t *testing.T) {
	const keep = time.Hour
	for name, x := range map[string]struct {
		begins func(now core.Instant) (core.Instant, bool)
		row    func(now core.Instant) core.Instant
	}{
		"an empty stream": {func(core.Instant) (core.Instant, bool) { return 0, true }, func(now core.Instant) core.Instant { return now.Add(-keep) }},
		"a young one":     {func(now core.Instant) (core.Instant, bool) { return now.Add(-keep / 2), true }, func(now core.Instant) core.Instant { return now.Add(-keep) }},
		"an old one":      {func(now core.Instant) (core.Instant, bool) { return now.Add(-2 * keep), true }, func(now core.Instant) core.Instant { return now.Add(-2*keep - 30*time.Second) }},
		"not known":       {func(core.Instant) (core.Instant, bool) { return 0, false }, func(core.Instant) core.Instant { return 0 }},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			store := &oldStore{spyStore: c.store, old: map[int]int{}}
			cfg := scheduler.RunConfig{
				Config: scheduler.Config{Node: "a"}, Partitions: 8, Rand: locked(chance("a")), Retain: scheduler.Retention{Detail: keep, Row: keep},
				Begins: func(int) (core.Instant, bool) { return x.begins(core.InstantOf(time.Now())) },
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- scheduler.New(cfg, store, c, c, c, c.logs).Run(ctx) }()
			c.setLive("a")
			pass(3500 * time.Millisecond)
			stop()
			if err := <-done; err != nil || len(store.calls) == 0 {
				t.Fatalf("%s: %v, %d calls", name, err, len(store.calls))
			}
			for _, call := range store.calls {
				if now := call.detail.Add(keep); call.row != x.row(now) {
					t.Errorf("%s: rows before %v, want %v", name, call.row, x.row(now))
				}
			}
		})
	}
}
