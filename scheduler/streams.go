package scheduler

import (
	"errors"
	"log/slog"
	"time"

	"duly.dev/duly/internal/core"
)

// ErrRewound is wrapped by what Wires.Read returns, or hands to lost, when the task stream
// ends before the partition's cursor, or has another message there: it came back from a restored volume, for instance.
var ErrRewound = errors.New("task stream ends before the cursor")

// ErrControlRewound is the same of the control stream.
var ErrControlRewound = errors.New("control stream ends before the cursor")

// rewound says which streams of a partition ended before their cursors.
type rewound struct{ tasks, control bool }

// evidenceBook is what a shard knows of partitions besides the database: what has been committed, and what went back.
type evidenceBook struct {
	cfg   *Config
	store Store
	bus   Bus
	log   *slog.Logger
	// lost is of partitions that were let go: a later takeover compares it with what it finds.
	lost      map[int]core.Evidence
	doubted   map[int]bool    // partitions whose last takeover found less than a former owner knew
	rewound   map[int]rewound // partitions whose streams ended before their cursors
	nextRound waker           // a round is to record what has been committed
}

// evidenceEvery is how often, at most, what is committed is recorded outside the database.
const evidenceEvery = time.Second

// record records what has been committed: at most about once a second, and soon after the last commit of many.
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

// remember keeps, here and outside the database, what is known of a partition that is let go: the next owner may find less.
func (b *evidenceBook) remember(p *partition, now core.Instant) {
	e := p.evidence(now)
	b.lost[p.id] = e
	e.Former = true
	b.bus.Record([]core.Evidence{e})
}

// doubt takes what a former owner knew of a partition, and reports whether the takeover of this shard found less: then the
// partition has to be taken over again.
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

// wentBack remembers that a stream of a partition went back, as an error of Wires.Read says: the next adoption reads it
// from its beginning. Other errors mean nothing here.
func (b *evidenceBook) wentBack(partition int, err error) {
	was := b.rewound[partition]
	was.tasks = was.tasks || errors.Is(err, ErrRewound)
	was.control = was.control || errors.Is(err, ErrControlRewound)
	if was != (rewound{}) {
		b.rewound[partition] = was
	}
}

func (b *evidenceBook) alertStream(kind string, st *core.PartitionState, cursor uint64, other bool) {
	why := "it ends before the cursor, or has another message there"
	if other {
		why = "it is not the one that this store was fed from"
	}
	b.log.Error("ALERT: the "+kind+" stream is read again from its beginning", "event", "stream-read-again", "stream", kind, "why", why,
		"partition", st.Partition, "was", st.Found.Stream, "is", st.Stream, "cursor", cursor)
}
