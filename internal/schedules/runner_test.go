package schedules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/schedule"
)

// TestSubmits submits what comes due, once, and knows what became of it.
func TestSubmits(t *testing.T) {
	w := newWorld()
	w.put(t, nil)
	r := w.runner(t, nil)
	round(t, r)
	if len(w.order) > 0 {
		t.Fatalf("submitted %v before anything is due", w.order)
	}
	w.wait(time.Hour + time.Second)
	round(t, r)
	round(t, r)
	if want := []string{"s-20261126T130000Z"}; !slices.Equal(w.order, want) || w.again > 0 {
		t.Fatalf("submitted %v and %d again, want %v", w.order, w.again, want)
	}
	s := w.row(t)
	if s.LastTask != w.order[0] || !s.Last.Equal(noon.Add(time.Hour)) || s.Submitted != 1 || s.Outcome != "" {
		t.Errorf("row %+v", s)
	}
	w.end(w.order[0], core.StateUndone, "no money")
	w.wait(outcomeEvery)
	round(t, r)
	if s = w.row(t); s.Outcome != core.StateUndone || s.Why != "no money" {
		t.Errorf("outcome %s, %q", s.Outcome, s.Why)
	}
	if lag := r.Stats().Lag; lag != time.Second {
		t.Errorf("lag %v, want 1s", lag)
	}
}

// TestOverlap carries each overlap through four runs of which the first ends late.
func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		overlap   string
		queue     int
		early     []int // submitted before the first task ends
		late      []int // all in the end
		skipped   int64
		submitted int64
	}{
		{schedule.OverlapSkip, 0, []int{1}, []int{1, 5}, 3, 2},
		{schedule.OverlapAll, 0, []int{1, 2, 3, 4}, []int{1, 2, 3, 4, 5}, 0, 5},
		{schedule.OverlapQueue, 0, []int{1}, []int{1, 2, 3, 4, 5}, 0, 5},
		{schedule.OverlapQueue, 2, []int{1}, []int{1, 2, 3, 5}, 1, 4},
	} {
		t.Run(c.overlap, func(t *testing.T) {
			w := newWorld()
			w.put(t, func(s *schedule.Spec) { s.Overlap, s.Queue = c.overlap, c.queue })
			r := w.runner(t, nil)
			for range 4 {
				w.wait(time.Hour)
				round(t, r)
			}
			if got := w.hours(t); !slices.Equal(got, c.early) {
				t.Fatalf("submitted %v while the first runs, want %v", got, c.early)
			}
			for range 6 { // each task ends now, and the next follows
				for _, id := range slices.Clone(w.order) {
					w.end(id, core.StateProcessed, "")
				}
				w.wait(10 * time.Minute)
				round(t, r)
			}
			if got := w.hours(t); !slices.Equal(got, c.late) {
				t.Errorf("submitted %v, want %v", got, c.late)
			}
			if s := w.row(t); s.Skipped != c.skipped || s.Submitted != c.submitted || len(s.Waiting) > 0 {
				t.Errorf("skipped %d, submitted %d, waiting %d, want %d and %d", s.Skipped, s.Submitted, len(s.Waiting), c.skipped, c.submitted)
			}
			if st := r.Stats(); st.Skipped != c.skipped || st.Submitted != c.submitted || st.Missed != 0 {
				t.Errorf("counted %+v, want %d skipped and %d submitted", st, c.skipped, c.submitted)
			}
		})
	}
}

// TestBacklog: a task that has not been read for hours is not forgotten: with skip no run overlaps it. It is closed by its
// end, or when its submission has been read and it is not there.
//
// covers: L9
func TestBacklog(t *testing.T) {
	for _, refused := range []bool{false, true} {
		w := newWorld()
		w.put(t, nil)
		w.unread, w.refused = true, refused
		var skipped []missed
		r := w.teller(nil, &skipped)
		for range 4 {
			w.wait(time.Hour)
			round(t, r)
		}
		if s := w.row(t); len(w.order) != 1 || s.Outcome != "" || s.Skipped != 3 {
			t.Fatalf("submitted %v, row %+v: want one task that is waited for", w.order, s)
		}
		if want := []missed{{"s", 1}}; !slices.Equal(skipped, want) {
			t.Errorf("told %v, want %v: once for a task", skipped, want)
		}
		w.read()
		w.wait(time.Hour)
		round(t, r)
		if s := w.row(t); refused != (len(w.order) == 2) || !refused && s.Outcome != "" {
			t.Errorf("refused %v: submitted %v, row %+v", refused, w.order, s)
		}
	}
}

// TestRunNowBehindABacklog: a task that an operator has submitted is waited for as the others are, until its submission has
// been read.
//
// covers: L9
func TestRunNowBehindABacklog(t *testing.T) {
	w := newWorld()
	w.put(t, nil)
	r := w.runner(t, nil)
	w.wait(time.Hour)
	round(t, r)
	w.end(w.order[0], core.StateProcessed, "")
	w.wait(10 * time.Minute)
	round(t, r)
	w.unread = true
	run, err := w.service().RunSchedule(t.Context(), olga, "s", "", "")
	if err != nil {
		t.Fatal(err)
	}
	w.wait(time.Hour)
	round(t, r)
	if s := w.row(t); s.LastTask != run.Task || s.Outcome != "" || s.Skipped != 1 {
		t.Errorf("submitted %v, row %+v: want %s to be waited for", w.order, s, run.Task)
	}
	w.read()
	w.wait(10 * time.Minute)
	round(t, r)
	w.end(run.Task, core.StateProcessed, "")
	w.wait(time.Hour)
	round(t, r)
	if s := w.row(t); len(w.order) != 3 || s.Skipped != 1 {
		t.Errorf("submitted %v, row %+v: want a run after it", w.order, s)
	}
}

