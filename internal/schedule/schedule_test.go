package schedule

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"archive/zip"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func spec(change func(*Spec)) *Spec {
	s := &Spec{Name: "nightly", Type: "payout", Input: []byte(`{"a":1}`), Every: "15m"}
	if change != nil {
		change(s)
	}
	return s
}

func parse(t *testing.T, change func(*Spec)) *Schedule {
	t.Helper()
	s, err := Parse(spec(change))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRefused holds each refusal to the field that it names and to what it says.
func TestRefused(t *testing.T) {
	cron := func(line string) func(*Spec) { return func(s *Spec) { s.Every, s.Cron = "", line } }
	for _, c := range []struct {
		name, field, says string
		change            func(*Spec)
	}{
		{"no name", "name", "0 bytes", func(s *Spec) { s.Name = "" }},
		{"long name", "name", "want 1 to 43", func(s *Spec) { s.Name = strings.Repeat("a", nameBytesMax+1) }},
		{"bad name", "name", "'~'", func(s *Spec) { s.Name = "a~b" }},
		{"type", "type", "' '", func(s *Spec) { s.Type = "a b" }},
		{"no input", "input", "is not said, want the one that each task has, such as {}", func(s *Spec) { s.Input = nil }},
		{"much input", "input", "has 65537 bytes, the limit is 65536", func(s *Spec) { s.Input = bytes.Repeat([]byte(" "), inputBytesMax+1) }},
		{"input", "input", "input", func(s *Spec) { s.Input = []byte(`{`) }},
		{"version", "plan_version", "-1", func(s *Spec) { s.PlanVersion = -1 }},
		{"labels", "labels", "comma", func(s *Spec) { s.Labels = map[string]string{"a": "b,c"} }},
		{"deadline", "complete_by", "8760h", func(s *Spec) { s.CompleteBy = "9000h" }},
		{"neither", "cron", "so is every", func(s *Spec) { s.Every = "" }},
		{"both", "every", "beside cron", func(s *Spec) { s.Cron = "* * * * *" }},
		{"interval", "every", "no duration", func(s *Spec) { s.Every = "daily" }},
		{"short interval", "every", "want 1s", func(s *Spec) { s.Every = "10ms" }},
		{"part of a second", "every", "whole number", func(s *Spec) { s.Every = "1500ms" }},
		{"zone of an interval", "zone", "elapsed", func(s *Spec) { s.Zone = "Europe/Berlin" }},
		{"six fields", "cron", "6 fields, want 5", cron("0 0 0 * * *")},
		{"a word", "cron", "1 fields", cron("@daily")},
		{"a zone within", "cron", "fields, want 5", cron("TZ=Europe/Berlin 0 * * *")},
		{"minute 60", "cron", "60", cron("60 * * * *")},
		{"a letter", "cron", "x", cron("x * * * *")},
		{"a German day", "cron", `failed to parse int from "montag": want a number, or for a month jan to dec, for a day of the week sun to sat`, cron("0 7 * * montag")},
		{"a long line", "cron", "the limit is 256", cron(strings.Repeat("1,", 200) + "1 * * * *")},
		{"zone", "zone", "is Europe/Berlin meant?", func(s *Spec) { s.Every, s.Cron, s.Zone = "", "0 0 * * *", "Europe/Belrin" }},
		{"a city", "zone", "is Europe/Berlin meant?", func(s *Spec) { s.Every, s.Cron, s.Zone = "", "0 0 * * *", "berlin" }},
		{"a space", "zone", "is America/New_York meant?", func(s *Spec) { s.Every, s.Cron, s.Zone = "", "0 0 * * *", "America/New York" }},
		{"no zone", "zone", "such as Europe/Berlin", func(s *Spec) { s.Every, s.Cron, s.Zone = "", "0 0 * * *", "Middle-earth/Bag_End" }},
		{"the machine's", "zone", "Local", func(s *Spec) { s.Every, s.Cron, s.Zone = "", "0 0 * * *", "Local" }},
		{"until", "until", "not after from", func(s *Spec) { s.From, s.Until = noon, noon }},
		{"until of a line", "until", "not after from", func(s *Spec) { s.Every, s.Cron, s.From, s.Until = "", "0 0 * * *", noon, noon }},
		{"last year", "until", "1970 to 2200", func(s *Spec) { s.Every, s.Cron, s.Until = "", "0 0 * * *", time.Date(2201, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"year", "from", "1970 to 2200", func(s *Spec) { s.From = time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"jitter", "jitter", "want 1ms to 24h", func(s *Spec) { s.Jitter = "25h" }},
		{"overlap", "overlap", "skip, queue or all", func(s *Spec) { s.Overlap = "none" }},
		{"queue of skip", "queue", "goes with overlap queue", func(s *Spec) { s.Queue = 4 }},
		{"long queue", "queue", "want 1 to 100", func(s *Spec) { s.Overlap, s.Queue = OverlapQueue, 101 }},
		{"window", "catch_up", "want 10s", func(s *Spec) { s.CatchUp = "1s" }},
		{"catch-ups below none", "catch_ups", "is -1, want 1 to 1000", func(s *Spec) { s.CatchUps = -1 }},
		{"queue below none", "queue", "is -1, want 1 to 100", func(s *Spec) { s.Overlap, s.Queue = OverlapQueue, -1 }},
		{"catch-ups", "catch_ups", "want 1 to 1000", func(s *Spec) { s.CatchUps = 1001 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(spec(c.change))
			bad, ok := errors.AsType[*FieldError](err)
			if !ok || bad.Field != c.field || !strings.Contains(bad.Text, c.says) || !strings.Contains(bad.Text, c.field) {
				t.Errorf("error %v, want one about %s that says %q", err, c.field, c.says)
			}
		})
	}
}

// TestAtTheLimits accepts what is just within each limit, and says what is left out.
func TestAtTheLimits(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"name":                func(s *Spec) { s.Name = strings.Repeat("a", nameBytesMax) },
		"input":               func(s *Spec) { s.Input = []byte(`"` + strings.Repeat("a", inputBytesMax-2) + `"`) },
		"version":             func(s *Spec) { s.PlanVersion = 1 },
		"short deadline":      func(s *Spec) { s.CompleteBy = "1ms" },
		"long deadline":       func(s *Spec) { s.CompleteBy = core.DurationMax.String() },
		"short interval":      func(s *Spec) { s.Every = "1s" },
		"long interval":       func(s *Spec) { s.Every = core.DurationMax.String() },
		"line":                func(s *Spec) { s.Every, s.Cron = "", strings.Repeat("1,", 123)+"01 * * * *" },
		"first year":          func(s *Spec) { s.From = time.Date(yearMin, 1, 1, 0, 0, 0, 0, time.UTC) },
		"last year":           func(s *Spec) { s.Until = time.Date(yearMax, 12, 31, 0, 0, 0, 0, time.UTC) },
		"end after beginning": func(s *Spec) { s.From, s.Until = noon, noon.Add(1) },
		"short jitter":        func(s *Spec) { s.Jitter = "1ms" },
		"long jitter":         func(s *Spec) { s.Jitter = "24h" },
		"short window":        func(s *Spec) { s.CatchUp = "10s" },
		"long window":         func(s *Spec) { s.CatchUp = "744h" },
		"one at a time":       func(s *Spec) { s.CatchUps = 1 },
		"as many at a time":   func(s *Spec) { s.CatchUps = catchUpsMax },
		"short queue":         func(s *Spec) { s.Overlap, s.Queue = OverlapQueue, 1 },
		"long queue":          func(s *Spec) { s.Overlap, s.Queue = OverlapQueue, queueMax },
		"beside one another":  func(s *Spec) { s.Overlap = OverlapAll },
	} {
		if _, err := Parse(spec(change)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := parse(t, func(s *Spec) { s.Labels = map[string]string{"c": "3", "a": "1", "b": "2"} })
	want := []core.Label{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}, {Key: "c", Value: "3"}}
	if !slices.Equal(s.Labels, want) || s.Overlap != OverlapSkip || s.Queue != queueDefault || s.CatchUps != CatchUpsDefault || s.catchUp != catchUpDefault || s.CompleteBy != 0 {
		t.Errorf("%+v", s)
	}
}

// TestNeverFires refuses what would never run, with the reason.
func TestNeverFires(t *testing.T) {
	for _, c := range []struct {
		field, says string
		change      func(*Spec)
	}{
		{"cron", "30 February", func(s *Spec) { s.Every, s.Cron = "", "0 0 30 2 *" }},
		{"cron", "would never run", func(s *Spec) { s.Every, s.Cron = "", "0 0 31 4,6,9,11 *" }},
		{"until", "has passed", func(s *Spec) { s.Until = noon.Add(-time.Hour) }},
		{"until", "before the first run", func(s *Spec) { s.Every, s.From, s.Until = "24h", time.Time{}, noon.Add(time.Hour) }},
		{"until", "before the first run, 2027-01-01", func(s *Spec) { s.Every, s.Cron, s.Until = "", "0 0 1 1 *", noon.Add(time.Hour) }},
	} {
		bad, ok := errors.AsType[*FieldError](parse(t, c.change).CheckFires(noon))
		if !ok || bad.Field != c.field || !strings.Contains(bad.Text, c.says) {
			t.Errorf("error %v, want one about %s that says %q", bad, c.field, c.says)
		}
	}
	for _, line := range []string{"0 0 29 2 *", "0 0 * * *", "59 23 31 12 *", "*/7 9-17 * * mon-fri"} {
		if err := parse(t, func(s *Spec) { s.Every, s.Cron = "", line }).CheckFires(noon); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestDayOfMonthOrWeek is as crontab has it: where both are given, one of them is enough.
func TestDayOfMonthOrWeek(t *testing.T) {
	s := parse(t, func(s *Spec) { s.Every, s.Cron = "", "0 0 1 * 5" })
	var days []int
	at := noon // a Thursday
	for range 3 {
		at, _ = s.Next(at)
		days = append(days, at.Day())
	}
	if want := []int{27, 1, 4}; !slices.Equal(days, want) {
		t.Errorf("days %v, want %v: Friday, the first, Friday", days, want)
	}
}

// TestEnds holds runs to from and until: from counts, until does not.
func TestEnds(t *testing.T) {
	s := parse(t, func(s *Spec) { s.Every, s.Cron, s.From, s.Until = "", "0 * * * *", noon, noon.Add(2*time.Hour) })
	if got, want := s.NextRuns(noon.Add(-24*time.Hour), 5), []time.Time{noon, noon.Add(time.Hour)}; !slices.EqualFunc(got, want, time.Time.Equal) {
		t.Errorf("runs %v, want %v", got, want)
	}
}

// TestIDs holds ids to the limit and the alphabet of ids.
func TestIDs(t *testing.T) {
	name := strings.Repeat("n", nameBytesMax)
	for _, id := range []string{ID(name, noon.In(time.FixedZone("x", 3600))), RunNowID(name, noon)} {
		if err := core.CheckName("id", id); err != nil {
			t.Error(err)
		}
	}
	if got := ID("nightly", noon.In(time.FixedZone("x", 3600))); got != "nightly-20261126T120000Z" {
		t.Errorf("id %s", got)
	}
}

// TestJitter is the same for a run wherever it is asked for, and spreads schedules of one time.
func TestJitter(t *testing.T) {
	offsets := map[time.Duration]bool{}
	for _, name := range []string{"a", "b", "c", "d"} {
		s := parse(t, func(s *Spec) { s.Name, s.Jitter = name, "10m" })
		again := parse(t, func(s *Spec) { s.Name, s.Jitter = name, "10m" })
		d := s.Due(noon).Sub(noon)
		if d < 0 || d >= 10*time.Minute || d != again.Due(noon).Sub(noon) {
			t.Errorf("schedule %s: offset %v, and %v the next time", name, d, again.Due(noon).Sub(noon))
		}
		offsets[d] = true
	}
	if len(offsets) < 4 {
		t.Errorf("4 schedules have %d offsets", len(offsets))
	}
}

// TestLook tells what has come due after a stop: within the window it runs, the newest if there are too many; the rest is
// missed.
func TestLook(t *testing.T) {
	for _, c := range []struct {
		name         string
		change       func(*Spec)
		stopped      time.Duration
		runs, missed int
	}{
		{"nothing", nil, 0, 0, 0},
		{"one", nil, 15 * time.Minute, 1, 0},
		{"within the window", nil, time.Hour, 4, 0},
		{"beyond it", nil, 3 * time.Hour, 5, 7},
		{"cron beyond it", func(s *Spec) { s.Every, s.Cron = "", "*/15 * * * *" }, 3 * time.Hour, 5, 7},
		{"too many", func(s *Spec) { s.CatchUp, s.CatchUps = "24h", 10 }, 24 * time.Hour, 10, 86},
		{"a year of seconds", func(s *Spec) { s.Every, s.CatchUp = "1s", "10s" }, 365 * 24 * time.Hour, 11, 365*24*3600 - 11},
		{"ended meanwhile", func(s *Spec) { s.Until = noon.Add(30 * time.Minute) }, 24 * time.Hour, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := noon.Add(c.stopped)
			l := parse(t, c.change).Look(noon, now)
			if len(l.Runs) != c.runs || l.Missed != int64(c.missed) {
				t.Fatalf("%d runs and %d missed, want %d and %d", len(l.Runs), l.Missed, c.runs, c.missed)
			}
			if c.runs > 0 && !l.Runs[c.runs-1].Equal(l.Last) || (c.runs+c.missed > 0) == l.Last.IsZero() {
				t.Errorf("the runs are %v, the last %s", l.Runs, l.Last)
			}
		})
	}
}

// TestLookLosesNone walks random schedules with random stops: each run is submitted or missed, once.
func TestLookLosesNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sp := spec(nil)
		if rapid.Bool().Draw(t, "cron") {
			sp.Every, sp.Cron = "", rapid.SampledFrom([]string{"*/5 * * * *", "0 * * * *", "17 3 * * *", "30 2 * * 0"}).Draw(t, "line")
			sp.Zone = rapid.SampledFrom([]string{"Europe/Berlin", "Australia/Lord_Howe", "America/New_York"}).Draw(t, "zone")
		} else {
			sp.Every = rapid.SampledFrom([]string{"1m", "7m", "1h"}).Draw(t, "every")
		}
		sp.Jitter = rapid.SampledFrom([]string{"", "30s", "20m"}).Draw(t, "jitter")
		sp.CatchUp = rapid.SampledFrom([]string{"10s", "1h", "48h"}).Draw(t, "window")
		s, err := Parse(sp)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Date(2026, time.Month(rapid.IntRange(1, 12).Draw(t, "month")), 1, 0, 0, 0, 0, time.UTC)
		cursor, now := begin, begin
		var seen int64
		for range 20 {
			now = now.Add(time.Duration(rapid.IntRange(1, 3*24*3600).Draw(t, "stop")) * time.Second)
			l := s.Look(cursor, now)
			if seen += int64(len(l.Runs)) + l.Missed; !l.Last.IsZero() {
				if !l.Last.After(cursor) {
					t.Fatalf("the last run %s is not after %s", l.Last, cursor)
				}
				cursor = l.Last
			}
		}
		var all int64
		for run, ok := s.Next(begin); ok && !run.After(cursor); run, ok = s.Next(run) {
			all++
		}
		if seen != all {
			t.Fatalf("%d runs were seen of %d", seen, all)
		}
	})
}

// TestZones holds the list of zones to those that this Go has.
func TestZones(t *testing.T) {
	archive, err := zip.OpenReader(filepath.Join(goroot(t), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		if os.IsNotExist(err) {
			t.Logf("no list to compare with: %v", err)
		} else {
			t.Fatal(err)
		}
	} else {
		defer archive.Close()
		for _, f := range archive.File {
			if f.FileInfo().IsDir() || f.Name == "Factory" {
				continue
			}
			if _, found := slices.BinarySearch(zones(), f.Name); !found {
				t.Errorf("zone %s is not in zones.txt", f.Name)
			}
		}
	}
	for _, name := range zones() {
		if _, bad := zoneOf(name); bad != nil {
			t.Error(bad)
		}
	}
}

// BenchmarkNext is the cost of the next run of a cron line, and of one that never comes.
func BenchmarkNext(b *testing.B) {
	for _, line := range []string{"*/5 * * * *", "0 0 29 2 *", "0 0 30 2 *"} {
		b.Run(line, func(b *testing.B) {
			s, err := Parse(spec(func(s *Spec) { s.Every, s.Cron, s.Zone = "", line, "Europe/Berlin" }))
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s.Next(noon)
			}
		})
	}
}

// goroot is where the Go that runs the tests is.
func goroot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
