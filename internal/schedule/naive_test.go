package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// naiveLine is a cron line as sets of values, which knows nothing of how a line is read or looked up.
type naiveLine struct {
	text                          string
	minute, hour, dom, month, dow map[int]bool
	anyDay, anyWeekday            bool
}

// drawField draws a field of a cron line: all values, some of them, a range, or, if it may be stepped, each n-th.
func drawField(t *rapid.T, name string, least, most int, stepped bool) (text string, in map[int]bool) {
	in = map[int]bool{}
	switch k := rapid.IntRange(0, 3).Draw(t, name); {
	case k == 0:
		for v := least; v <= most; v++ {
			in[v] = true
		}
		return "*", in
	case k == 1 && stepped:
		step := rapid.IntRange(2, min(20, most-least)).Draw(t, name+" step")
		for v := least; v <= most; v += step {
			in[v] = true
		}
		return "*/" + strconv.Itoa(step), in
	case k == 2:
		from := rapid.IntRange(least, most).Draw(t, name+" from")
		to := rapid.IntRange(from, most).Draw(t, name+" to")
		for v := from; v <= to; v++ {
			in[v] = true
		}
		return fmt.Sprintf("%d-%d", from, to), in
	}
	var words []string
	for range rapid.IntRange(1, 3).Draw(t, name+" values") {
		v := rapid.IntRange(least, most).Draw(t, name+" value")
		in[v], words = true, append(words, strconv.Itoa(v))
	}
	return strings.Join(words, ","), in
}

func drawLine(t *rapid.T) *naiveLine {
	l := &naiveLine{}
	texts := make([]string, 5)
	texts[0], l.minute = drawField(t, "minute", 0, 59, true)
	texts[1], l.hour = drawField(t, "hour", 0, 23, true)
	texts[2], l.dom = drawField(t, "day", 1, 31, false)
	texts[3], l.month = drawField(t, "month", 1, 12, true)
	texts[4], l.dow = drawField(t, "weekday", 0, 6, false)
	l.anyDay, l.anyWeekday = texts[2] == "*", texts[4] == "*"
	l.text = strings.Join(texts, " ")
	return l
}

// names reports whether the line names a minute that a clock on the wall shows.
func (l *naiveLine) names(wall time.Time) bool {
	day, weekday := l.dom[wall.Day()], l.dow[int(wall.Weekday())]
	if l.anyDay || l.anyWeekday {
		day = day && weekday
	} else {
		day = day || weekday
	}
	return l.minute[wall.Minute()] && l.hour[wall.Hour()] && l.month[int(wall.Month())] && day
}

// runs watches the clock of a zone minute by minute from begin to end. A minute that is shown again is none; those that the
// clock leaves out are all shown when it goes on.
func (l *naiveLine) runs(zone *time.Location, begin, end time.Time) (all []time.Time) {
	onWall := func(at time.Time) time.Time {
		at = at.In(zone)
		return time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), 0, 0, time.UTC)
	}
	at := begin.Add(-2 * 24 * time.Hour).Truncate(time.Minute)
	for shown := onWall(at); !at.After(end); at = at.Add(time.Minute) {
		is, named := onWall(at), false
		for ; shown.Before(is); named = named || l.names(shown) {
			shown = shown.Add(time.Minute)
		}
		if named && !at.Before(begin) {
			all = append(all, at)
		}
	}
	return all
}

// everyRuns counts seconds from begin to end.
func everyRuns(from time.Time, every time.Duration, begin, end time.Time) (all []time.Time) {
	for at := begin.Truncate(time.Second); !at.After(end); at = at.Add(time.Second) {
		if since := at.Unix() - from.Unix(); !at.Before(begin) && since >= 0 && since%int64(every/time.Second) == 0 {
			all = append(all, at)
		}
	}
	return all
}

// naiveLook goes over all runs after the cursor: those that are late at the beginning are missed, of the others the newest
// are made up for.
func naiveLook(s *Schedule, runs []time.Time, catchUp time.Duration, most int, cursor, now time.Time) (l Looked) {
	var missed []time.Time
	for _, run := range runs {
		switch due := s.Due(run); {
		case !run.After(cursor):
			continue
		case due.After(now):
		case len(l.Runs) == 0 && due.Add(catchUp).Before(now):
			l.Last, missed = run, append(missed, run)
			continue
		default:
			l.Last, l.Runs = run, append(l.Runs, run)
			continue
		}
		break
	}
	if over := len(l.Runs) - most; over > 0 {
		missed, l.Runs = append(missed, l.Runs[:over]...), l.Runs[over:]
	}
	if l.Missed = int64(len(missed)); l.Missed > 0 {
		l.Oldest = missed[0]
	}
	return l
}

// lookedSame compares what two looks tell.
func lookedSame(a, b Looked) bool {
	return a.Missed == b.Missed && a.Last.Equal(b.Last) && a.Oldest.Equal(b.Oldest) && slices.EqualFunc(a.Runs, b.Runs, time.Time.Equal)
}

// changingZones have clocks that are changed by an hour, by half of one or by two, at midnight, for good, and by a day.
var changingZones = []string{
	"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Africa/Casablanca", "Antarctica/Troll", "America/Havana",
	"America/Sao_Paulo", "Pacific/Apia", "America/Caracas", "Asia/Pyongyang", "Asia/Kathmandu", "America/Nuuk",
}

