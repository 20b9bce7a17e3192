package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
)

// covers: S33, S34, G4
func TestTickAsksOncePerPartition(t *testing.T) {
	w := newWorld(4)
	w.add(1, 10, 3)
	w.add(3, 7, 2)
	w.rows[len(w.rows)-1].Step = "charge"
	s := New(Config{Actor: "node-1"}, w, w, always{})
	rep := mustTick(t, s, epoch)
	if want := (Report{Held: true, Read: 5, Asked: 5, Messages: 2}); rep != want {
		t.Errorf("report %+v, want %+v", rep, want)
	}
	if got := w.numbers(1); !slices.Equal(got, []int64{10, 11, 12}) {
		t.Errorf("partition 1 was asked about %v", got)
	}
	c := w.asked[3][0]
	if c.Kind != core.EventOverdue || c.Actor != "node-1" || !slices.Equal(c.Numbers, []int64{7, 8}) || !slices.Equal(c.Steps, []string{"", "charge"}) {
		t.Errorf("control %+v", c)
	}
	if w.queries != 1 {
		t.Errorf("%d queries, want 1", w.queries)
	}
}

func TestNothingOverdue(t *testing.T) {
	w := newWorld(16)
	s := New(Config{}, w, w, always{})
	for range 3 {
		if rep := mustTick(t, s, epoch); rep != (Report{Held: true}) {
			t.Errorf("report %+v", rep)
		}
	}
	if w.queries != 3 {
		t.Errorf("%d queries in 3 quiet ticks, want 3", w.queries)
	}
}

// A quiet scan walks over a minute, and once a minute over all: what was deleted hours ago stands at the beginning of the index
// for as long as the database keeps it. What was asked about and has not changed is in it, also in a partition that has yet
// to read; and a row that is stored with an old bound is found.
//
// covers: K2
func TestScanBeginsWhereNothingIsLeft(t *testing.T) {
	w := newWorld(2)
	s := New(Config{AskAgain: time.Hour, Slack: time.Second}, w, w, always{})
	at := func(after time.Duration) (rep Report) {
		t.Helper()
		return mustTick(t, s, epoch.Add(after))
	}
	since := func(want core.Instant) {
		t.Helper()
		if w.since != want {
			t.Errorf("the scan began %v before now's epoch, want %v", epoch.Sub(w.since), epoch.Sub(want))
		}
	}
	at(0)
	since(0)
	at(2 * time.Second)
	since(epoch.Add(-time.Second - time.Minute))
	at(3 * time.Second)
	since(epoch.Add(time.Second - time.Minute))

	stuck := core.Due{Partition: 1, Number: 7, Bound: epoch.Add(4 * time.Second)}
	w.rows = []core.Due{stuck}
	if rep := at(10 * time.Second); rep.Asked != 1 {
		t.Errorf("%+v", rep)
	}
	for _, after := range []time.Duration{50 * time.Second, 59 * time.Second} {
		if rep := at(after); rep.Unread != 1 {
			t.Errorf("%+v", rep)
		}
		since(stuck.Bound.Add(-time.Minute))
	}
	late := core.Due{Partition: 0, Number: 3, Bound: epoch.Add(-time.Hour)} // stored this late
	w.rows = []core.Due{late, stuck}
	if rep := at(61 * time.Second); rep.Asked != 1 {
		t.Errorf("a row that came late: %+v", rep)
	}
	since(0)
	w.read(0)
	w.read(1)
	at(62 * time.Second) // all is seen to be gone
	at(63 * time.Second)
	since(epoch.Add(61*time.Second - time.Minute))
}

func TestSlackWaitsForClocks(t *testing.T) {
	w := newWorld(1)
	w.rows = []core.Due{{Partition: 0, Number: 1, Bound: epoch}}
	s := New(Config{Slack: 100 * time.Millisecond}, w, w, always{})
	for _, tt := range []struct {
		after time.Duration
		asked int
	}{{0, 0}, {time.Millisecond, 0}, {100 * time.Millisecond, 0}, {101 * time.Millisecond, 1}} {
		if rep := mustTick(t, s, epoch.Add(tt.after)); rep.Asked != tt.asked {
			t.Errorf("%v after the bound: asked about %d, want %d", tt.after, rep.Asked, tt.asked)
		}
	}
}

