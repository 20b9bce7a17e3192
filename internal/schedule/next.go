package schedule

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// idLayout is the instant of a run in the id of its task, in UTC.
const (
	idLayout  = "20060102T150405Z"
	idBytes   = 1 + len(idLayout)
	nowSuffix = "-now"
)

// ID is the id of the task of a run: the same for all who submit it.
func ID(name string, run time.Time) string { return name + "-" + run.UTC().Format(idLayout) }

// RunNowID is the id of the task that is submitted because someone asked at that time. No run of the schedule has it.
func RunNowID(name string, at time.Time) string { return ID(name, at) + nowSuffix }

// Next is the first run after an instant, in UTC and without jitter; false: there is none. It looks at a bounded number
// of days.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	var next time.Time
	if s.cron == nil {
		next = s.nextInterval(after)
	} else {
		if before := s.from.Add(-time.Nanosecond); after.Before(before) {
			after = before
		}
		next = s.nextWall(after)
	}
	if next.IsZero() || !s.until.IsZero() && !next.Before(s.until) {
		return time.Time{}, false
	}
	return next.UTC(), true
}

// nextInterval is the first of from, from+every, … after an instant.
func (s *Schedule) nextInterval(after time.Time) time.Time {
	if after.Before(s.from) {
		return s.from
	}
	return s.from.Add(after.Sub(s.from)/s.every*s.every + s.every)
}

// wallTries bounds the times of a cron line that are looked at for one run: those that a clock shows again after it was
// put back, a minute apart, and it is put back by a day at most.
const wallTries = 2 * 24 * 60

// nextWall is the first time of the cron line whose instant lies after one; zero: there is none within searchYears.
func (s *Schedule) nextWall(after time.Time) time.Time {
	_, offset := after.In(s.zone).Zone()
	wall := after.UTC().Add(time.Duration(offset) * time.Second)
	for range wallTries {
		if wall = s.cron.Next(wall); wall.IsZero() {
			return wall
		}
		if at := instantOf(wall, s.zone); at.After(after) {
			return at
		}
	}
	return time.Time{}
}

// instantOf is when a clock in a zone first shows a time, which stands here as if it were UTC; of a time that the clock
// skips, the instant at which it goes on.
func instantOf(wall time.Time, zone *time.Location) time.Time {
	y, m, d := wall.Date()
	at := time.Date(y, m, d, wall.Hour(), wall.Minute(), wall.Second(), 0, zone)
	_, offset := at.Zone()
	switch shown := at.UTC().Add(time.Duration(offset) * time.Second); { // of a time that is skipped time.Date gives one beside it
	case shown.After(wall):
		begin, _ := at.ZoneBounds()
		return begin
	case shown.Before(wall):
		_, end := at.ZoneBounds()
		return end
	}
	// The same time may be shown before the last change of the zone, too.
	if begin, _ := at.ZoneBounds(); !begin.IsZero() {
		_, before := begin.Add(-time.Second).Zone()
		if first := at.Add(time.Duration(offset-before) * time.Second); first.Before(begin) {
			return first
		}
	}
	return at
}

// Due is when a run is submitted: it is late by its jitter.
func (s *Schedule) Due(run time.Time) time.Time { return run.Add(s.offset(run)) }

// offset is the part of the jitter that a run has: the same wherever and whenever it is asked for.
func (s *Schedule) offset(run time.Time) time.Duration {
	if s.jitter == 0 {
		return 0
	}
	sum := sha256.Sum256([]byte(ID(s.name, run)))
	return time.Duration(binary.BigEndian.Uint64(sum[:8]) % uint64(s.jitter)).Truncate(time.Millisecond)
}

// NextRuns are the times at which the next runs after one are submitted, most of them at most.
func (s *Schedule) NextRuns(after time.Time, most int) []time.Time {
	var runs []time.Time
	for run, ok := s.Next(after); ok && len(runs) < most; run, ok = s.Next(run) {
		runs = append(runs, s.Due(run))
	}
	return runs
}

// Looked is what has come due since a run.
type Looked struct {
	Runs   []time.Time // to be submitted, by their time; at most the number that may be made up for
	Missed int64       // runs that are too late or too many; their number where it is below what is counted
	Last   time.Time   // the last run that has come due, be it missed or not; zero: none has
	Oldest time.Time   // of those that are missed; zero: none is
}

// Look tells what has come due after the run cursor: those whose catch-up window is not over are to be submitted.
// A run is never due before the one before it, whatever their jitter.
func (s *Schedule) Look(cursor, now time.Time) Looked {
	var l Looked
	miss := func(run time.Time, n int64) {
		if l.Missed == 0 {
			l.Oldest = run
		}
		l.Missed += n
	}
	if s.every > 0 { // what is certainly too late is counted without being looked at
		if first, ok := s.Next(cursor); ok && now.Sub(first) > s.catchUp+s.jitter+s.every {
			n := int64((now.Sub(first) - s.catchUp - s.jitter) / s.every)
			if !s.until.IsZero() {
				n = min(n, int64((s.until.Sub(first)-1)/s.every)+1)
			}
			miss(first, n)
			cursor = first.Add(time.Duration(n-1) * s.every)
			l.Last = cursor
		}
	}
	for looked := 0; looked < countMost; looked++ {
		run, ok := s.Next(cursor)
		if !ok || s.Due(run).After(now) {
			return l
		}
		if cursor, l.Last = run, run; len(l.Runs) == 0 && now.Sub(s.Due(run)) > s.catchUp { // none after one that is in time
			miss(run, 1)
			continue
		}
		if l.Runs = append(l.Runs, run); len(l.Runs) > s.CatchUps {
			miss(l.Runs[0], 1)
			l.Runs = l.Runs[1:]
		}
	}
	return l // the rest is looked at the next time
}

func sortLabels(labels []core.Label) {
	slices.SortFunc(labels, func(a, b core.Label) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Value, b.Value))
	})
}