// TestRunNowBesideALongRun: a task that an operator has submitted beside a run ends before it. The next run waits for the run.
//
// covers: L9
func TestRunNowBesideALongRun(t *testing.T) { runNowBeside(t, false) }

// TestRunNowBesideAnUnreadRun: so it does where the run has not even been read.
//
// covers: L9
func TestRunNowBesideAnUnreadRun(t *testing.T) { runNowBeside(t, true) }

// runNowBeside lets a task that an operator submitted end beside a run that is at work, or that is not read yet.
func runNowBeside(t *testing.T, unread bool) {
	t.Helper()
	w := newWorld()
	w.put(t, nil)
	r := w.runner(t, nil)
	w.unread = unread
	w.wait(time.Hour)
	round(t, r)
	w.unread = false
	w.wait(10 * time.Minute)
	now, err := w.service().RunSchedule(t.Context(), olga, "s", "", "")
	if err != nil {
		t.Fatal(err)
	}
	w.end(now.Task, core.StateProcessed, "")
	w.wait(time.Hour)
	round(t, r)
	if s := w.row(t); len(w.order) != 2 || s.Skipped != 1 {
		t.Fatalf("submitted %v, row %+v: want the next run to be left out for the first", w.order, s)
	}
	if unread {
		w.read()
	}
	w.end(w.order[0], core.StateProcessed, "")
	w.wait(time.Hour)
	round(t, r)
	if s := w.row(t); len(w.order) != 3 || s.Skipped != 1 {
		t.Errorf("submitted %v, row %+v: want a run after both", w.order, s)
	}
}

// TestUnreadRunIsNotMissed: a run that the leader submitted and could not write down is not missed when its time is over before
// it is read, and with skip the next run does not overlap it.
//
// covers: L9
func TestUnreadRunIsNotMissed(t *testing.T) {
	w := newWorld()
	w.put(t, func(s *schedule.Spec) { s.CatchUp = "10m" })
	var late []missed
	r := w.teller(&late, nil)
	w.unread = true
	w.wait(time.Hour)
	w.putFails = 2
	for range 2 {
		if err := r.round(t.Context()); err == nil {
			t.Fatal("the write is said to have happened")
		}
	}
	w.wait(time.Hour)
	round(t, r)
	if s := w.row(t); len(w.order) != 1 || s.Submitted != 1 || s.Skipped != 1 || s.Missed != 0 || len(late) > 0 {
		t.Errorf("submitted %v, row %+v, told %v: want one run that is waited for, and one that is left out", w.order, s, late)
	}
	w.read()
	w.end(w.order[0], core.StateProcessed, "")
	w.wait(time.Hour)
	round(t, r)
	if s := w.row(t); len(w.order) != 2 || s.Submitted != 2 {
		t.Errorf("submitted %v, row %+v: want a run after it", w.order, s)
	}
}

// TestUnreadRunOfAnotherIsNotMissed: a run whose submission stands in the stream, of a leader that died or of one that lost the
// answer, is not missed when its time is over before it is read. It is when it was refused.
//
// covers: L9
func TestUnreadRunOfAnotherIsNotMissed(t *testing.T) {
	for _, dies := range []bool{true, false} {
		for _, refused := range []bool{false, true} {
			t.Run(fmt.Sprintf("dies %v, refused %v", dies, refused), func(t *testing.T) {
				w := newWorld()
				w.put(t, func(s *schedule.Spec) { s.CatchUp = "10m" })
				var late []missed
				r := w.teller(&late, nil)
				w.unread, w.refused = true, refused
				w.wait(time.Hour)
				if w.putFails = 1; !dies {
					w.putFails, w.lost = 0, errDown
				}
				if err := r.round(t.Context()); dies == (err == nil) {
					t.Fatalf("the round says %v", err)
				}
				w.lost = nil
				if dies {
					r = w.teller(&late, nil)
				}
				for range 3 {
					w.wait(20 * time.Minute)
					_ = r.round(t.Context())
					if s := w.row(t); len(w.order) != 1 || s.Submitted != 0 || s.Missed != 0 || len(late) > 0 || s.Failure == "" {
						t.Fatalf("submitted %v, row %+v, told %v: want nothing to be decided", w.order, s, late)
					}
				}
				w.read()
				w.wait(time.Minute)
				round(t, r)
				want := []int64{1, 0}
				if refused {
					want = []int64{1, 1}
				}
				if s := w.row(t); s.Submitted != want[0] || s.Missed != want[1] || len(late) != int(want[1]) {
					t.Errorf("submitted %v, row %+v, told %v: want %v submitted and missed", w.order, s, late, want)
				}
			})
		}
	}
}

// TestLateRunsBesideALoad: whether a run that is too late was submitted is known though there is always something in the stream that
// is not read yet.
//
// covers: L9
func TestLateRunsBesideALoad(t *testing.T) {
	w := newWorld()
	w.put(t, func(s *schedule.Spec) { s.CatchUp = "10m" })
	w.wait(90 * time.Minute)
	var late []missed
	r := w.teller(&late, nil)
	for range 30 {
		w.others = w.clock()
		_ = r.round(t.Context())
		w.wait(time.Second)
	}
	if s := w.row(t); s.Missed != 1 || len(late) != 1 {
		t.Errorf("row %+v, told %v: want one run that is missed", s, late)
	}
}