// covers: inv11
func TestUnreadPartitionIsLeftAlone(t *testing.T) {
	w := newWorld(3)
	w.add(0, 1, 5)
	w.add(1, 1, 5)
	s := New(Config{AskAgain: 30 * time.Second}, w, w, always{})
	mustTick(t, s, epoch)
	w.read(1)
	w.add(1, 100, 1)
	rep := mustTick(t, s, epoch.Add(time.Second))
	if rep.Unread != 1 || rep.Read != 1 || len(w.asked[0]) != 1 || len(w.asked[1]) != 2 { // nor are its rows read
		t.Errorf("unread %d, %d rows read; asked partition 0 %d times, 1 %d times", rep.Unread, rep.Read, len(w.asked[0]), len(w.asked[1]))
	}
	mustTick(t, s, epoch.Add(29*time.Second))
	if len(w.asked[0]) != 1 {
		t.Error("an unread partition was asked again after 29s")
	}
	// Positions start again at 1 when a stream is lost: silence does not last for ever.
	mustTick(t, s, epoch.Add(30*time.Second))
	if len(w.asked[0]) != 2 {
		t.Errorf("an unread partition was asked %d times after 30s, want 2", len(w.asked[0]))
	}
	w.read(0)
	if rep := mustTick(t, s, epoch.Add(30*time.Second+1)); rep.Unread != 1 { // partition 1 has its second message
		t.Errorf("unread %d, want 1", rep.Unread)
	}
}

// A clock that was a day ahead when it asked, and is right again, keeps no partition from being asked.
func TestClockIsSetBack(t *testing.T) {
	w := newWorld(1)
	w.add(0, 1, 5)
	s := New(Config{AskAgain: 30 * time.Second}, w, w, always{})
	mustTick(t, s, epoch.Add(24*time.Hour))
	mustTick(t, s, epoch)
	if len(w.asked[0]) != 2 {
		t.Errorf("the partition was asked %d times, want again", len(w.asked[0]))
	}
}

// covers: E6, S37
func TestRestartAsksAgain(t *testing.T) {
	w := newWorld(1)
	w.add(0, 1, 2)
	mustTick(t, New(Config{}, w, w, always{}), epoch)
	mustTick(t, New(Config{}, w, w, always{}), epoch)
	if len(w.asked[0]) != 2 {
		t.Fatalf("asked %d times, want 2", len(w.asked[0]))
	}
	if n := w.read(0); n != 2 {
		t.Errorf("%d tasks handled, want 2: asking twice is harmless", n)
	}
}

// covers: S27, T8, inv11
func TestScanIsBounded(t *testing.T) {
	w := newWorld(4)
	for p := range 4 {
		w.add(p, 1, 25_000)
	}
	s := New(Config{}, w, w, always{})
	for i := range 8 {
		w.queries, w.limitMax = 0, 0
		rep := mustTick(t, s, epoch.Add(time.Duration(i)*time.Second))
		if rep.Read > defaultScanMax || rep.Asked > defaultScanMax || w.limitMax > defaultScanMax || w.queries > 2*4+2 {
			t.Fatalf("tick %d: %+v, %d queries, limit %d", i, rep, w.queries, w.limitMax)
		}
		for p := range 4 {
			w.read(p)
			for _, c := range w.asked[p] {
				if len(c.Numbers) > defaultMessageMax {
					t.Fatalf("a message about %d tasks", len(c.Numbers))
				}
			}
		}
	}
	for p := range 4 {
		if n := len(w.numbers(p)); n != 2000 {
			t.Errorf("partition %d was asked about %d tasks in 8 ticks, want 2000: the scan goes round", p, n)
		}
	}
}

