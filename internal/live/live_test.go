package live

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store counts what it is asked.
type store struct {
	groupsMore bool
	mu         sync.Mutex
	reads      int
	takes      time.Duration
	err        error
	ended      int64

	mark    string // of Mark
	marks   int    // how often it was asked for
	risks   int    // and the tasks at risk
	nothing bool   // no task is unfinished
	last    func() // called at the end of a read
}

func (s *store) Mark(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks++
	return s.mark, nil
}

// commit is what changes the mark.
func (s *store) commit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark += "x"
}

func (s *store) Sample(ctx context.Context, _ int) (operate.Sample, error) {
	s.mu.Lock()
	s.reads++
	s.ended += 10
	sample, takes, err := operate.Sample{At: time.Now(), Created: 2 * s.ended, Ended: s.ended, P50MS: 3}, s.takes, s.err
	s.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return operate.Sample{}, ctx.Err()
		}
	}
	return sample, err
}

func (s *store) CountsUpTo(context.Context, int) ([]core.Count, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nothing {
		return nil, nil
	}
	return []core.Count{{Type: "a", State: core.StatePending, Tasks: 1}, {Type: "a", State: core.StateError, Tasks: 3}, {Type: "b", State: core.StateError, Tasks: 4, AtLeast: true}, {Type: "a", State: core.StateProcessed, Tasks: 9}}, nil
}

func (s *store) Groups(_ context.Context, f operate.GroupFilter) (operate.Groups, error) {
	if f.State != core.StateError || !f.Largest {
		return operate.Groups{}, errors.New("groups of every state, or in another order, were asked for")
	}
	return operate.Groups{Groups: []operate.Group{{ID: "g1", Tasks: operate.Count{N: 1249}}, {ID: "g2", Tasks: operate.Count{N: 1}}}, All: operate.Count{N: 2, AtLeast: s.groupsMore}, Tasks: operate.Count{N: 1250}}, nil
}

func (s *store) AtRisk(_ context.Context, before core.Instant, _ int) ([]core.View, bool, error) {
	s.mu.Lock()
	s.risks++
	s.mu.Unlock()
	if in := before.Sub(core.InstantOf(time.Now())); in > DefaultRisk || in < DefaultRisk-time.Second-s.takes {
		return nil, false, errors.New("another time")
	}
	return make([]core.View, 5), true, nil
}

// Signals are of one task, which is near the end of its time.
func (s *store) Signals(_ context.Context, near core.Instant, next int) (operate.Signals, error) {
	if in := near.Sub(core.InstantOf(time.Now())); in > DefaultRisk || in < DefaultRisk-time.Second-s.takes || next != operate.NeedLinesMax {
		return operate.Signals{}, errors.New("another time, or another number")
	}
	since := near.Time()
	return operate.Signals{Tasks: operate.Count{N: 1}, Steps: operate.Count{N: 2}, Near: operate.Count{N: 1}, Since: &since, Next: make([]operate.OpenSignal, 1)}, nil
}

func (s *store) Agents(context.Context) ([]operate.Agent, error) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last != nil {
		last()
	}
	return []operate.Agent{{Name: "z.gone", Gone: true, Waiting: operate.Count{N: 1}}, {Name: "a.there", Instances: 2}, {Name: "b.unknown", Instances: -1}, {Name: "c.gone", Gone: true, Waiting: operate.Count{N: 1}}}, nil
}

func (s *store) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *store) asked() (marks, risks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks, s.risks
}

// running runs a reader of the store until the test ends.
func running(t *testing.T, s *store) *Live {
	t.Helper()
	return runningOf(t, Config{Reader: s, Agents: s, Log: slog.New(slog.DiscardHandler)})
}