// TestReadBetweenTwoLooks: a task that is stored after it was looked for, and before it is known that its submission has been
// read, is not forgotten.
//
// covers: L9
func TestReadBetweenTwoLooks(t *testing.T) {
	w := newWorld()
	w.put(t, nil)
	w.unread = true
	r := w.runner(t, nil)
	w.wait(time.Hour)
	round(t, r)
	w.onRead = w.read
	w.wait(time.Hour)
	round(t, r)
	if s := w.row(t); len(w.order) != 1 || s.Outcome != "" || s.Skipped != 1 {
		t.Errorf("submitted %v, row %+v: want one task that is waited for", w.order, s)
	}
}

// TestReadUpToOneOfTwo: of two tasks that are not there the one that was read is forgotten, and not the other.
//
// covers: L9
func TestReadUpToOneOfTwo(t *testing.T) {
	w := newWorld()
	for _, name := range []string{"r", "s"} {
		w.put(t, func(s *schedule.Spec) { s.Name = name })
	}
	w.unread = true
	r := w.runner(t, nil)
	w.wait(time.Hour)
	round(t, r)
	w.stands = w.stands[1:] // the first was read, and refused
	w.wait(time.Minute)
	round(t, r)
	first, err := w.ScheduleByName(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	if s := w.row(t); first.Outcome != operate.ScheduleForgotten || s.Outcome != "" {
		t.Errorf("submitted %v, rows %+v and %+v", w.order, first, s)
	}
}

// TestStoreFailsBetweenTwoLooks: a task of which the store says nothing, because it fails once its submission is known to have been
// read, is not forgotten.
//
// covers: L9
func TestStoreFailsBetweenTwoLooks(t *testing.T) {
	w := newWorld()
	w.put(t, nil)
	w.unread = true
	r := w.runner(t, nil)
	w.wait(time.Hour)
	round(t, r)
	w.onRead = func() { w.read(); w.down = true }
	w.wait(time.Hour)
	if err := r.round(t.Context()); err == nil {
		t.Error("it is told as a round that worked")
	}
	if s := w.row(t); len(w.order) != 1 || s.Outcome != "" {
		t.Errorf("submitted %v, row %+v: want one task that is waited for", w.order, s)
	}
}

// TestSkippedIsToldForEachTask: runs that are left out for another task are told again.
//
// covers: L9
func TestSkippedIsToldForEachTask(t *testing.T) {
	w := newWorld()
	w.put(t, nil)
	var skipped []missed
	r := w.teller(nil, &skipped)
	for n := 1; n <= 2; n++ {
		for range 3 {
			w.wait(time.Hour)
			round(t, r)
		}
		if len(w.order) != n || len(skipped) != n {
			t.Fatalf("submitted %v, told %v, want %d of each", w.order, skipped, n)
		}
		w.end(w.order[n-1], core.StateProcessed, "")
	}
}

// TestLookBesideAnother: what a look came to is written into the row as another has left it meanwhile: neither the end of a
// task that is not the last any more nor runs that were counted count.
func TestLookBesideAnother(t *testing.T) {
	at := noon.Add(time.Hour)
	row := operate.Schedule{Spec: schedule.Spec{Name: "s"}, LastTask: "s-now", Cursor: at, Missed: 3}
	l := looked{at: at, task: "s-before", outcome: core.StateProcessed, missed: 3, missedTo: at, cursor: at, skipped: []time.Time{at}, waiting: []time.Time{at}}
	if l.apply(&row) || row.Outcome != "" || row.Missed != 3 || row.Skipped != 0 || len(row.Waiting) != 0 {
		t.Errorf("%+v", row)
	}
}

// TestResumeBesideARun: a task that is submitted while the schedule is resumed is not closed for the one before it.
//
// covers: L9
func TestResumeBesideARun(t *testing.T) {
	w := newWorld()
	w.put(t, nil)
	w.unread = true
	w.wait(time.Hour)
	round(t, w.runner(t, nil))
	svc := w.service()
	if _, err := svc.PauseSchedule(t.Context(), olga, "s", true, "the stream was lost"); err != nil {
		t.Fatal(err)
	}
	svc.Known = func(ctx context.Context, _ string) (bool, error) {
		w.wait(time.Minute)
		_, err := w.service().RunSchedule(ctx, olga, "s", "", "")
		return false, err
	}
	if _, err := svc.PauseSchedule(t.Context(), olga, "s", false, "go on"); err != nil {
		t.Fatal(err)
	}
	if s := w.row(t); len(w.order) != 2 || s.LastTask != w.order[1] || s.Outcome != "" {
		t.Errorf("submitted %v, row %+v: want the second to be waited for", w.order, s)
	}
}

// TestOtherTimesBeginNow: runs by the old times that nobody has submitted are not made up for by the new ones.
func TestOtherTimesBeginNow(t *testing.T) {
	w := newWorld()
	spec := func(every string) func(*schedule.Spec) {
		return func(s *schedule.Spec) { s.Overlap, s.CatchUp, s.Every = schedule.OverlapAll, "24h", every }
	}
	w.put(t, spec("1h"))
	w.wait(10 * time.Hour) // nobody leads
	w.put(t, spec("2h"))
	w.wait(2 * time.Hour)
	round(t, w.runner(t, nil))
	if got := w.hours(t); !slices.Equal(got, []int{12}) {
		t.Errorf("submitted %v, want one run by the new times", got)
	}
}

// TestSkippedAfterAStop: of the runs that came while nobody led, with skip all but one are left out, and that is told.
//
// covers: L9
func TestSkippedAfterAStop(t *testing.T) {
	w := newWorld()
	w.put(t, func(s *schedule.Spec) { s.CatchUp = "24h" })
	w.wait(15 * time.Hour)
	var late, skipped []missed
	round(t, w.teller(&late, &skipped))
	if s := w.row(t); len(w.order) != 1 || s.Skipped != 14 || s.Missed != 0 {
		t.Errorf("submitted %v, row %+v", w.order, s)
	}
	if want := []missed{{"s", 14}}; !slices.Equal(skipped, want) || len(late) > 0 {
		t.Errorf("told %v and %v, want %v", late, skipped, want)
	}
}

// TestResumeClosesALostRun: where the stream was lost before a run was read, an operator resumes the schedule; a run whose
// task is there is waited for.
//
// covers: L9
func TestResumeClosesALostRun(t *testing.T) {
	for _, lost := range []bool{true, false} {
		w := newWorld()
		w.put(t, nil)
		w.unread = lost
		r := w.runner(t, nil)
		w.wait(time.Hour)
		round(t, r)
		w.wait(30 * time.Minute)
		for _, paused := range []bool{true, false} {
			if _, err := w.service().PauseSchedule(t.Context(), olga, "s", paused, "the stream was lost"); err != nil {
				t.Fatal(err)
			}
		}
		w.wait(time.Hour)
		round(t, r)
		if lost != (len(w.order) == 2) {
			t.Errorf("lost %v: submitted %v, row %+v", lost, w.order, w.row(t))
		}
	}
}

// TestCatchUp runs what is within the window after a stop, and tells once of the rest.
func TestCatchUp(t *testing.T) {
	w := newWorld()
	w.put(t, func(s *schedule.Spec) { s.Overlap, s.CatchUp = schedule.OverlapAll, "2h30m" })
	w.wait(10 * time.Hour) // nobody leads
	var told []missed
	r := w.runner(t, &told)
	round(t, r)
	round(t, r)
	if got, want := w.hours(t), []int{8, 9, 10}; !slices.Equal(got, want) {
		t.Errorf("submitted %v, want %v", got, want)
	}
	if s := w.row(t); s.Missed != 7 || s.Submitted != 3 {
		t.Errorf("missed %d, submitted %d, want 7 and 3", s.Missed, s.Submitted)
	}
	if st := r.Stats(); st.Missed != 7 || st.Submitted != 3 || st.Skipped != 0 {
		t.Errorf("counted %+v, want 7 missed and 3 submitted", st)
	}
	if want := []missed{{"s", 7}}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// TestCatchUpIsBounded makes up for the newest runs, and counts the others.
func TestCatchUpIsBounded(t *testing.T) {
	w := newWorld()
	w.put(t, func(s *schedule.Spec) { s.Overlap, s.Every, s.CatchUp = schedule.OverlapAll, "1s", "24h" })
	w.wait(time.Hour)
	round(t, w.runner(t, nil))
	if s := w.row(t); len(w.order) != schedule.CatchUpsDefault || s.Missed != 3600-schedule.CatchUpsDefault || !s.Last.Equal(noon.Add(time.Hour)) {
		t.Errorf("submitted %d, missed %d, last %s", len(w.order), s.Missed, s.Last)
	}
}

// TestKilledBetween kills the leader between submission and write: the next one submits the same task, and writes it.
func TestKilledBetween(t *testing.T) {
	for _, overlap := range []string{schedule.OverlapSkip, schedule.OverlapQueue, schedule.OverlapAll} {
		t.Run(overlap, func(t *testing.T) {
			w := newWorld()
			w.put(t, func(s *schedule.Spec) { s.Overlap = overlap })
			w.wait(time.Hour)
			ctx, kill := context.WithCancel(t.Context())
			w.afterSend, w.putFails = kill, 1
			if err := w.runner(t, nil).round(ctx); err == nil {
				t.Fatal("the write is said to have happened")
			}
			if s := w.row(t); len(w.order) != 1 || s.Submitted != 0 || s.LastTask != "" {
				t.Fatalf("submitted %v, row %+v: want a task that the row does not know", w.order, s)
			}
			w.afterSend = nil
			next := w.runner(t, nil)
			round(t, next)
			round(t, next)
			if s := w.row(t); len(w.order) != 1 || w.again != 1 || s.Submitted != 1 || s.LastTask != w.order[0] || s.Skipped+s.Missed != 0 {
				t.Errorf("submitted %v and %d again, row %+v: want one task, submitted twice and counted once", w.order, w.again, s)
			}
		})
	}
}

// TestCutOffBetweenRuns: a round that is cut off between two submissions has written down those before, so that many runs that
// are made up for are not begun again and again.
func TestCutOffBetweenRuns(t *testing.T) {
	w := newWorld()
	w.put(t, func(s *schedule.Spec) { s.Overlap, s.CatchUp = schedule.OverlapAll, "3h" })
	w.wait(3 * time.Hour)
	ctx, cut := context.WithCancel(t.Context())
	w.afterSend = func() {
		if len(w.order) == 2 {
			cut()
		}
	}
	r := w.runner(t, nil)
	if err := r.round(ctx); err == nil {
		t.Fatal("the round is said to have come to its end")
	}
	if s := w.row(t); s.Submitted != 2 || !s.Last.Equal(noon.Add(2*time.Hour)) || s.Failure != "" {
		t.Errorf("submitted %v, row %+v: want two runs written down", w.order, s)
	}
	w.wait(retryMost)
	round(t, r)
	if s := w.row(t); len(w.order) != 3 || w.again != 0 || s.Submitted != 3 || s.Missed != 0 {
		t.Errorf("submitted %v and %d again, row %+v: want each of three runs once", w.order, w.again, s)
	}
}

// TestTwoLeaders lets two carry out the same schedules at once: a run is one task, and counts once.
func TestTwoLeaders(t *testing.T) {
	w := newWorld()
	for _, name := range []string{"a", "b", "s"} {
		w.put(t, func(s *schedule.Spec) { s.Name, s.Every, s.Overlap, s.CatchUp = name, "1m", schedule.OverlapAll, "30m" })
	}
	leaders := []*Runner{w.runner(t, nil), w.runner(t, nil)}
	for range 30 {
		w.wait(time.Minute)
		var both sync.WaitGroup
		for _, r := range leaders {
			both.Go(func() {
				if err := r.round(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
	}
	for _, s := range w.selected(10, "", func(*operate.Schedule) bool { return true }) {
		if s.Submitted != 30 || s.Missed+s.Skipped != 0 || !s.Last.Equal(noon.Add(30*time.Minute)) {
			t.Errorf("schedule %s: submitted %d, missed %d, skipped %d, last %s, want 30 and no other", s.Name, s.Submitted, s.Missed, s.Skipped, s.Last)
		}
	}
	if len(w.order) != 90 {
		t.Errorf("%d tasks, want 90", len(w.order))
	}
}

// TestFails tries a submission that fails again, says so, and counts it as missed when its window is over.
func TestFails(t *testing.T) {
	w := newWorld()
	w.put(t, func(s *schedule.Spec) { s.CatchUp = "10m" })
	r := w.runner(t, nil)
	w.refuse = &operate.Refusal{Code: 404, Detail: "no plan"}
	w.wait(time.Hour)
	round(t, r)
	if s := w.row(t); !strings.Contains(s.Failure, "no plan") || s.Failing.IsZero() || s.Submitted != 0 {
		t.Fatalf("row %+v, want its failure", s)
	}
	if why := r.Stats().Failing["s"]; why != "no plan" {
		t.Errorf("failing for %q", why)
	}
	failed := r.Stats().Failed
	round(t, r)
	if got := r.Stats().Failed; got != failed {
		t.Errorf("tried %d times without a pause", got)
	}
	w.wait(retryMost)
	round(t, r)
	if lag := r.Stats().Lag; lag != retryMost {
		t.Errorf("lag %v, want %v: that of the run that fails", lag, retryMost)
	}
	w.refuse = nil
	w.wait(retryMost)
	round(t, r)
	if s := w.row(t); s.Failure != "" || !s.Failing.IsZero() || s.Submitted != 1 || len(r.Stats().Failing) > 0 {
		t.Errorf("row %+v, want it mended", s)
	}
	w.end(w.order[0], core.StateProcessed, "")
	w.refuse = &operate.Refusal{Code: 503, Detail: "the door is not open yet"}
	w.wait(time.Hour)
	round(t, r)
	w.wait(11 * time.Minute)
	w.refuse = nil
	round(t, r)
	if s := w.row(t); s.Missed != 1 || s.Submitted != 1 {
		t.Errorf("missed %d, submitted %d, want 1 and 1", s.Missed, s.Submitted)
	}
}

// TestClockSetBack: after the clock was set back a submission that failed is tried again as soon as before, and what became of
// tasks is looked at as soon.
func TestClockSetBack(t *testing.T) {
	w := newWorld()
	w.put(t, func(s *schedule.Spec) { s.CatchUp = "12h" })
	r := w.runner(t, nil)
	w.refuse = &operate.Refusal{Code: 503, Detail: "busy"}
	w.wait(5 * time.Hour)
	round(t, r)
	w.refuse = nil
	w.wait(-time.Hour)
	round(t, r)
	if len(w.order) == 0 {
		t.Fatal("the submission that failed waits for the clock")
	}
	w.end(w.order[len(w.order)-1], core.StateProcessed, "")
	w.wait(-10 * time.Minute)
	round(t, r)
	if s := w.row(t); s.Outcome != core.StateProcessed {
		t.Errorf("row %+v: want the end of its task", s)
	}
}

// TestScheduleOfOtherIDs: whose token says what the ids begin with that it submits makes and runs no schedule of other ids.
func TestScheduleOfOtherIDs(t *testing.T) {
	w := newWorld()
	w.put(t, nil)
	svc, ann := w.service(), operate.Actor{Name: "ann", Role: operate.RoleOperator, Via: "http", Labels: "duly-ids=acme-,tenant=acme"}
	for name, free := range map[string]bool{"acme-nightly": true, "acme": true, "acmes": false, "s": false} {
		_, put := svc.PutSchedule(t.Context(), ann, schedule.Spec{Name: name, Type: "payout", Input: []byte(`{}`), Every: "1h"}, "")
		_, run := svc.RunSchedule(t.Context(), ann, name, "", "")
		for what, err := range map[string]error{"put": put, "run": run} {
			if bad, refused := errors.AsType[*operate.Refusal](err); free != (err == nil) || !free && (!refused || bad.Code != 403) {
				t.Errorf("%s of %s: %v", what, name, err)
			}
		}
	}
	if len(w.order) == 0 {
		t.Error("nothing is submitted")
	}
	for _, id := range w.order {
		if !strings.HasPrefix(id, "acme-") {
			t.Errorf("submitted %s", id)
		}
	}
}

// TestRefusedByState: a run whose version of the plan is deprecated is not submitted, and is told as one that fails; one whose
// id is a task already is.
func TestRefusedByState(t *testing.T) {
	for _, taken := range []bool{false, true} {
		w := newWorld()
		w.put(t, nil)
		r := w.runner(t, nil)
		w.refuse = &operate.Refusal{Code: 409, Detail: "version 1 is deprecated", Taken: taken}
		w.wait(time.Hour + time.Second)
		round(t, r)
		if s := w.row(t); (s.Submitted == 1) != taken || (s.Failure == "") != taken || len(r.Stats().Failing) == 0 != taken {
			t.Errorf("taken %v: row %+v, failing %v", taken, s, r.Stats().Failing)
		}
	}
}

// TestNotLeading does nothing while another leads.
func TestNotLeading(t *testing.T) {
	w := newWorld()
	w.put(t, nil)
	w.wait(time.Hour)
	r := NewRunner(Config{Now: w.clock}, w, w, w, leads(false), slog.New(slog.DiscardHandler))
	round(t, r)
	if len(w.order) > 0 {
		t.Errorf("submitted %v", w.order)
	}
}

// TestRun goes round by itself until it is ended, and reports each round but the one that was cut off.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(t, func(s *schedule.Spec) { s.Overlap = schedule.OverlapAll })
		ctx, cancel := context.WithCancel(t.Context())
		var reports []error
		r := w.runner(t, nil)
		r.cfg.Report = func(err error) { reports = append(reports, err) }
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		synctest.Wait()
		for range 2 {
			w.wait(time.Hour)
			<-time.After(r.cfg.Interval)
			synctest.Wait()
		}
		w.afterSend = cancel
		w.wait(time.Hour)
		running.Wait()
		if len(w.order) != 3 || len(reports) != 3 || errors.Join(reports...) != nil {
			t.Errorf("submitted %v, reported %v, want three runs and three rounds without an error", w.order, reports)
		}
	})
}

// TestNamesToldAreBounded: who has told of runs that are left out forgets schedules of which there may be none any more.
func TestNamesToldAreBounded(t *testing.T) {
	w := newWorld()
	w.put(t, nil)
	r := w.runner(t, nil)
	for i := range operate.SchedulesMax + 1 {
		r.skipped[fmt.Sprint("gone", i)] = "task"
	}
	w.wait(time.Hour)
	round(t, r)
	if n := len(r.skipped); n > 1 {
		t.Errorf("%d names are kept", n)
	}
}

// TestMovedEndBeginsNow: a schedule whose end has passed and is moved goes on with the next run that comes; those between its
// old end and now are not made up for.
func TestMovedEndBeginsNow(t *testing.T) {
	w := newWorld()
	until := func(hours int) func(*schedule.Spec) {
		return func(s *schedule.Spec) {
			s.Overlap, s.CatchUp, s.Until = schedule.OverlapAll, "24h", noon.Add(time.Duration(hours)*time.Hour)
		}
	}
	w.put(t, until(2))
	r := w.runner(t, nil)
	w.wait(8 * time.Hour)
	round(t, r)
	w.put(t, until(24))
	w.wait(time.Hour)
	round(t, r)
	if got, want := w.hours(t), []int{1, 9}; !slices.Equal(got, want) {
		t.Errorf("submitted %v, want %v", got, want)
	}
}

// TestLateRunThatIsThere: a run that was submitted by a leader which was stopped before it wrote that down, and is too late by
// now, is the task before the next run: with skip that one does not overlap it.
func TestLateRunThatIsThere(t *testing.T) {
	w := newWorld()
	w.put(t, func(s *schedule.Spec) { s.CatchUp = "10m" })
	w.wait(time.Hour)
	ctx, kill := context.WithCancel(t.Context())
	w.afterSend, w.putFails = kill, 1
	if err := w.runner(t, nil).round(ctx); err == nil {
		t.Fatal("the write is said to have happened")
	}
	w.afterSend = nil
	w.wait(time.Hour)
	round(t, w.runner(t, nil))
	if s := w.row(t); len(w.order) != 1 || s.LastTask != w.order[0] || s.Submitted != 1 || s.Skipped != 1 || s.Missed != 0 {
		t.Errorf("submitted %v, row %+v: want the second run to be left out for the first", w.order, s)
	}
}

// TestFailingEndsWithItsSchedule: a schedule that fails and is paused is not told as failing any more.
func TestFailingEndsWithItsSchedule(t *testing.T) {
	w := newWorld()
	w.put(t, nil)
	r := w.runner(t, nil)
	w.refuse = &operate.Refusal{Code: 404, Detail: "no plan"}
	w.wait(time.Hour)
	round(t, r)
	if why := r.Stats().Failing["s"]; why != "no plan" {
		t.Fatalf("failing for %q", why)
	}
	if _, err := w.service().PauseSchedule(t.Context(), olga, "s", true, "the plan is gone"); err != nil {
		t.Fatal(err)
	}
	round(t, r)
	if is := r.Stats().Failing; len(is) > 0 {
		t.Errorf("failing %v, though it is paused", is)
	}
}

// TestRunNowTwice: two requests within a second are one task, which counts once, and the second hears that it is the first's.
func TestRunNowTwice(t *testing.T) {
	w := newWorld()
	w.put(t, nil)
	svc := w.service()
	first, err := svc.RunSchedule(t.Context(), olga, "s", "", "")
	if err != nil {
		t.Fatal(err)
	}
	second, err := svc.RunSchedule(t.Context(), olga, "s", "", "")
	if s := w.row(t); err != nil || second.Task != first.Task || first.Again || !second.Again || len(w.order) != 1 || s.Submitted != 1 || s.LastTask != first.Task {
		t.Errorf("%s and %s, %v, submitted %v, row %+v: want one task, counted once", first.Task, second.Task, err, w.order, s)
	}
}

// TestRunNowByKey: a request that is sent again with its key, however late, is the task of the first, whatever its answer was.
// A key of another request is refused.
func TestRunNowByKey(t *testing.T) {
	w := newWorld()
	w.put(t, nil)
	svc := w.service()
	first, err := svc.RunSchedule(t.Context(), olga, "s", "", "k-1")
	if err != nil {
		t.Fatal(err)
	}
	w.wait(5 * time.Minute)
	again, err := svc.RunSchedule(t.Context(), olga, "s", "", "k-1")
	if s := w.row(t); err != nil || again != first || len(w.order) != 1 || s.Submitted != 1 {
		t.Errorf("%v and %v, %v, submitted %v, row %+v: want one task, counted once", first, again, err, w.order, s)
	}
	other, err := svc.RunSchedule(t.Context(), olga, "s", "", "k-2")
	if err != nil || other == first || len(w.order) != 2 {
		t.Errorf("with another key: %v, %v, submitted %v", other, err, w.order)
	}
	if _, err := svc.PauseSchedule(t.Context(), olga, "s", true, "r"); err != nil {
		t.Fatal(err)
	}
	_, err = svc.RunSchedule(t.Context(), olga, "s", "", "k-2")
	if err != nil || len(w.order) != 2 {
		t.Errorf("again while it is paused: %v, submitted %v", err, w.order)
	}

	// The answer of the endpoint is lost, or the process ends before the outcome is written.
	w.wait(time.Minute)
	w.lost = errDown
	if _, err := svc.RunSchedule(t.Context(), olga, "s", "", "k-3"); !errors.Is(err, errDown) || len(w.order) != 3 {
		t.Fatalf("%v, submitted %v", err, w.order)
	}
	w.lost = &operate.Refusal{Code: 503, Detail: "busy", RetryMS: 1000}
	w.wait(time.Minute)
	if _, err := svc.RunSchedule(t.Context(), olga, "s", "", "k-3"); err == nil || len(w.order) != 3 {
		t.Fatalf("%v, submitted %v", err, w.order)
	}
	w.lost = nil
	w.wait(time.Minute)
	run, err := svc.RunSchedule(t.Context(), olga, "s", "", "k-3")
	if s := w.row(t); err != nil || len(w.order) != 3 || run.Task != w.order[2] || s.LastTask != run.Task || s.Submitted != 3 {
		t.Errorf("after a lost answer: %v, %v, submitted %v, row %+v", run, err, w.order, s)
	}
}

// TestOperators changes a schedule as operators do.
func TestOperators(t *testing.T) {
	w := newWorld()
	w.put(t, nil)
	svc, r := w.service(), w.runner(t, nil)
	if _, err := svc.PauseSchedule(t.Context(), olga, "s", true, "month's end"); err != nil {
		t.Fatal(err)
	}
	w.wait(3 * time.Hour)
	round(t, r)
	if v, err := svc.Schedule(t.Context(), "s"); err != nil || !v.Paused || len(v.Next) > 0 || len(w.order) > 0 {
		t.Errorf("paused: %+v, %v, submitted %v", v, err, w.order)
	}
	run, err := svc.RunSchedule(t.Context(), olga, "s", "", "")
	if err != nil || run.Task != "s-20261126T150000Z-now" || len(w.order) != 1 {
		t.Errorf("run now: %+v, %v, submitted %v", run, err, w.order)
	}
	v, err := svc.PauseSchedule(t.Context(), olga, "s", false, "go on")
	if err != nil || len(v.Next) != operate.ScheduleNext || !v.Next[0].Equal(noon.Add(4*time.Hour)) {
		t.Errorf("resumed: %+v, %v", v, err)
	}
	w.end(w.order[0], core.StateProcessed, "")
	w.wait(time.Hour)
	round(t, r)
	if s := w.row(t); s.Submitted != 2 || s.Missed != 0 || s.LastTask != "s-20261126T160000Z" {
		t.Errorf("after the pause: %+v", s)
	}
	w.put(t, func(s *schedule.Spec) { s.Input = []byte(`{"a":2}`) })
	if s := w.row(t); s.Submitted != 2 || string(s.Input) != `{"a":2}` || !s.Cursor.Equal(noon.Add(4*time.Hour)) {
		t.Errorf("with another input: %+v", s)
	}
	if err := svc.DeleteSchedule(t.Context(), olga, "s", "not needed"); err != nil {
		t.Fatal(err)
	}
	w.wait(2 * time.Hour)
	round(t, r)
	if len(w.order) != 2 {
		t.Errorf("submitted %v after it was deleted", w.order)
	}
	var actions []string
	for _, e := range w.trail {
		if e.Target != "schedule/s" || e.Actor != "olga" || e.Outcome != "done" {
			t.Errorf("audit entry %+v", e)
		}
		actions = append(actions, e.Action)
	}
	if want := []string{"schedule.put", "schedule.pause", "schedule.run_now", "schedule.resume", "schedule.put", "schedule.delete"}; !slices.Equal(actions, want) {
		t.Errorf("audit trail %v, want %v", actions, want)
	}
}

// TestRefusals are told and audited.
func TestRefusals(t *testing.T) {
	w := newWorld()
	svc := w.service()
	viewer := operate.Actor{Name: "vera", Role: operate.RoleViewer}
	good := schedule.Spec{Name: "s", Type: "payout", Input: []byte(`1`), Every: "1h"}
	with := func(change func(*schedule.Spec)) schedule.Spec {
		s := good
		change(&s)
		return s
	}
	for _, c := range []struct {
		name string
		do   func() error
		code int
		says string
	}{
		{"role", func() error { _, err := svc.PutSchedule(t.Context(), viewer, good, ""); return err }, 403, "needs the role operator"},
		{"no plan", func() error {
			_, err := svc.PutSchedule(t.Context(), olga, with(func(s *schedule.Spec) { s.Type = "other" }), "")
			return err
		}, 400, "has no plan"},
		{"no version", func() error {
			_, err := svc.PutSchedule(t.Context(), olga, with(func(s *schedule.Spec) { s.PlanVersion = 2 }), "")
			return err
		}, 400, "plan_version is 2"},
		{"never", func() error {
			_, err := svc.PutSchedule(t.Context(), olga, with(func(s *schedule.Spec) { s.Every, s.Cron = "", "0 0 30 2 *" }), "")
			return err
		}, 400, "never run"},
		{"not there", func() error { _, err := svc.PauseSchedule(t.Context(), olga, "x", true, "r"); return err }, 404, "no schedule"},
		{"no reason", func() error { _, err := svc.PauseSchedule(t.Context(), olga, "x", true, " "); return err }, 400, "reason is empty"},
		{"run what is not there", func() error { _, err := svc.RunSchedule(t.Context(), olga, "x", "", ""); return err }, 404, "no schedule"},
		{"delete what is not there", func() error { return svc.DeleteSchedule(t.Context(), olga, "x", "r") }, 404, "no schedule"},
	} {
		entries := len(w.trail)
		err := c.do()
		bad, ok := err.(*operate.Refusal)
		if !ok || bad.Code != c.code || !strings.Contains(bad.Detail, c.says) {
			t.Errorf("%s: %v, want %d that says %q", c.name, err, c.code, c.says)
		}
		if len(w.trail) != entries+1 || !strings.HasPrefix(w.trail[entries].Outcome, "refused: ") {
			t.Errorf("%s: it is not in the audit trail", c.name)
		}
	}
}

// TestEachRunOnce kills, stops, doubles and refuses leaders at random: each run is submitted, skipped or missed once, and
// the row says how many.
//
// covers: Q4
func TestEachRunOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld()
		overlap := rapid.SampledFrom([]string{schedule.OverlapSkip, schedule.OverlapQueue, schedule.OverlapAll}).Draw(rt, "overlap")
		jitter := rapid.SampledFrom([]string{"", "10m"}).Draw(rt, "jitter")
		w.put(t, func(s *schedule.Spec) { s.Every, s.Overlap, s.CatchUp, s.Jitter = "5m", overlap, "40m", jitter })
		leaders := []*Runner{w.runner(t, nil), w.runner(t, nil)}
		for range rapid.IntRange(5, 40).Draw(rt, "rounds") {
			w.wait(time.Duration(rapid.IntRange(1, 3600).Draw(rt, "seconds")) * time.Second)
			w.refuse = nil
			if rapid.IntRange(0, 4).Draw(rt, "refuse") == 0 {
				w.refuse = &operate.Refusal{Code: 503, Detail: "busy"}
			}
			w.putFails = rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(rt, "writes that fail")
			r := leaders[rapid.IntRange(0, 1).Draw(rt, "leader")]
			_ = r.round(t.Context()) // what fails is done again
			if rapid.Bool().Draw(rt, "ends") {
				for _, id := range w.order {
					w.end(id, core.StateProcessed, "")
				}
			}
		}
		w.refuse, w.putFails = nil, 0
		for range 3 {
			w.wait(retryMost)
			round(t, leaders[0])
		}
		s := w.row(t)
		if s.Submitted != int64(len(w.order)) {
			rt.Fatalf("%d tasks, and the row says %d", len(w.order), s.Submitted)
		}
		runs := int64(s.Cursor.Sub(noon) / (5 * time.Minute))
		if all := s.Submitted + s.Skipped + s.Missed + int64(len(s.Waiting)); all != runs {
			rt.Fatalf("%d submitted, %d skipped, %d missed, %d waiting: %d of %d runs", s.Submitted, s.Skipped, s.Missed, len(s.Waiting), all, runs)
		}
	})
}
