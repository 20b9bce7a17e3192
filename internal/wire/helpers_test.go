package wire

import (
	"errors"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// at is an instant that every golden text uses: 2026-01-02T03:04:05.000678Z.
const at = core.Instant(1767323045000678)

// idIn returns the n-th id that belongs to a partition.
func idIn(partition, partitions, n int) string {
	for i := 0; ; i++ {
		id := "task-" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26))
		if PartitionOf(id, partitions) == partition {
			if n--; n < 0 {
				return id
			}
		}
	}
}

func isUndecodable(err error) bool { return errors.Is(err, ErrUndecodable) }

// submitHeaders are the headers of a submission.
func submitHeaders(completeBy, replyTo, trace, version, labels string) Header {
	return (&submit.Form{CompleteBy: completeBy, ReplyTo: replyTo, Trace: trace, Version: version, Labels: labels}).Header()
}