func runningOf(t *testing.T, cfg Config) *Live {
	t.Helper()
	l := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestOneReader: fifty who listen, and as many who ask, make no more reads than one; without any there are none.
//
// covers: OP6
func TestOneReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		l := running(t, s)
		<-time.After(time.Minute)
		if n := s.count(); n != 0 {
			t.Fatalf("%d reads while nothing listens", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var listening sync.WaitGroup
		for range 50 {
			c := l.Subscribe(ctx)
			listening.Go(func() {
				for range c { // until it is closed
					if _, err := l.Current(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		<-time.After(20 * defaultInterval)
		synctest.Wait()
		if n := s.count(); n < 19 || n > 21 {
			t.Errorf("%d reads in %v for 50 listeners, want one each %v", n, 20*defaultInterval, defaultInterval)
		}
		cancel()
		listening.Wait()
		<-time.After(defaultInterval)
		n := s.count()
		<-time.After(time.Hour)
		if again := s.count(); again != n {
			t.Errorf("%d reads after the last listener left", again-n)
		}
		var asking sync.WaitGroup
		for range 50 {
			asking.Go(func() { _, _ = l.Current(t.Context()) })
		}
		asking.Wait()
		if again := s.count(); again != n+1 {
			t.Errorf("%d reads for 50 who asked at once, want 1", again-n)
		}
	})
}

// slow is a store that answers when it may.
type slow struct {
	*store
	may chan struct{}
}

func (s slow) Sample(ctx context.Context, newest int) (operate.Sample, error) {
	<-s.may
	return s.store.Sample(ctx, newest)
}

// TestOneReadForAllWhoWait: who asks while a read is under way has what that one reads.
//
// covers: OP6
func TestOneReadForAllWhoWait(t *testing.T) {
	s := slow{&store{}, make(chan struct{})}
	l := New(Config{Reader: s, Log: slog.New(slog.DiscardHandler)})
	const askers = 50
	var begun, asking sync.WaitGroup
	for range askers {
		begun.Add(1)
		asking.Go(func() {
			begun.Done()
			if _, err := l.Current(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	close(s.may)
	asking.Wait()
	if n := s.count(); n != 1 {
		t.Errorf("%d reads for %d who asked at once, want 1", n, askers)
	}
}

// TestSlowStore: a read that takes long makes the next one wait, and one that hangs is cut off.
//
// covers: OP6
func TestSlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: 200 * time.Millisecond}
		l := running(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l.Subscribe(ctx)
		<-time.After(time.Minute)
		if n := s.count(); n < 5 || n > 7 { // every 10.2 s
			t.Errorf("%d reads of 200 ms in a minute, want one each 50 times as long", n)
		}
		s.mu.Lock()
		s.takes = time.Hour
		s.mu.Unlock()
		<-time.After(20 * time.Second)
		got, err := l.Current(t.Context())
		if err != nil || got.Trouble == "" || got.Overview.Groups.N != 2 {
			t.Errorf("%+v %v, want what was read before, and that the store does not answer", got, err)
		}
	})
}

// TestQuiet: while nothing is committed only the mark is read, deadlines and agents now and then, and those who listen
// are told seldom; a commit, a trouble of the node and a new listener are told at once.
//
// covers: OP6
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{mark: "1"}
		var trouble []operate.Trouble
		l := runningOf(t, Config{Reader: s, Agents: s, Mark: s.Mark, Troubles: func() []operate.Trouble {
			s.mu.Lock()
			defer s.mu.Unlock()
			return trouble
		}, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := l.Subscribe(ctx)
		first := <-c
		told := 0
		var last Snapshot
		hears := func(d time.Duration) {
			told = 0
			for end := time.After(d); ; {
				select {
				case last = <-c:
					told++
				case <-end:
					return
				}
			}
		}
		hears(wholeEvery - time.Second)
		if n := s.count(); n != 1 {
			t.Errorf("%d reads of everything while nothing is committed, want 1", n)
		}
		marks, risks := s.asked()
		if want := int(wholeEvery / defaultInterval); marks < want-2 || marks > want+2 {
			t.Errorf("the mark was read %d times, want %d", marks, want)
		}
		if want := int(wholeEvery / restEvery); risks != want {
			t.Errorf("deadlines were read %d times, want %d", risks, want)
		}
		if want := int(wholeEvery / tellEvery); told < want-2 || told > want+1 {
			t.Errorf("told %d times, want %d", told, want)
		}
		if o := last.Overview; !o.At.After(first.Overview.At.Add(wholeEvery-2*tellEvery)) || o.Errors != first.Overview.Errors || o.AtRisk != first.Overview.AtRisk || len(o.Needs) != len(first.Overview.Needs) || kinds(o.Needs) != "agents errors deadlines answers" {
			t.Errorf("%+v, want the same as %+v at a later time", last, first)
		}
		// What is as it was is said to have been looked at now, what moves by itself when it was.
		for _, n := range last.Overview.Needs {
			if age := last.Overview.At.Sub(n.At); n.Kind == operate.NeedErrors && age != 0 || n.Kind == operate.NeedAgents && (age == 0 || age > restEvery) {
				t.Errorf("%s was looked at %v before the rest", n.Kind, age)
			}
		}
		if samples := l.Samples(); len(samples) < 140 || samples[len(samples)-1].Ended != first.Sample.Ended {
			t.Errorf("%d samples, want one each %v without endings", len(samples), defaultInterval)
		}
		hears(2 * time.Second) // what is forgotten is seen after that time
		if n := s.count(); n != 2 {
			t.Errorf("%d reads of everything in %v, want 2", n, wholeEvery)
		}
		s.commit()
		hears(defaultInterval)
		if told != 1 || last.Sample.Ended == first.Sample.Ended || s.count() != 3 {
			t.Errorf("after a commit: told %d times, %d reads", told, s.count())
		}
		s.mu.Lock()
		trouble = []operate.Trouble{{Name: "nats"}}
		s.mu.Unlock()
		hears(defaultInterval)
		if told != 1 || len(last.Overview.Troubles) != 1 || s.count() != 3 {
			t.Errorf("after a trouble: told %d times, %+v, %d reads", told, last.Overview.Troubles, s.count())
		}
		hears(defaultInterval)
		another := l.Subscribe(ctx)
		select {
		case <-another:
		case <-time.After(defaultInterval):
			t.Error("a new listener is told nothing")
		}
	})
}

// TestLongRead: a read that takes longer than anyone who asks waits is made once, and the next who asks has what it found.
// Until then they have what was read before, and know that it is old.
//
// covers: OP6
func TestLongRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience, takes = 2 * time.Second, 5 * time.Second
		s := &store{mark: "1", takes: takes}
		l := runningOf(t, Config{Reader: s, Agents: s, Mark: s.Mark, Log: slog.New(slog.DiscardHandler)})
		ask := func() (Snapshot, error) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			return l.Current(ctx)
		}
		for round := range int64(2) {
			began := time.Now()
			for range int(takes / patience) {
				got, err := ask()
				if none := round == 0; none != (err != nil) || !none && (got.Sample.Ended != 10 || got.Trouble == "") {
					t.Fatalf("round %d: %+v, %v", round, got.Sample, err)
				}
			}
			got, err := ask()
			if n := s.count(); err != nil || int64(n) != round+1 || got.Sample.Ended != 10*(round+1) || got.Trouble != "" || time.Since(began) != takes {
				t.Fatalf("round %d: %d reads, %+v, %v after %v; want what one read found after %v", round, n, got, err, time.Since(began), takes)
			}
			<-time.After(intervalMax)
			s.commit()
		}
	})
}

// TestEndsWhileReading: the end of Run cuts off a read that hangs, and none begins after it.
//
// covers: OP6
func TestEndsWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Hour}
		var said strings.Builder
		l := New(Config{Reader: s, Log: slog.New(slog.NewTextHandler(&said, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		l.Subscribe(ctx)
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if err := l.Run(ctx); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v, want the end after a second", err, time.Since(began))
		}
		if _, err := l.Current(t.Context()); err == nil || s.count() != 1 || said.Len() > 0 {
			t.Errorf("%v, %d reads, logged %q; want an error, one read and no word of the store", err, s.count(), said.String())
		}
	})
}