// TestAgainstNaiveClock plays drawn schedules over drawn days, half of them around a change of the clock: what runs next, what has
// come due after a stop and what was missed is what watching the clock finds.
func TestAgainstNaiveClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sp := spec(nil)
		begin := time.Date(rapid.IntRange(2011, 2036).Draw(t, "year"), time.Month(rapid.IntRange(1, 12).Draw(t, "month")), rapid.IntRange(1, 31).Draw(t, "day"), 0, 0, 0, 0, time.UTC)
		var line *naiveLine
		var every time.Duration
		length := 4 * 24 * time.Hour
		if rapid.IntRange(0, 3).Draw(t, "kind") > 0 {
			line = drawLine(t)
			sp.Every, sp.Cron, sp.Zone = "", line.text, rapid.SampledFrom(changingZones).Draw(t, "zone")
		} else {
			every = time.Duration(rapid.SampledFrom([]int{1, 7, 60, 1800, 5400, 86400}).Draw(t, "every")) * time.Second
			sp.Every = every.String()
			length = min(length, 2000*every)
		}
		zone, bad := zoneOf(sp.Zone)
		if bad != nil {
			t.Fatal(bad)
		}
		if _, change := begin.In(zone).ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "around a change") {
			begin = change.UTC().Add(-length / 2)
		}
		within := func(name string) time.Time {
			return begin.Add(time.Duration(rapid.Int64Range(0, int64(length/time.Millisecond)).Draw(t, name)) * time.Millisecond)
		}
		from := time.Unix(0, 0)
		if rapid.IntRange(0, 2).Draw(t, "has from") == 0 {
			sp.From = within("from")
			if from = sp.From.Truncate(time.Second); from.Before(sp.From) {
				from = from.Add(time.Second)
			}
		}
		if until := within("until"); until.After(from) && rapid.IntRange(0, 2).Draw(t, "has until") == 0 {
			sp.Until = until
		}
		sp.Jitter = rapid.SampledFrom([]string{"", "1ms", "90s", "20m", "5h"}).Draw(t, "jitter")
		catchUp := time.Duration(rapid.SampledFrom([]int{10, 60, 900, 3600, 40 * 3600}).Draw(t, "window")) * time.Second
		sp.CatchUp, sp.CatchUps = catchUp.String(), rapid.SampledFrom([]int{1, 2, 5, 100, 1000}).Draw(t, "at a time")
		s, err := Parse(sp)
		if err != nil {
			t.Fatal(err)
		}
		end := begin.Add(length)
		var runs []time.Time
		if line != nil {
			runs = line.runs(zone, begin, end)
		} else {
			runs = everyRuns(from, every, begin, end)
		}
		runs = slices.DeleteFunc(runs, func(run time.Time) bool {
			return run.Before(sp.From) || !sp.Until.IsZero() && !run.Before(sp.Until)
		})
		jitter, _ := time.ParseDuration(sp.Jitter)
		for _, run := range runs {
			if late := s.Due(run).Sub(run); late < 0 || late > 0 && late >= jitter {
				t.Fatalf("run %s is late by %s, the jitter is %s", run, late, jitter)
			}
		}
		for range 8 {
			cursor := within("cursor")
			if len(runs) > 0 && rapid.Bool().Draw(t, "at a run") {
				cursor = rapid.SampledFrom(runs).Draw(t, "cursor run").Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "beside")))
			}
			if cursor.Before(begin) {
				continue
			}
			left := runs[slices.IndexFunc(append(slices.Clone(runs), end.Add(time.Hour)), cursor.Before):]
			next, ok := s.Next(cursor)
			switch {
			case len(left) > 0 && (!ok || !next.Equal(left[0])):
				t.Fatalf("%+v: after %s comes %s, %v, want %s", *sp, cursor, next, ok, left[0])
			case len(left) == 0 && ok && !next.After(end):
				t.Fatalf("%+v: after %s comes %s, want none up to %s", *sp, cursor, next, end)
			case !sp.Until.IsZero() && ok != (len(left) > 0):
				t.Fatalf("%+v: after %s comes %s, %v, want none: it ends at %s", *sp, cursor, next, ok, sp.Until)
			}
			if fires := s.CheckFires(cursor); ok != (fires == nil) {
				t.Fatalf("%+v: after %s comes %s, %v, and it is said %v", *sp, cursor, next, ok, fires)
			}
			some := min(3, len(left))
			due := s.NextRuns(cursor, some)
			if !slices.EqualFunc(due, left[:some], func(due, run time.Time) bool { return due.Equal(s.Due(run)) }) {
				t.Fatalf("%+v: after %s are due %v, want runs %v", *sp, cursor, due, left[:some])
			}
			now := within("now")
			if len(left) > 0 && rapid.Bool().Draw(t, "at an edge") { // the instant at which one is due, or too late
				now = s.Due(rapid.SampledFrom(left).Draw(t, "now run")).Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "before or after")))
				if rapid.Bool().Draw(t, "too late") {
					now = now.Add(catchUp)
				}
			}
			if now.Add(jitter).After(end) {
				continue
			}
			got, want := s.Look(cursor, now), naiveLook(s, runs, catchUp, s.CatchUps, cursor, now)
			if !lookedSame(got, want) {
				t.Fatalf("%+v: from %s to %s: %d runs %v, %d missed, last %s, oldest %s\nwant %d runs %v, %d missed, last %s, oldest %s", *sp, cursor, now,
					len(got.Runs), got.Runs, got.Missed, got.Last, got.Oldest, len(want.Runs), want.Runs, want.Missed, want.Last, want.Oldest)
			}
		}
	})
}