// covers: S27, inv11
func TestBacklogDoesNotStarveOthers(t *testing.T) {
	tests := []struct {
		name  string
		reads bool // the crowded partition's owner reads what it is asked
		heavy int
	}{
		{"first, reading", true, 0}, {"first, stuck", false, 0},
		{"middle, reading", true, 2}, {"middle, stuck", false, 2},
		{"last, reading", true, 3}, {"last, stuck", false, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(4)
			w.add(tt.heavy, 1, 100_000)
			s := New(Config{}, w, w, always{})
			now := epoch
			for i := range 20 {
				for p := range 4 {
					if p != tt.heavy {
						w.add(p, int64(1000+i), 1)
					}
				}
				now = now.Add(time.Second)
				mustTick(t, s, now)
				for p := range 4 {
					if p != tt.heavy || tt.reads {
						w.read(p)
					}
				}
				// One new task a second in each of the others: none may wait long.
				if left := len(w.rows) - 100_000; !tt.reads && left > 9 {
					t.Fatalf("tick %d: %d tasks of the other partitions wait", i, left)
				}
			}
			for p := range 4 {
				if p != tt.heavy && len(w.numbers(p)) < 17 {
					t.Errorf("partition %d: %d of 20 tasks asked about", p, len(w.numbers(p)))
				}
			}
			if n := len(w.numbers(tt.heavy)); tt.reads && n < 6000 {
				t.Errorf("the crowded partition: %d tasks asked about in 20 ticks", n)
			}
		})
	}
}

// Tasks that stay overdue whatever they are asked must not hide those behind
// them in their own partition, also when the scan comes to it from another.
//
// covers: T8, inv11
func TestStuckFrontOfPartition(t *testing.T) {
	for _, before := range []int{0, 3} {
		w := newWorld(2)
		w.add(0, 1, before)
		w.add(1, 1, 50)
		s := New(Config{ScanMax: 20, MessageMax: 10}, w, w, always{})
		for i := range 30 {
			mustTick(t, s, epoch.Add(time.Duration(i)*time.Second))
			for p := range 2 {
				w.cursors[p] = uint64(len(w.asked[p])) // read, and nothing done about it
			}
		}
		seen := map[int64]int{}
		for _, n := range w.numbers(1) {
			seen[n]++
		}
		if len(seen) != 50 {
			t.Errorf("%d before: %d of 50 tasks were ever asked about", before, len(seen))
		}
		if seen[1] < 2 {
			t.Errorf("%d before: the first was asked about %d times, want again after the round", before, seen[1])
		}
	}
}

// A scan that began in the middle does not ask twice about where it began.
func TestScanGoesRoundOnce(t *testing.T) {
	w := newWorld(4)
	w.add(1, 1, 2)
	w.add(2, 1, 3)
	w.add(3, 1, 1)
	s := New(Config{}, w, w, always{})
	for start := range 5 {
		s.next = start
		if rep := mustTick(t, s, epoch); rep.Asked != 6 {
			t.Errorf("from partition %d: asked about %d tasks, want 6", start, rep.Asked)
		}
		for p := range 4 {
			w.cursors[p] = uint64(len(w.asked[p]))
		}
	}
}

// covers: S36, inv11
func TestNotLeading(t *testing.T) {
	w := newWorld(1)
	w.add(0, 1, 1)
	w.holder, w.until = "other", epoch.Add(time.Minute)
	rep := mustTick(t, New(Config{}, w, w, lease{w, "me"}), epoch)
	if rep != (Report{}) || w.queries != 0 || len(w.asked[0]) != 0 {
		t.Errorf("report %+v, %d queries: who does not lead does not scan", rep, w.queries)
	}
}

