package wire

import (
	"strconv"
	"time"

	"duly.dev/duly/internal/core"
)

// TaskStreamsMax bounds the number of task streams.
const TaskStreamsMax = 16

// HeaderStored is when a stream first took a message that was moved from it to another
// one: RFC 3339.
const HeaderStored = "Duly-Stored"

// storedAgeMax is how long before its own time a message may say that it was stored: a
// stream keeps nothing longer.
const storedAgeMax = 366 * 24 * time.Hour

// TaskStreamOf is which of so many task streams, from 0, has a partition.
func TaskStreamOf(partition, streams int) int { return partition % max(1, streams) }

// StreamTasksAt is the task stream with a number: 0 is StreamTasks.
func (n Names) StreamTasksAt(number int) string { return streamAt(n.StreamTasks(), number) }

// StreamControlAt is the control stream beside StreamTasksAt.
func (n Names) StreamControlAt(number int) string { return streamAt(n.StreamControl(), number) }

// StreamIn takes what comes to the stream endpoint where there are several task streams,
// until it is in that of its partition.
func (n Names) StreamIn() string { return n.get().upper + "IN" }

func streamAt(name string, number int) string {
	if number == 0 {
		return name
	}
	return name + "_" + strconv.Itoa(number)
}

// TasksSubjects are those of a partition in one of several task streams: packs, and single
// submissions.
func (n Names) TasksSubjects(partition int) []string {
	return []string{n.PackSubject(partition), numbered(n.get().tasks, partition, ".*.*")}
}

// PatternSingles selects the single submissions of all partitions.
func (n Names) PatternSingles() string { return n.get().tasks + "*.*.*" }

// MovedTasks is where submissions of a partition come from another stream while the number
// of task streams changes.
func (n Names) MovedTasks(partition int) string {
	return numbered(n.get().root+"moved.tasks.", partition, ".>")
}

// MovedControl is the same of control messages.
func (n Names) MovedControl(partition int) string {
	return numbered(n.get().root+"moved.control.", partition, "")
}

// Moved is where a message with a subject of a task or a control stream is published to get
// into another one under that subject.
func (n Names) Moved(subject string) string {
	return n.get().root + "moved." + subject[len(n.get().root):]
}

// MovedTransform is a stream's subject transform that undoes Moved.
func (n Names) MovedTransform() (source, destination string) {
	return n.get().root + "moved.>", n.get().root + ">"
}

// RetiredSubject is the subject of a stream that takes nothing any more: it must have one.
func (n Names) RetiredSubject(stream string) string { return n.get().root + "retired." + stream }

// StoredAt is when a message of a task stream was first stored: at, when its stream took
// it, or before, when another one did.
func StoredAt(header Header, at core.Instant) core.Instant {
	text := header.Get(HeaderStored)
	if text == "" {
		return at
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at
	}
	if first := core.InstantOf(t); first < at && at.Sub(first) < storedAgeMax {
		return first
	}
	return at
}
