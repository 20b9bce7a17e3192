package ingest

import (
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// TestAdmissionCountsFromTheStart: a task that begins later has the time from then to its deadline, and no more.
func TestAdmissionCountsFromTheStart(t *testing.T) {
	var got time.Duration
	d := &Door{cfg: Config{Admit: func(_ core.Instant, _ *core.Plan, left time.Duration) string { got = left; return "" }}}
	plan := &core.Plan{CompleteBy: time.Minute, Admission: core.AdmissionRefuse}
	for _, c := range []struct{ start, by, want time.Duration }{{0, 0, time.Minute}, {0, time.Hour, time.Hour}, {40 * time.Minute, time.Hour, 20 * time.Minute}, {time.Hour, 0, time.Minute}} {
		sub := core.Submission{}
		if c.start > 0 {
			sub.StartAt = epoch.Add(c.start)
		}
		if c.by > 0 {
			sub.CompleteBy = epoch.Add(c.by)
		}
		if d.tooLittleTime(epoch, &sub, plan); got != c.want {
			t.Errorf("start %v, deadline %v: %v left, want %v", c.start, c.by, got, c.want)
		}
	}
}
