package scheduler

import (
	"errors"

	"duly.dev/duly/internal/core"
)

// ErrRewound is wrapped by what Wires.Read returns, or hands to lost, when the task stream
// ends before the partition's cursor, or has another message there: it came back from a restored volume, for instance.
var ErrRewound = errors.New("task stream ends before the cursor")

// ErrControlRewound is the same of the control stream.
var ErrControlRewound = errors.New("control stream ends before the cursor")

// rewound says which streams of a partition ended before their cursors.
type rewound struct{ tasks, control bool }

// Rewound remembers that a stream of a partition went back, as an error of Wires.Read says: the next
// adoption reads it from its beginning. Other errors mean nothing here.
func (s *Shard) Rewound(partition int, err error) {
	was := s.rewound[partition]
	was.tasks = was.tasks || errors.Is(err, ErrRewound)
	was.control = was.control || errors.Is(err, ErrControlRewound)
	if was != (rewound{}) {
		s.rewound[partition] = was
	}
}

func (s *Shard) alertStream(kind string, st *core.PartitionState, cursor uint64, other bool) {
	why := "it ends before the cursor, or has another message there"
	if other {
		why = "it is not the one that this store was fed from"
	}
	s.log.Error("ALERT: the "+kind+" stream is read again from its beginning", "event", "stream-read-again", "stream", kind, "why", why,
		"partition", st.Partition, "was", st.Found.Stream, "is", st.Stream, "cursor", cursor)
}
