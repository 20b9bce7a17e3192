package schedules

import (
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/schedule"
)

// run is one that was submitted, and its task's place in the stream; 0: not known.
type run struct {
	at    time.Time
	place uint64
}

// looked is what one look at a schedule came to, run by run, so that it can be told of a row that another has written
// meanwhile: a run counts once, whoever was faster.
type looked struct {
	submitted []run
	skipped   []time.Time
	waiting   []time.Time // runs that wait from now on
	missed    int64       // runs up to the one at missedTo
	missedTo  time.Time   //
	cursor    time.Time   // the last run that was decided upon; zero: none was
	at        time.Time   // of the look
	failure   string      // why the next submission failed; empty: none did
	outcome   core.State  // of task, which was submitted last; empty: not known
	why       string      //
	task      string      //
}

// apply changes a schedule by a look, and reports whether it did.
func (l *looked) apply(to *operate.Schedule) bool {
	changed := false
	if l.outcome != "" && to.LastTask == l.task && to.Outcome == "" {
		to.Outcome, to.Why, changed = l.outcome, l.why, true
	}
	decided := to.Cursor
	if l.missed > 0 && l.missedTo.After(decided) {
		to.Missed, changed = to.Missed+l.missed, true
	}
	for _, run := range l.skipped {
		if run.After(decided) {
			to.Skipped, changed = to.Skipped+1, true
		}
	}
	for _, run := range l.waiting {
		if run.After(decided) {
			to.Waiting, changed = append(to.Waiting, run), true
		}
	}
	for _, run := range l.submitted {
		if run.at.After(to.Last) {
			to.Last, to.LastTask, to.LastAt, to.LastPlace, to.Outcome, to.Why = run.at, schedule.ID(to.Name, run.at), core.InstantOf(l.at).Time(), run.place, "", ""
			to.Submitted, changed = to.Submitted+1, true
		}
		if i := slices.IndexFunc(to.Waiting, run.at.Equal); i >= 0 {
			to.Waiting, changed = slices.Delete(to.Waiting, i, i+1), true
		}
	}
	if len(to.Waiting) == 0 {
		to.Waiting = nil
	}
	if l.cursor.After(to.Cursor) {
		to.Cursor, changed = l.cursor, true
	}
	return l.fails(to) || changed
}

// fails writes down that submissions fail, and that they do no more.
func (l *looked) fails(to *operate.Schedule) bool {
	switch {
	case l.failure != "" && to.Failure != l.failure:
		if to.Failing.IsZero() {
			to.Failing = core.InstantOf(l.at).Time()
		}
		to.Failure = l.failure
		return true
	case l.failure == "" && len(l.submitted) > 0 && to.Failure != "":
		to.Failing, to.Failure = time.Time{}, ""
		return true
	}
	return false
}
