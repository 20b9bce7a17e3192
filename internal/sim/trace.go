package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// Violation is something that must not be.
type Violation struct {
	Seed      uint64
	At        time.Duration // since the world began
	Partition int           // -1: of no one partition
	Task      string        // empty: of no one task
	What      string
	History   string // of that task, or of that partition
}

// Error says all of it.
func (v *Violation) Error() string {
	return fmt.Sprintf("seed %d, at %v: %s\n%s", v.Seed, v.At, v.What, v.History)
}

// wrong notes what must not be; the first counts.
func (w *World) wrong(partition int, id, format string, args ...any) {
	if w.err == nil {
		w.err = &Violation{Seed: w.cfg.Seed, At: w.now.Sub(began), Partition: partition, Task: id, What: fmt.Sprintf(format, args...)}
		w.tell(id, partition, "VIOLATION: %s", w.err.What)
	}
}

// follow is what a second run of a seed that failed is listened to for.
type follow struct {
	partition int
	task      string
	lines     []string
	left      int // lines that are left out
}

// linesMost is how many lines of a history are kept: a partition may be taken over for ever. The last half is what leads to
// the violation.
const linesMost = 600

// add keeps a line.
func (f *follow) add(line string) {
	if len(f.lines) == linesMost {
		f.lines = slices.Delete(f.lines, linesMost/2, linesMost/2+linesMost/4)
		f.left += linesMost / 4
	}
	f.lines = append(f.lines, line)
}

// String is the history.
func (f *follow) String() string {
	if f.left == 0 {
		return strings.Join(f.lines, "")
	}
	first, last := f.lines[:linesMost/2], f.lines[linesMost/2:]
	return strings.Join(first, "") + fmt.Sprintf("           … %d lines are left out\n", f.left) + strings.Join(last, "")
}

// tell is a line of the history: of a task, of a partition (id is empty), or of
// everybody (and partition is -1).
func (w *World) tell(id string, partition int, format string, args ...any) {
	f := w.follow
	if f == nil {
		return
	}
	mine := id == f.task
	if id == "" {
		mine = partition == -1 || partition == f.partition || f.partition == -1
	}
	if mine {
		f.add(fmt.Sprintf("%9s  %s\n", w.stamp(w.now), fmt.Sprintf(format, args...)))
	}
}

// stamp is a time of the world for a person: seconds since it began.
func (w *World) stamp(at core.Instant) string { return fmt.Sprintf("%.4fs", at.Sub(began).Seconds()) }

// recordText is a journal row for a person.
func recordText(j *core.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s by %s", j.Kind, j.State, j.Actor)
	if j.Step >= 0 {
		fmt.Fprintf(&b, ", step %d is %s after try %d", j.Step+1, j.StepStatus, j.Attempt)
	}
	if j.Next >= 0 {
		fmt.Fprintf(&b, " → %s of step %d, try %d", what(j.Undo), j.Next+1, j.NextAttempt)
	}
	if j.Due != 0 {
		fmt.Fprintf(&b, ", due %.4fs", j.Due.Sub(began).Seconds())
	}
	if j.EffectsPossibleUntil != 0 {
		fmt.Fprintf(&b, ", quiet %.4fs", j.EffectsPossibleUntil.Sub(began).Seconds())
	}
	if j.Error+j.Reason != "" {
		fmt.Fprintf(&b, " (%s%s)", j.Error, j.Reason)
	}
	return b.String()
}
