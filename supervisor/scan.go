package supervisor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// scan walks once around the partitions, at most ScanMax rows far, and goes on
// in the next tick where it stopped. The rows lie in the order of partitions, so
// a partition with a great backlog is left after one message's worth and
// continued in the next round: it does not hide the others.
func (s *Supervisor) scan(ctx context.Context, now core.Instant, rep *Report) error {
	r := round{s: s, rep: rep, start: s.next, at: s.next, last: s.last()}
	defer func() { s.next = r.at }()
	since, before := s.begin(now), now.Add(-s.cfg.Slack)
	for !r.over() {
		if rep.Read >= s.cfg.ScanMax {
			rep.Full = true
			return nil
		}
		limit := min(s.cfg.ScanMax-rep.Read, s.cfg.MessageMax)
		rows, err := s.store.Overdue(ctx, since, before, s.from(r.at), limit)
		if err != nil {
			return fmt.Errorf("scan from partition %d: %w", r.at, err)
		}
		rep.Read += len(rows)
		r.take(rows, len(rows) >= limit)
	}
	if since == 0 {
		s.wholeAt = now
	}
	s.since = s.least(before).Add(-lookBack)
	return nil
}

// A database keeps for hours what was deleted from the beginning of an index, and a scan
// that begins there walks over it each time. So one begins where the last left nothing
// behind, and earlier by lookBack: a row may be stored so long after its bound was set, or
// by a clock that is so slow. Once in wholeAgain it begins at the beginning, for those that
// are later still.
const (
	lookBack   = time.Minute
	wholeAgain = time.Minute
)

// begin is where a walk begins in each partition; 0: at the beginning.
func (s *Supervisor) begin(now core.Instant) core.Instant {
	for _, p := range s.places {
		if !p.unread && p.resume == (core.Due{}) {
			p.first = 0
		}
	}
	if s.wholeAt.Elapsed(now, wholeAgain) {
		return 0
	}
	return s.since
}

// least is the first bound that was found and may still be there, at most that of before.
func (s *Supervisor) least(before core.Instant) core.Instant {
	for _, p := range s.places {
		if p.first != 0 {
			before = min(before, p.first)
		}
	}
	return before
}

func (s *Supervisor) last() int {
	last := 0
	for partition := range s.places {
		last = max(last, partition)
	}
	return last
}

// from is where the rows of a partition that were not asked about begin.
func (s *Supervisor) from(partition int) core.Due {
	if p := s.places[partition]; p != nil && p.resume != (core.Due{}) {
		return p.resume
	}
	return core.Due{Partition: partition}
}

// round is one walk around the partitions: from start to the last, then from 0
// to before start.
type round struct {
	s       *Supervisor
	rep     *Report
	start   int
	at      int // the partition the walk has come to
	last    int
	wrapped bool
}

// over moves on to the next partition that may be asked and reports whether the
// walk is done.
func (r *round) over() bool {
	for {
		if r.at > r.last && !r.wrapped {
			r.at, r.wrapped = 0, true
		}
		if r.wrapped && r.at >= r.start {
			return true
		}
		if p := r.s.places[r.at]; p == nil || !p.unread {
			return false
		}
		r.at++
	}
}

// take goes through rows that begin at the walk's place. more says that the
// table may hold rows behind them.
func (r *round) take(rows []core.Due, more bool) {
	for len(rows) > 0 {
		partition := rows[0].Partition
		own := slices.IndexFunc(rows, func(d core.Due) bool { return d.Partition != partition })
		if own < 0 {
			own = len(rows)
		}
		r.pass(partition)
		if r.wrapped && partition >= r.start {
			return // the walk began there
		}
		p := r.s.place(partition)
		if !p.unread {
			if begins := p.resume == (core.Due{}) || after(rows[0], p.resume); !begins {
				return // read it again from where it was left
			}
			r.collect(p, rows[:own], more && own == len(rows))
		}
		r.at = partition + 1
		rows = rows[own:]
	}
	if !more {
		r.pass(r.last + 1)
	}
}

// pass moves the walk on to a partition, but not beyond its end. Those that are
// passed had no rows behind their places and are read from their beginnings next
// time.
func (r *round) pass(to int) {
	if r.wrapped {
		to = min(to, r.start)
	}
	for ; r.at < to; r.at++ {
		if p := r.s.places[r.at]; p != nil && !p.unread {
			p.resume = core.Due{}
		}
	}
}

// collect keeps a partition's rows for its message. cut says that there may be
// more of them.
func (r *round) collect(p *place, rows []core.Due, cut bool) {
	if p.first == 0 {
		p.first = rows[0].Bound
	}
	room := r.s.cfg.MessageMax - len(p.found)
	if len(rows) > room {
		rows, cut = rows[:room], true
	}
	p.found = append(p.found, rows...)
	p.resume = core.Due{}
	if cut {
		p.resume = rows[len(rows)-1]
		r.rep.Full = true
	}
}

// after reports whether a lies behind b in the order of the scan.
func after(a, b core.Due) bool {
	if a.Bound != b.Bound {
		return a.Bound > b.Bound
	}
	return a.Number > b.Number
}