func TestErrors(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		name, want string
		set        func(*world)
	}{
		{"lease", "renew the lease: boom", func(w *world) { w.renewErr = boom }},
		{"cursors", "read the partitions: boom", func(w *world) { w.cursorErr = boom }},
		{"scan", "scan from partition 0: boom", func(w *world) { w.scanErr = boom }},
		{"ask", "ask partition 0 about 2 tasks: boom\nask partition 1 about 1 tasks: boom", func(w *world) { w.askErr = boom }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(2)
			w.add(0, 1, 2)
			w.add(1, 1, 1)
			tt.set(w)
			s := New(Config{}, w, w, lease{w, "me"})
			if _, err := s.Tick(t.Context(), epoch); err == nil || err.Error() != tt.want || !errors.Is(err, boom) {
				t.Fatalf("error %v, want %s", err, tt.want)
			}
			w.renewErr, w.cursorErr, w.scanErr, w.askErr = nil, nil, nil, nil
			if rep := mustTick(t, s, epoch.Add(time.Second)); rep.Asked != 3 {
				t.Errorf("the next tick asked about %d tasks, want all 3", rep.Asked)
			}
		})
	}
}

// A question that was not stored is asked in the next tick, not when the scan
// has come round.
func TestFailedQuestionIsAskedAgain(t *testing.T) {
	w := newWorld(1)
	w.add(0, 1, 5)
	s := New(Config{MessageMax: 2}, w, w, always{})
	w.askErr = errors.New("boom")
	if _, err := s.Tick(t.Context(), epoch); err == nil {
		t.Fatal("no error")
	}
	w.askErr = nil
	mustTick(t, s, epoch.Add(time.Second))
	if got := w.numbers(0); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("asked about %v, want the first two", got)
	}
}

// Two that both believe they lead ask twice; the owners act once.
//
// covers: S36, T8
func TestTwoLeadersAreHarmless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.IntRange(1, 5).Draw(t, "partitions")
		w := newWorld(partitions)
		total, handled := 0, 0
		cfg := Config{ScanMax: rapid.IntRange(1, 30).Draw(t, "scan"), MessageMax: rapid.IntRange(1, 20).Draw(t, "message")}
		two := []*Supervisor{New(cfg, w, w, always{}), New(cfg, w, w, always{})}
		now := epoch
		steps := rapid.IntRange(1, 40).Draw(t, "steps")
		for i := range steps {
			now = now.Add(time.Second)
			p := rapid.IntRange(0, partitions-1).Draw(t, "partition")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				n := rapid.IntRange(1, 40).Draw(t, "n")
				w.add(p, int64(i*1000+1), n)
				total += n
			case 1:
				handled += w.read(p)
			default:
				rep, err := two[rapid.IntRange(0, 1).Draw(t, "who")].Tick(t.Context(), now)
				if err != nil || rep.Read > cfg.ScanMax {
					t.Fatalf("report %+v, error %v", rep, err)
				}
			}
		}
		// Calm: with owners that read, everything overdue is soon handled; what was stored with an old bound, once in wholeAgain.
		for range 8*total + 20 + int(wholeAgain/time.Second) {
			now = now.Add(time.Second)
			if _, err := two[0].Tick(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			for p := range partitions {
				handled += w.read(p)
			}
		}
		if handled != total || len(w.rows) != 0 {
			t.Fatalf("%d of %d tasks handled, %d left", handled, total, len(w.rows))
		}
		for p, messages := range w.asked {
			for _, c := range messages {
				if len(c.Numbers) == 0 || len(c.Numbers) > cfg.MessageMax || c.Kind != core.EventOverdue {
					t.Fatalf("partition %d: message %+v", p, c)
				}
			}
		}
	})
}

func TestResign(t *testing.T) {
	w := newWorld(1)
	s := New(Config{}, w, w, lease{w, "me"})
	mustTick(t, s, epoch)
	if err := s.Resign(t.Context()); err != nil || w.holder != "" {
		t.Errorf("holder %q, error %v", w.holder, err)
	}
}