// TestNothingUnfinished: no deadline is looked for where no task has one.
//
// covers: OP6
func TestNothingUnfinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{nothing: true}
		l := running(t, s)
		if _, err := l.Current(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, risks := s.asked(); risks != 0 {
			t.Errorf("deadlines were read %d times", risks)
		}
	})
}

// TestOwed: who listens first, long after a page was read, is told at once though nothing has changed since.
//
// covers: OP6
func TestOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{mark: "1"}
		l := runningOf(t, Config{Reader: s, Mark: s.Mark, Log: slog.New(slog.DiscardHandler)})
		first, cancel := context.WithCancel(t.Context())
		<-l.Subscribe(first)
		cancel()
		<-time.After(defaultInterval + time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		select {
		case <-l.Subscribe(ctx):
		case <-time.After(time.Second):
			t.Error("told nothing")
		}
	})
}

// TestOverview: what needs an operator, in one look.
//
// covers: OP7
func TestOverview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{err: errors.New("user=duly password=x")}
		l := running(t, s)
		if _, err := l.Current(t.Context()); err == nil || strings.Contains(err.Error(), "password") {
			t.Errorf("error %v, want one without what the store says", err)
		}
		s.err = nil
		<-time.After(defaultInterval)
		got, err := l.Current(t.Context())
		o := got.Overview
		if o.OperationsMore {
			t.Error("there are no operations, and yet more")
		}
		if err != nil || got.Trouble != "" || o.Errors != (operate.Count{N: 1250}) || o.Groups.N != 2 || o.AtRisk != (operate.Count{N: 5, AtLeast: true}) ||
			o.Signals.Steps.N != 2 || len(o.Signals.Next) != 1 ||
			kinds(o.Needs) != "agents errors deadlines answers" || o.Needs[1].Lines[0].ID != "g1" || o.Needs[0].Lines[1].ID != "z.gone" || got.Sample.Backlog.N != 1 || !o.At.Equal(time.Now()) {
			t.Errorf("%+v %v", got, err)
		}
	})
}

