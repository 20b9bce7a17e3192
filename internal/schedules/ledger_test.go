package schedules

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/schedule"
)

// seat is a leader that leads while it is taken.
type seat struct{ taken bool }

func (s *seat) Leads() bool { return s.taken }

// ledger is what the row of a schedule must say, kept by going over all runs one by one. It knows the world only
// by what became of tasks.
type ledger struct {
	name                 string
	w                    *world
	parsed               *schedule.Schedule
	every, catchUp       time.Duration
	cursor               time.Time // runs up to it are decided
	last                 time.Time
	lastTask             string
	closed               bool // it is written down what became of lastTask
	waiting              []time.Time
	submitted            int64
	skipped              int64
	missed               int64
	failing              time.Time // since when submissions fail; zero: they do not
	now                  time.Time // of the round
	failed               bool      // the look did
	sent                 *[]string // ids that were submitted, in the order of their first submission
	takes                *int      // so many submissions are taken from now on
	writes, states       bool      // the database takes writes; it tells what became of tasks
	toldMissed, toldSkip int64     // in this round
}

// ended reports whether a task holds nothing up: it has ended, or was read and is not there.
func (b *ledger) ended(id string) bool {
	is, found := b.w.tasks[id]
	return found && is.State.Ended() || !found && !slices.Contains(b.w.stands, id)
}

func (b *ledger) send(run time.Time) bool {
	if *b.takes == 0 {
		return false
	}
	*b.takes--
	if id := schedule.ID(b.name, run); !slices.Contains(*b.sent, id) {
		*b.sent = append(*b.sent, id)
	}
	return true
}

func (b *ledger) submit(run time.Time) {
	b.last, b.lastTask, b.closed = run, schedule.ID(b.name, run), false
	b.submitted++
}

func (b *ledger) fail() {
	if b.failed = true; b.failing.IsZero() {
		b.failing = b.now
	}
}

// due are the runs that have come due since the cursor: those that are late, or too many, and the others.
func (b *ledger) due(now time.Time) (late, due []time.Time) {
	for run := b.cursor.Truncate(b.every).Add(b.every); !b.parsed.Due(run).After(now); run = run.Add(b.every) {
		if len(due) == 0 && b.parsed.Due(run).Add(b.catchUp).Before(now) {
			late = append(late, run)
		} else {
			due = append(due, run)
		}
	}
	if over := len(due) - b.parsed.CatchUps; over > 0 {
		late, due = append(late, due[:over]...), due[over:]
	}
	return late, due
}

// round is what a leader does. What it cannot write down it has not done; what it has submitted is there all the same.
func (b *ledger) round(now time.Time) {
	b.now, b.toldMissed, b.toldSkip = now, 0, 0
	if b.lastTask != "" && !b.closed && b.states && b.writes {
		b.closed = b.ended(b.lastTask)
	}
	late, due := b.due(now)
	if len(late) > 0 && !b.write(func(n *ledger) bool { return n.pass(late) }) {
		return
	}
	if len(due)+len(b.waiting) > 0 {
		b.write(func(n *ledger) bool { return n.decide(due) })
	}
}

// write changes the ledger if the change can be written down, and reports whether the round goes on.
func (b *ledger) write(change func(*ledger) bool) bool {
	to := *b
	to.waiting = slices.Clone(b.waiting)
	to.failed = false
	on := change(&to)
	if !to.failed && to.submitted > b.submitted {
		to.failing = time.Time{}
	}
	if b.writes {
		*b = to
	}
	return on && b.writes
}

// pass leaves out runs that are late, but for those that are there.
func (b *ledger) pass(late []time.Time) bool {
	if !b.states {
		b.fail()
		return false
	}
	for _, run := range late {
		if _, there := b.w.tasks[schedule.ID(b.name, run)]; there {
			b.submit(run)
		} else {
			b.missed++
			b.toldMissed++
		}
		b.cursor = run
	}
	return true
}