// covers: I22
func TestAlerterBoundsTheRate(t *testing.T) {
	sink := &memSink{}
	a := NewAlerter(AlertConfig{Every: 100 * time.Millisecond, Burst: 3, SummaryEvery: 10 * time.Second}, sink)
	take := func(now core.Instant, e core.Ending) {
		t.Helper()
		if err := taken(a, now, e); err != nil {
			t.Fatal(err)
		}
	}
	take(epoch, core.Ending{ID: "fine", State: core.StateProcessed})
	take(epoch, core.Ending{ID: "fine", State: core.StateUndone})
	for i := range 100 {
		take(epoch, core.Ending{ID: fmt.Sprint("t", i), Type: "order", Step: "pay", State: core.StateError, Error: strings.Repeat("é", 400)})
	}
	if len(sink.got) != 3 {
		t.Fatalf("%d alerts at once, want the burst of 3", len(sink.got))
	}
	if e := sink.got[0].Error; len(e) > alertErrorMax+len("…") || !strings.HasSuffix(e, "é…") {
		t.Errorf("error text of %d bytes: %q", len(e), e[len(e)-8:])
	}
	take(epoch.Add(100*time.Millisecond), core.Ending{ID: "later", State: core.StateError})
	if len(sink.got) != 4 || sink.got[3].Task != "later" {
		t.Fatalf("no room after the average pause: %d alerts", len(sink.got))
	}
	flush(t, a, epoch.Add(9*time.Second))
	if len(sink.got) != 4 {
		t.Fatal("summary before its time")
	}
	flush(t, a, epoch.Add(10*time.Second))
	flush(t, a, epoch.Add(11*time.Second))
	if len(sink.got) != 5 || sink.got[4].Tasks != 97 {
		t.Fatalf("summary %+v, want one about 97 tasks", sink.got[4:])
	}
}

// An ending is done with once its summary is told. Before that it comes again to the next supervisor, and after the sink has
// not taken the summary to this one, which adds it up once.
//
// covers: S14, inv8
func TestSummaryIsToldBeforeItsEndingsAreDone(t *testing.T) {
	sink := &memSink{}
	a := NewAlerter(AlertConfig{Burst: 1, SummaryEvery: 10 * time.Second}, sink)
	var done, again int
	take := func(now core.Instant) {
		for i := range 5 - done {
			a.Take(now, core.Ending{ID: fmt.Sprint("t", i), Type: "order", State: core.StateError, At: now}, func(err error) {
				if err != nil {
					again++
					return
				}
				done++
			})
		}
	}
	if take(epoch); done != 1 {
		t.Fatalf("%d endings are done with, and 1 is told", done)
	}
	sink.err = errors.New("away")
	if err := a.Flush(epoch.Add(10 * time.Second)); err == nil || done != 1 || again != 4 {
		t.Fatalf("%v: %d endings are done with, %d come again; want 1 and 4", err, done, again)
	}
	sink.err = nil
	take(epoch.Add(11 * time.Second))
	flush(t, a, epoch.Add(21*time.Second))
	if done != 5 || len(sink.got) != 3 || sink.got[2].Tasks != 3 {
		t.Errorf("%d endings are done with; %+v", done, sink.got)
	}
}

// However many tasks fail within the time of a summary, the endings that wait for it are bounded.
//
// covers: S14
func TestManyHeldAreToldAtOnce(t *testing.T) {
	sink := &memSink{}
	a := NewAlerter(AlertConfig{Burst: 1}, sink)
	var done, again int
	take := func(name string, n int) {
		for i := range n {
			a.Take(epoch, core.Ending{ID: fmt.Sprint(name, i), Type: "order", State: core.StateError, At: epoch}, func(err error) {
				if err != nil {
					again++
					return
				}
				done++
			})
		}
	}
	take("one", 1)
	take("many", alertHeldMax)
	if done != 1+alertHeldMax || len(sink.got) != 2 || sink.got[1].Tasks != alertHeldMax {
		t.Errorf("%d endings are done with, %d alerts", done, len(sink.got))
	}
	sink.err = errors.New("away")
	take("more", alertHeldMax)
	if err := a.Flush(epoch); !errors.Is(err, sink.err) || again != alertHeldMax {
		t.Errorf("%v: %d endings come again", err, again)
	}
}