// someOperations are the first that are not over.
type someOperations struct{}

// Operations implements Running.
func (someOperations) Operations(context.Context, []operate.OperationState, int, string) ([]operate.Operation, string, error) {
	return make([]operate.Operation, runningMax), "next", nil
}

// TestOverviewCut: what has more than is read says so.
//
// covers: O11
func TestOverviewCut(t *testing.T) {
	l := New(Config{Reader: &store{groupsMore: true}, Operations: someOperations{}, Log: slog.New(slog.DiscardHandler)})
	got, err := l.Current(t.Context())
	if o := got.Overview; err != nil || o.Groups != (operate.Count{N: 2, AtLeast: true}) || len(o.Operations) != runningMax || !o.OperationsMore {
		t.Errorf("%+v, %v", o, err)
	}
}

// kinds are those of needs.
func kinds(needs []operate.Need) string {
	all := make([]string, len(needs))
	for i := range needs {
		all[i] = string(needs[i].Kind)
	}
	return strings.Join(all, " ")
}

// TestOneNumber: what is counted in two ways is shown as one number, and a sample has the tasks that are there.
//
// covers: O3, O4
func TestOneNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := running(t, &store{}).Current(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o, backlog := got.Overview, operate.Count{}
		for _, c := range o.Counts {
			if c.State == core.StateError && c.Tasks != o.Errors {
				t.Errorf("%v tasks in error, and %v", c.Tasks, o.Errors)
			}
			if !c.State.Ended() {
				backlog.N += c.Tasks.N
			}
		}
		for _, n := range o.Needs {
			if n.Kind == operate.NeedErrors && n.Tasks != o.Errors {
				t.Errorf("%v tasks in error, and %v in groups", o.Errors, n.Tasks)
			}
		}
		if got.Sample.Backlog != backlog {
			t.Errorf("a backlog of %v, and %v unfinished tasks", got.Sample.Backlog, backlog)
		}
	})
}

// TestGap: a time in which nothing was looked at is told from one in which nothing happened.
//
// covers: O9
func TestGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, &store{})
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			l.Subscribe(ctx)
			<-time.After(10*defaultInterval + time.Second)
			cancel()
			<-time.After(3 * time.Minute)
		}
		samples, gaps := l.Samples(), 0
		for i, s := range samples {
			if s.Gap {
				gaps++
			}
			if far := i > 0 && s.At.Sub(samples[i-1].At) > time.Minute; far != s.Gap {
				t.Errorf("sample %d is a gap: %v, after %v", i, s.Gap, s.At.Sub(samples[max(0, i-1)].At))
			}
		}
		if gaps != 1 {
			t.Errorf("%d gaps in %d samples, want 1", gaps, len(samples))
		}
	})
}

// TestRing: ten minutes of samples are kept, and no more.
//
// covers: OP6
func TestRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, &store{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := l.Subscribe(ctx)
		<-time.After(time.Hour)
		synctest.Wait() // a read is due at this instant
		samples := l.Samples()
		if n := len(samples); n < 299 || n > 301 {
			t.Fatalf("%d samples of 2 s, want those of 10 minutes", n)
		}
		if first, last := samples[0], samples[len(samples)-1]; last.At.Sub(first.At) > ringFor || last.Ended-first.Ended != int64(len(samples)-1)*10 {
			t.Errorf("from %+v to %+v", first, last)
		}
		if newest := <-c; newest.Sample.Ended != samples[len(samples)-1].Ended {
			t.Errorf("a listener that was away for an hour sees %+v first, want the newest", newest.Sample)
		}
	})
}