// decide submits runs as the overlap wants it.
func (b *ledger) decide(due []time.Time) bool {
	busy := false
	if b.parsed.Overlap != schedule.OverlapAll && b.lastTask != "" && !b.closed {
		if !b.states {
			b.fail()
			return false
		}
		busy = !b.ended(b.lastTask)
		b.closed = !busy
	}
	if b.parsed.Overlap == schedule.OverlapQueue {
		room := b.parsed.Queue
		if !busy && len(b.waiting) == 0 {
			room++
		}
		for _, run := range due {
			if b.cursor = run; len(b.waiting) < room {
				b.waiting = append(b.waiting, run)
			} else {
				b.skipped++
				b.toldSkip++
			}
		}
		if busy {
			return true
		}
		if !b.send(b.waiting[0]) {
			b.fail()
			return true
		}
		b.submit(b.waiting[0])
		b.waiting = b.waiting[1:]
		return true
	}
	for _, run := range due {
		switch {
		case busy:
			b.skipped++
			b.toldSkip++
		case b.send(run):
			b.submit(run)
			busy = b.parsed.Overlap == schedule.OverlapSkip
		default:
			b.fail()
			return true
		}
		b.cursor = run
	}
	return true
}

// differs compares the ledger with the row and with what was submitted.
func (b *ledger) differs(s *operate.Schedule) string {
	says := func(cursor, last time.Time, task string, closed bool, waiting []time.Time, submitted, skipped, missed int64, failing time.Time) string {
		var w []int64
		for _, run := range waiting {
			w = append(w, run.Unix())
		}
		return fmt.Sprintf("cursor %s, last %s of %s, closed %v, waiting %v, %d submitted, %d skipped, %d missed, failing since %s",
			cursor.Format(time.TimeOnly), last.Format(time.TimeOnly), task, closed, w, submitted, skipped, missed, failing.Format(time.TimeOnly))
	}
	is := says(s.Cursor.Truncate(b.every), s.Last, s.LastTask, s.Outcome != "", s.Waiting, s.Submitted, s.Skipped, s.Missed, s.Failing)
	want := says(b.cursor, b.last, b.lastTask, b.closed, b.waiting, b.submitted, b.skipped, b.missed, b.failing)
	switch {
	case (s.Failure != "") != !s.Failing.IsZero():
		return fmt.Sprintf("it fails since %s, for %q", s.Failing, s.Failure)
	case is != want:
		return fmt.Sprintf("the row says\n%s\nwant\n%s", is, want)
	case !slices.Equal(b.w.order, *b.sent):
		return fmt.Sprintf("submitted\n%v\nwant\n%v", b.w.order, *b.sent)
	}
	return ""
}

// drawSchedule draws a schedule that runs each minute.
func drawSchedule(rt *rapid.T, s *schedule.Spec) {
	s.Every, s.CatchUp = "1m", rapid.SampledFrom([]string{"1m", "5m", "20m", "3h"}).Draw(rt, "window")
	s.Overlap = rapid.SampledFrom([]string{schedule.OverlapSkip, schedule.OverlapQueue, schedule.OverlapAll}).Draw(rt, "overlap")
	if s.Overlap == schedule.OverlapQueue {
		s.Queue = rapid.IntRange(1, 4).Draw(rt, "queue")
	}
	s.CatchUps = rapid.IntRange(1, 6).Draw(rt, "at a time")
	s.Jitter = rapid.SampledFrom([]string{"", "5m"}).Draw(rt, "jitter")
}

// told is what a leader told of a schedule in a round: runs that are missed, and those that are left out for a task.
type told struct{ missed, skipped int64 }

// drawnLeader is a leader with what it told.
type drawnLeader struct {
	seat
	*Runner
	told    map[string]told
	skipped map[string]string // by schedule, the task of which it was told last that runs are left out for it
}

