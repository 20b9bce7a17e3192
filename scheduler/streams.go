package scheduler

import (
	"errors"
	"log/slog"
	"time"

	"duly.dev/duly/internal/core"
)

// ErrRewound is wrapped by the error of Wires.Read, or by what it hands to lost, when the task stream ends before the
// partition's cursor or has another message there. The stream came back from a restored volume, for instance.
var ErrRewound = errors.New("task stream ends before the cursor")

// ErrControlRewound is ErrRewound for the control stream.
var ErrControlRewound = errors.New("control stream ends before the cursor")

// rewound says which streams of a partition ended before their cursors.
type rewound struct{ tasks, control bool }

// evidenceBook is what a shard knows about partitions from outside the database. A database that is restored
// from a backup does not know what it has lost; evidence of later commits, or of a stream that went back,
// shows it.
type evidenceBook struct {
	cfg   *Config
	store Store
	bus   Bus
	log   *slog.Logger
	// lost is the evidence of partitions that this shard let go. A later takeover compares it with the row
	// that it finds.
	lost map[int]core.Evidence
	// doubted are partitions whose last takeover found less than a former owner knew.
	doubted map[int]bool
	// rewound are partitions with a stream that ended before its cursor.
	rewound map[int]rewound
	// nextRound is when a round is wanted to record what has been committed.
	nextRound waker
}

// evidenceEvery is the least time between two records of what is committed.
const evidenceEvery = time.Second

// record publishes the newest commits of the partitions, at most every evidenceEvery.
func (b *evidenceBook) record(now core.Instant, in []*partition) {
	if !b.nextRound.due(now) {
		return
	}
	var all []core.Evidence
	for _, p := range in {
		if p.recorded != p.last {
			p.recorded = p.last
			all = append(all, p.evidence(now))
		}
	}
	if len(all) > 0 {
		b.bus.Record(all)
	}
}

// remember keeps what is known of a partition that is let go, here and outside the database: the next owner
// may find less.
func (b *evidenceBook) remember(p *partition, now core.Instant) {
	e := p.evidence(now)
	b.lost[p.id] = e
	e.Former = true
	b.bus.Record([]core.Evidence{e})
}

// doubt compares what a former owner knew of a partition with what this shard's takeover found. It reports
// whether the takeover found less: then the partition has to be taken over again.
func (b *evidenceBook) doubt(p *partition, e core.Evidence) bool {
	if p == nil || !e.Former || e.Epoch >= p.epoch {
		return false
	}
	found := &p.takeover.Found
	lost := e.Rewound > found.Epoch && p.takeover.WentBackUntil != core.ReadNoMore
	if !lost && (found.WentBack || !core.WentBack(found.Epoch, found.Commit, e)) {
		return false
	}
	if lost {
		b.wentBack(p.id, ErrRewound)
	}
	b.doubted[p.id] = true
	return true
}

// wentBack remembers that a stream of a partition went back, if the error of Wires.Read says so: the next
// takeover reads it from its beginning. Other errors are ignored.
func (b *evidenceBook) wentBack(partition int, err error) {
	was := b.rewound[partition]
	was.tasks = was.tasks || errors.Is(err, ErrRewound)
	was.control = was.control || errors.Is(err, ErrControlRewound)
	if was != (rewound{}) {
		b.rewound[partition] = was
	}
}

// alertStream logs that a stream is read again from its beginning. other: the store was fed from another
// stream.
func (b *evidenceBook) alertStream(kind string, st *core.PartitionState, cursor uint64, other bool) {
	why := "it ends before the cursor, or has another message there"
	if other {
		why = "it is not the one that this store was fed from"
	}
	b.log.Error("ALERT: the "+kind+" stream is read again from its beginning", "event", "stream-read-again", "stream", kind, "why", why,
		"partition", st.Partition, "was", st.Found.Stream, "is", st.Stream, "cursor", cursor)
}