// However many kinds of tasks fail, alerts speak of each task once and the
// memory for sums is bounded.
//
// covers: I22
func TestAlertsAddUp(t *testing.T) {
	sink := &memSink{}
	a := NewAlerter(AlertConfig{}, sink)
	for i := range 1000 {
		if err := taken(a, epoch, core.Ending{ID: fmt.Sprint("x", i), Type: strings.Repeat("t", i), State: core.StateError}); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.held) > alertKindsMax+1 {
		t.Errorf("%d sums held", len(a.held))
	}
	if err := a.Finish(); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, alert := range sink.got {
		total += alert.Tasks
	}
	if total != 1000 || len(a.held) != 0 {
		t.Errorf("alerts speak of %d tasks, want 1000; %d held", total, len(a.held))
	}
}

// An ending that comes again, because a new owner tells what may not have been told, is one alert; the next
// error of the same task is another. What was not taken is not forgotten.
//
// covers: I22
func TestEndingThatComesAgain(t *testing.T) {
	sink := &memSink{err: errors.New("away")}
	a := NewAlerter(AlertConfig{Burst: 4 * alertLately}, sink)
	first := core.Ending{ID: "x", State: core.StateError, At: epoch}
	if err := taken(a, epoch, first); err == nil {
		t.Fatal("no error of the sink")
	}
	sink.err = nil
	next := first
	next.At = epoch.Add(time.Second)
	for _, e := range []core.Ending{first, first, next, first, next} {
		if err := taken(a, epoch, e); err != nil {
			t.Fatal(err)
		}
	}
	if len(sink.got) != 2 || sink.got[0].At != first.At || sink.got[1].At != next.At {
		t.Errorf("alerts %+v, want one of each ending", sink.got)
	}
	for i := range alertLately {
		if err := taken(a, epoch, core.Ending{ID: fmt.Sprint("y", i), State: core.StateError, At: epoch}); err != nil {
			t.Fatal(err)
		}
	}
	if err := taken(a, epoch, first); err != nil || len(sink.got) != 3+alertLately {
		t.Errorf("%d alerts, %v: more endings are remembered than may be", len(sink.got), err)
	}
}

// covers: S14, inv8
func TestSinkErrorBringsEndingAgain(t *testing.T) {
	sink := &memSink{err: errors.New("away")}
	a := NewAlerter(AlertConfig{Burst: 1}, sink)
	e := core.Ending{ID: "x", State: core.StateError}
	if err := taken(a, epoch, e); err == nil || !errors.Is(err, sink.err) {
		t.Fatalf("error %v", err)
	}
	sink.err = nil
	if err := taken(a, epoch, e); err != nil || len(sink.got) != 1 {
		t.Errorf("error %v, %d alerts: a failed alert must not use up the rate", err, len(sink.got))
	}
}

// taken is what an ending is done with; nil: it is, or it is held.
func taken(a *Alerter, now core.Instant, e core.Ending) (failed error) {
	a.Take(now, e, func(err error) { failed = err })
	return failed
}

type memSink struct {
	got []Alert
	err error
}

func (s *memSink) Alert(a Alert) error {
	if s.err != nil {
		return s.err
	}
	s.got = append(s.got, a)
	return nil
}

func flush(t *testing.T, a *Alerter, now core.Instant) {
	t.Helper()
	if err := a.Flush(now); err != nil {
		t.Fatal(err)
	}
}

// inDoubt is a lease that is held, as far as is known, and could not be renewed.
type inDoubt struct{}

func (inDoubt) Renew(context.Context) (bool, error) { return true, errors.New("boom") }
func (inDoubt) Release(context.Context) error       { return nil }

// A tick that could not renew its lease says so, and leaves the asking to the next.
//
// covers: inv11
func TestLeaseInDoubt(t *testing.T) {
	w := newWorld(1)
	w.add(0, 1, 5)
	s := New(Config{}, w, w, inDoubt{})
	if rep, err := s.Tick(t.Context(), epoch); err == nil || rep.Asked != 0 || rep.Held {
		t.Errorf("%+v, %v", rep, err)
	}
}
