package schedule

import (
	"testing"
	"time"
)

// local are the runs of a cron line as the clock of its zone shows them, with the offset that tells a doubled time apart.
func local(t *testing.T, line, zone, after string, n int) []string {
	t.Helper()
	s, err := Parse(&Spec{Name: "s", Type: "t", Input: []byte(`{}`), Cron: line, Zone: zone})
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, after)
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for range n {
		next, ok := s.Next(at)
		if !ok || !next.After(at) {
			t.Fatalf("%s in %s: next of %s is %s, %v", line, zone, at, next, ok)
		}
		at = next
		shown = append(shown, at.In(s.zone).Format("01-02 15:04 -0700"))
	}
	return shown
}

// TestClockChanges plays three zones over both changes of their clocks: a time that is skipped runs once, at the instant at
// which the clock goes on; a time that is shown twice runs once, the first time.
func TestClockChanges(t *testing.T) {
	for _, c := range []struct {
		name, line, zone, after string
		want                    []string
	}{
		// Berlin: 2026-03-29 02:00 becomes 03:00; 2026-10-25 03:00 becomes 02:00.
		{"skipped, daily", "30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", []string{"03-28 02:30 +0100", "03-29 03:00 +0200", "03-30 02:30 +0200"}},
		{"skipped, at its edge", "0 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"03-29 03:00 +0200", "03-30 02:00 +0200"}},
		{"after the skipped hour", "0 3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"03-29 03:00 +0200", "03-30 03:00 +0200"}},
		{"several skipped are one", "*/20 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"03-29 03:00 +0200", "03-30 02:00 +0200", "03-30 02:20 +0200"}},
		{"hourly over the gap", "0 * * * *", "Europe/Berlin", "2026-03-28T23:30:00Z", []string{"03-29 01:00 +0100", "03-29 03:00 +0200", "03-29 04:00 +0200"}},
		{"half past over the gap", "30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", []string{"03-29 01:30 +0100", "03-29 03:00 +0200", "03-29 03:30 +0200"}},
		{"doubled, daily", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"10-25 02:30 +0200", "10-26 02:30 +0100"}},
		{"doubled, at its edge", "0 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"10-25 02:00 +0200", "10-26 02:00 +0100"}},
		{"doubled, asked in its second pass", "30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", []string{"10-26 02:30 +0100"}},
		{"hourly over the doubled hour", "0 * * * *", "Europe/Berlin", "2026-10-24T22:30:00Z", []string{"10-25 01:00 +0200", "10-25 02:00 +0200", "10-25 03:00 +0100"}},
		{"the hour after", "0 3 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"10-25 03:00 +0100"}},
		// New York: 2026-03-08 02:00 becomes 03:00; 2026-11-01 02:00 becomes 01:00.
		{"skipped, daily", "15 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", []string{"03-08 03:00 -0400", "03-09 02:15 -0400"}},
		{"skipped, on that weekday", "45 2 * * 0", "America/New_York", "2026-03-01T12:00:00Z", []string{"03-08 03:00 -0400", "03-15 02:45 -0400"}},
		{"every half hour over the gap", "*/30 * * * *", "America/New_York", "2026-03-08T06:15:00Z", []string{"03-08 01:30 -0500", "03-08 03:00 -0400", "03-08 03:30 -0400"}},
		{"doubled, daily", "30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", []string{"11-01 01:30 -0400", "11-02 01:30 -0500"}},
		{"every half hour over the doubled hour", "*/30 * * * *", "America/New_York", "2026-11-01T05:15:00Z", []string{"11-01 01:30 -0400", "11-01 02:00 -0500", "11-01 02:30 -0500"}},
		{"doubled, asked between its passes", "59 1 * * *", "America/New_York", "2026-11-01T06:00:00Z", []string{"11-02 01:59 -0500"}},
		// Lord Howe: half an hour. 2026-04-05 02:00 becomes 01:30; 2026-10-04 02:00 becomes 02:30.
		{"half an hour skipped", "15 2 * * *", "Australia/Lord_Howe", "2026-10-02T20:00:00Z", []string{"10-04 02:30 +1100", "10-05 02:15 +1100"}},
		{"half an hour skipped, at its end", "30 2 * * *", "Australia/Lord_Howe", "2026-10-03T02:00:00Z", []string{"10-04 02:30 +1100", "10-05 02:30 +1100"}},
		{"each quarter over half an hour", "*/15 * * * *", "Australia/Lord_Howe", "2026-10-03T15:10:00Z", []string{"10-04 01:45 +1030", "10-04 02:30 +1100", "10-04 02:45 +1100"}},
		{"half an hour doubled", "45 1 * * *", "Australia/Lord_Howe", "2026-04-03T20:00:00Z", []string{"04-05 01:45 +1100", "04-06 01:45 +1030"}},
		{"half an hour doubled, at its edge", "30 1 * * *", "Australia/Lord_Howe", "2026-04-03T20:00:00Z", []string{"04-05 01:30 +1100", "04-06 01:30 +1030"}},
		{"each quarter over the doubled half hour", "*/15 * * * *", "Australia/Lord_Howe", "2026-04-04T14:40:00Z", []string{"04-05 01:45 +1100", "04-05 02:00 +1030", "04-05 02:15 +1030"}},
		// Midnight that there is not, and a day that there was not.
		{"no midnight", "0 0 * * *", "Africa/Cairo", "2026-04-23T12:00:00Z", []string{"04-24 01:00 +0300", "04-25 00:00 +0300"}},
		{"no 30 December", "0 9 30 12 *", "Pacific/Apia", "2011-12-01T12:00:00Z", []string{"12-31 00:00 +1400", "12-30 09:00 +1400"}},
	} {
		t.Run(c.zone+"/"+c.name, func(t *testing.T) {
			got := local(t, c.line, c.zone, c.after, len(c.want))
			for i := range got {
				if got[i] != c.want[i] {
					t.Errorf("run %d: %s, want %s", i+1, got[i], c.want[i])
				}
			}
		})
	}
}

// TestIntervalKnowsNoZone counts elapsed time over a change of the clock.
func TestIntervalKnowsNoZone(t *testing.T) {
	s, err := Parse(&Spec{Name: "s", Type: "t", Input: []byte(`{}`), Every: "90m", From: time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for i := range 10 {
		next, ok := s.Next(at)
		if want := time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * 90 * time.Minute); !ok || !next.Equal(want) {
			t.Fatalf("run %d: %s, want %s", i, next, want)
		}
		at = next
	}
}