// TestAgainstLedger draws stops, changes of leaders, two leaders, tasks that end, are not read or are refused, submissions that
// are not taken and databases that do not write or do not read: after each round the rows and what was told are what ledgers of
// all runs say.
//
// covers: L9
func TestAgainstLedger(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld()
		takes, sent := 0, []string{}
		books := make([]*ledger, rapid.IntRange(1, 3).Draw(rt, "schedules"))
		for i := range books {
			b := &ledger{w: w, name: string(rune('a' + i)), every: time.Minute, sent: &sent, takes: &takes}
			w.put(t, func(s *schedule.Spec) { drawSchedule(rt, s); s.Name = b.name })
			row, err := w.ScheduleByName(t.Context(), b.name)
			if err != nil {
				t.Fatal(err)
			}
			if b.parsed, err = schedule.Parse(&row.Spec); err != nil {
				t.Fatal(err)
			}
			b.cursor = row.Cursor
			b.catchUp, _ = time.ParseDuration(row.CatchUp)
			books[i] = b
		}
		leaders := []*drawnLeader{{skipped: map[string]string{}}, {skipped: map[string]string{}}}
		for _, l := range leaders {
			tell := func(name string, missed, skipped int64) {
				l.told[name] = told{l.told[name].missed + missed, l.told[name].skipped + skipped}
			}
			l.Runner = NewRunner(Config{
				Now: w.clock, Missed: func(name string, runs int64, _ time.Time) { tell(name, runs, 0) }, Skipped: func(name string, runs int64, _ time.Time) { tell(name, 0, runs) },
			}, w, w, w, &l.seat, slog.New(slog.DiscardHandler))
		}
		stalls := rapid.Bool().Draw(rt, "tasks stand in the stream")
		for range rapid.IntRange(3, 30).Draw(rt, "rounds") {
			w.wait(retryMost + time.Duration(rapid.SampledFrom([]int{1, 30, 90, 300, 3000}).Draw(rt, "seconds"))*time.Second)
			for _, id := range w.order {
				if _, read := w.tasks[id]; read && rapid.IntRange(0, 2).Draw(rt, "ends") == 0 {
					w.end(id, core.StateProcessed, "")
				}
			}
			w.unread = stalls && rapid.Bool().Draw(rt, "unread")
			if w.refused = rapid.IntRange(0, 3).Draw(rt, "refused") == 0; !w.unread {
				w.read()
			}
			takes = rapid.SampledFrom([]int{1 << 30, 1 << 30, 0, 1, 2}).Draw(rt, "taken")
			w.putFails, w.down, w.takes, w.limited = 0, rapid.IntRange(0, 5).Draw(rt, "down") == 0, takes, true
			writes := stalls || rapid.IntRange(0, 3).Draw(rt, "writes") > 0
			if !writes {
				w.putFails = 1 << 30
			}
			for i, leads := range rapid.SampledFrom([][]bool{{true, false}, {false, true}, {true, true}, {false, false}}).Draw(rt, "who leads") {
				l := leaders[i]
				l.taken, l.told = leads, map[string]told{}
				if !leads {
					l.skipped = map[string]string{}
				}
				want, open := map[string]told{}, false
				for _, b := range books {
					open = open || b.lastTask != "" && !b.closed
					b.writes, b.states = writes, !w.down
					if !leads {
						continue
					}
					if b.round(w.now); b.toldSkip > 0 {
						task := l.skipped[b.name]
						if l.skipped[b.name] = b.lastTask; task == b.lastTask {
							b.toldSkip = 0
						}
					}
					if is := (told{b.toldMissed, b.toldSkip}); is != (told{}) {
						want[b.name] = is
					}
				}
				if err := l.round(context.Background()); err != nil && writes && !w.down || err == nil && leads && w.down && open {
					rt.Fatalf("the database is down: %v; the round says %v", w.down, err)
				}
				for _, b := range books {
					row, err := w.ScheduleByName(t.Context(), b.name)
					if err != nil {
						t.Fatal(err)
					}
					if bad := b.differs(&row); bad != "" {
						rt.Fatalf("leader %d at %s, schedule %s: %s", i, w.now.Format(time.TimeOnly), b.name, bad)
					}
				}
				if !maps.Equal(l.told, want) {
					rt.Fatalf("leader %d at %s: told %v, want %v", i, w.now.Format(time.TimeOnly), l.told, want)
				}
				if failing := l.Stats().Failing; len(failing) > 0 && !leads {
					rt.Fatalf("leader %d at %s: it does not lead, and tells of %v", i, w.now.Format(time.TimeOnly), failing)
				}
			}
		}
	})
}

// TestSubmittedAfterMany: runs that a leader submitted after many that were too late, and that are too late by now because it was
// stopped before it could write that down, are not missed, and with skip the next run does not overlap them.
//
// covers: L9
func TestSubmittedAfterMany(t *testing.T) {
	w := newWorld()
	w.put(t, func(s *schedule.Spec) { s.Every, s.CatchUp, s.CatchUps = "1m", "5m", 3 })
	w.wait(time.Hour) // there is no leader
	ctx, kill := context.WithCancel(t.Context())
	w.afterSend = func() { kill(); w.putFails = 1 }
	if err := w.runner(t, nil).round(ctx); err == nil {
		t.Fatal("the write is said to have happened")
	}
	w.afterSend, w.putFails = nil, 0
	w.wait(20 * time.Minute)
	round(t, w.runner(t, nil))
	if s := w.row(t); len(w.order) != 1 || s.LastTask != w.order[0] || s.Submitted != 1 {
		t.Errorf("submitted %v, row %+v: want the later runs to be left out for the first", w.order, s)
	}
}
