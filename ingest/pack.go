package ingest

import (
	"errors"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// freeMax is how many empty packs keep their memory.
const freeMax = 128

// pack is a message that fills with submissions, and after its publishing the list of those who wait for its
// outcome.
type pack struct {
	partition int
	subs      []core.Submission
	// pending has the requests of subs, in the same order. subs are empty after publishing.
	pending []pending
	bytes   int
	// since is when its oldest submission came.
	since core.Instant
	// flight is the number of its publishing; 0: it is open, or answered.
	flight uint64
}

// pending is a request that waits for the outcome of its pack.
type pending struct {
	task string
	// room is how many bytes to give back to the budget.
	room   int64
	mark   mark
	answer func(Answer)

	// warning, again and state are for the answer.
	warning string
	again   bool
	state   core.State
}

// pack adds a submission to its partition's open pack, and publishes that when it is full.
func (d *Door) pack(now core.Instant, at *placement, req *Request, sub *core.Submission) {
	home := &d.homes[at.partition]
	s := home.stream
	p := s.shelves[home.shelf]
	if p != nil && p.bytes+at.size > d.cfg.packBytes() {
		d.publish(now, p)
		p = nil
	}
	if p == nil {
		p = d.fresh(at.partition, now)
		s.shelves[home.shelf] = p
		s.open++
	}
	p.subs = append(p.subs, *sub)
	p.pending = append(p.pending, pending{task: req.ID, room: req.bytes(), mark: at.mark, answer: req.Answer, warning: at.warning, again: at.again, state: at.state})
	p.bytes += at.size
	if len(p.subs) >= d.cfg.PackItems || p.bytes >= d.cfg.packBytes() {
		d.publish(now, p)
	}
}

// fresh is an empty pack, with memory of an earlier one where there is some.
func (d *Door) fresh(partition int, now core.Instant) *pack {
	var p *pack
	if last := len(d.free) - 1; last >= 0 {
		p, d.free = d.free[last], d.free[:last]
	} else {
		p = &pack{}
	}
	p.partition, p.since = partition, now
	return p
}

// recycle keeps the memory of an answered pack for another. A pack without an answer is left alone: the
// stream may still read it.
func (d *Door) recycle(p *pack) {
	clear(p.pending)
	*p = pack{subs: p.subs[:0], pending: p.pending[:0]}
	if len(d.free) < freeMax {
		d.free = append(d.free, p)
	}
}

// window is how long an open pack of a stream waits for more submissions now: the busier the stream, the
// longer. See Config.WindowMax.
func (d *Door) window(s *stream) time.Duration {
	busy := s.budget.items.Load() - int64(d.cfg.QuietItems)
	if busy <= 0 || d.closed {
		return 0
	}
	return d.cfg.WindowMax * time.Duration(min(busy, int64(d.cfg.BusyItems))) / time.Duration(d.cfg.BusyItems)
}

// publish hands a pack to the stream. The next submission of its partition opens another.
func (d *Door) publish(now core.Instant, p *pack) {
	home := &d.homes[p.partition]
	s := home.stream
	s.shelves[home.shelf] = nil
	s.open--
	s.flying++
	d.stats.packs.Add(1)
	d.stats.packed.Add(int64(len(p.subs)))
	flight := d.flights.add(p, now)
	d.log.Publish(p.partition, p.subs, func(seq uint64, err error) {
		d.events.put(event{pack: p, flight: flight, seq: seq, err: err})
	})
	clear(p.subs)
	p.subs = p.subs[:0]
}

// answer answers every request of a pack, with the position at which the stream stored it or with a refusal.
func (d *Door) answer(now core.Instant, p *pack, seq uint64, err error) {
	p.flight = 0
	s := d.homes[p.partition].stream
	s.flying--
	answer := Answer{Stream: s.name, Seq: seq, Partition: p.partition}
	if err != nil {
		answer = Answer{Err: d.logRefusal(p.partition, err)}
		d.stats.refused[answer.Err.ErrCode-CauseFirst].Add(int64(len(p.pending)))
		d.waits.lines[p.partition].letIn(-int64(len(p.pending)))
	} else {
		d.waits.lines[p.partition].put(seq, int64(len(p.pending)))
		d.stats.accepted.Add(int64(len(p.pending)))
		for i := range p.pending {
			if p.pending[i].warning != "" {
				d.stats.warned.Add(1)
			}
		}
		d.remember(now, p)
	}
	for i := range p.pending {
		a := &p.pending[i]
		s.budget.release(a.room)
		if a.answer != nil {
			answer.Task, answer.Warning, answer.Again, answer.State = a.task, a.warning, a.again, a.state
			a.answer(answer)
		}
	}
}

// remember notes the ids of a stored pack as recent.
func (d *Door) remember(now core.Instant, p *pack) {
	if d.ids == nil {
		return
	}
	for i := range p.pending {
		d.recent.add(p.pending[i].mark, now)
	}
}

// errNoOutcome is the outcome of a pack the stream said nothing about.
var errNoOutcome = errors.New("the stream did not answer in time")

// logRefusal makes a refusal of an error of the stream. It says "not stored" only where that is certain.
func (d *Door) logRefusal(partition int, err error) *Refusal {
	switch {
	case errors.Is(err, ErrLogFull):
		return Refuse(429, causeLogFull, "not stored: partition %d: %v", partition, err).After(retryBacklog)
	case errors.Is(err, ErrLogDown):
		return Refuse(503, CauseLogDown, "not stored: partition %d: %v", partition, err).After(RetryLog)
	}
	return Refuse(504, causeOutcome, "%s", say.Of("refuse.outcome-unknown", "partition", partition, "time", d.cfg.PublishMax, "error", err)).After(retryUnknown)
}

// flights is the queue of published packs, the oldest first, to find out which have waited too long.
type flights struct {
	list []flight
	// head is where the queue begins in list.
	head int
	// last is the number of the newest flight.
	last uint64
}

// flight is one publishing of a pack. It is over when the pack's flight has another number.
type flight struct {
	pack   *pack
	number uint64
	at     core.Instant
}

// add appends a pack and returns the number of its flight.
func (f *flights) add(p *pack, now core.Instant) uint64 {
	f.last++
	p.flight = f.last
	f.list = append(f.list, flight{pack: p, number: f.last, at: now})
	return f.last
}

// front is the oldest flight without an outcome; nil: there is none.
func (f *flights) front() *flight {
	for f.head < len(f.list) && f.list[f.head].pack.flight != f.list[f.head].number {
		f.drop()
	}
	if f.head == len(f.list) {
		f.list, f.head = f.list[:0], 0
		return nil
	}
	return &f.list[f.head]
}

// drop removes the front. When half of list is unused it moves the rest down.
func (f *flights) drop() {
	f.list[f.head] = flight{}
	f.head++
	if f.head > freeMax && f.head*2 > len(f.list) {
		n := copy(f.list, f.list[f.head:])
		clear(f.list[n:])
		f.list, f.head = f.list[:n], 0
	}
}

// due is when the oldest flight is given up; 0: there is none.
func (f *flights) due(cfg *Config) core.Instant {
	if front := f.front(); front != nil {
		return front.at.Add(cfg.PublishMax)
	}
	return 0
}

// expire answers the packs of which the stream has said nothing for PublishMax: their outcome is unknown. An
// outcome that comes later is dropped.
func (d *Door) expire(now core.Instant) {
	for front := d.flights.front(); front != nil && front.at.Add(d.cfg.PublishMax) <= now; front = d.flights.front() {
		p := front.pack
		d.flights.drop()
		d.answer(now, p, 0, errNoOutcome)
	}
}
