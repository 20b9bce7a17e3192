package ingest

import (
	"errors"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// Door takes submissions. One goroutine calls Submit, Take, Flush, Due and Close and passes the time. Ports
// may answer from any goroutine; the door acts on their answers at the next Flush.
type Door struct {
	cfg     Config
	plans   Plans
	log     Log
	waits   waits
	shares  *shares
	streams []*stream
	// homes is by partition.
	homes []home
	stats counters
	// full refuses a request for which there is no room.
	full *Refusal
	// events are the answers of the ports that are still to be acted on.
	events queue[event]
	// spare is memory for the next events.
	spare []event

	flights flights
	free    []*pack
	unknown unknown
	// ids looks up tasks; nil: only owners find out that an id is taken.
	ids     Taken
	recent  *recent
	lookups lookups
	// sub is the submission in hand. A local variable would be allocated, because SizeOf takes its address.
	sub    core.Submission
	closed bool
}

// event is the answer of a port. Which port is told by the field that is set: lookup, node, pack, or none of
// them for a reading of the plans.
type event struct {
	// pack was stored, or not. flight tells whether that is the answer to its present publishing.
	pack   *pack
	flight uint64
	seq    uint64
	err    error
	// lookup has an answer: the task, or none.
	lookup *lookup
	task   *core.Existing

	// node is a scheduler that reports how far it has read.
	node     string
	readings []core.Reading
}

// NewDoor makes a door. Error: a configuration that cannot work.
func NewDoor(cfg Config, plans Plans, log Log) (*Door, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if plans == nil || log == nil {
		return nil, errors.New("ingest: plans and log are required")
	}
	d := &Door{cfg: cfg, plans: plans, log: log, waits: newWaits(cfg.Partitions), shares: newShares(cfg.TenantLabel, cfg.Weights)}
	d.full = Refuse(429, CauseFull, "%s", say.Of("refuse.door-full", "requests", cfg.ItemsMax, "bytes", cfg.BytesMax)).After(RetryFull)
	var err error
	if d.streams, d.homes, err = streamsOf(&cfg); err != nil {
		return nil, err
	}
	if d.ids = cfg.Taken; d.ids != nil {
		d.recent = newRecent(cfg.RecentBytes)
	}
	return d, nil
}

// Submit takes a request. A refusal may come before it returns; any other answer comes in a later Flush.
func (d *Door) Submit(now core.Instant, req Request) {
	if d.Admit(now, &req) {
		d.Take(now, &req)
	}
}

// Admit reserves room for a request, or refuses it: because it would begin too late, or because the door is
// full. It is safe for concurrent use.
func (d *Door) Admit(now core.Instant, req *Request) bool {
	d.stats.came.Add(1)
	req.line = d.lineOf(req.ID)
	fl := d.shares.of(&req.Form)
	fl.count(&req.Form)
	if r := d.late(now, req.line, &req.Form, fl, false); r != nil {
		d.tell(req, r)
		return false
	}
	req.stream = d.streamFor(req.ID)
	if req.stream.budget.reserve(req.bytes(), req.Labels) {
		req.line.letIn(1)
		return true
	}
	d.tell(req, req.stream.full[classIn(req.Labels)])
	return false
}

// Take handles a request that Admit let in.
func (d *Door) Take(now core.Instant, req *Request) {
	if d.closed {
		d.refuse(req, stopping())
		return
	}
	sub := &d.sub
	if r := d.check(now, req, sub); r != nil {
		d.refuse(req, r)
		return
	}
	plan := d.planOf(req.Type, sub.PlanVersion)
	if plan == nil {
		d.wait(req, sub)
		return
	}
	d.accept(now, req, sub, plan)
}

// planOf is the plan for a submission: a version, or with 0 the newest. nil: this door knows none that takes
// submissions.
func (d *Door) planOf(taskType string, version int64) *core.Plan {
	if d.plans.Deprecated(taskType, version) {
		return nil
	}
	return d.plans.Plan(taskType, version)
}

// accept checks a request against its plan and packs it, unless it has to be refused or to wait for a lookup
// of its id.
func (d *Door) accept(now core.Instant, req *Request, sub *core.Submission, plan *core.Plan) {
	newest := sub.PlanVersion == 0
	sub.PlanVersion = plan.Version
	bad := d.misfit(req, plan)
	at := d.place(sub)
	switch {
	case bad == nil && !d.fitsMessage(&at):
		d.refuse(req, Refuse(413, CauseInputSize, "%s", say.Of("refuse.message-size", "type", core.QuoteShort(req.Type), "bytes", len(req.Input), "message", at.size+packHeadBytes, "limit", d.cfg.PayloadMax)))
		return
	case bad != nil && newest:
		d.refuseUnlessTask(now, req, sub, &at, bad)
		return
	case bad != nil:
		d.refuse(req, bad) // so it was when the id was first asked for
		return
	}
	if why := d.tooLittleTime(now, sub, plan); why != "" {
		if plan.Admission == core.AdmissionRefuse {
			d.refuseUnlessTask(now, req, sub, &at, Refuse(422, causeNoTime, "%s", why))
			return
		}
		at.warning = why
	}
	if d.ids != nil {
		if d.startLookup(now, req, sub, at) {
			return
		}
	}
	d.pack(now, &at, req, sub)
}

// misfit refuses an input that the plan does not take.
func (d *Door) misfit(req *Request, plan *core.Plan) *Refusal {
	if r := checkSize(req, plan.InputMax); r != nil {
		return r
	}
	if err := plan.FitsInput(req.Input, d.cfg.CheckInput); err != nil {
		return Refuse(422, CauseInputSchema, "%v", err)
	}
	return nil
}

// place is where a submission is to be packed.
func (d *Door) place(sub *core.Submission) placement {
	at := placement{partition: d.cfg.PartitionOf(sub.ID, d.cfg.Partitions), size: d.cfg.SizeOf(sub)}
	if d.ids != nil {
		at.mark = d.recent.markOf(sub)
		at.again = d.recent.same(at.mark)
	}
	return at
}

func (d *Door) fitsMessage(at *placement) bool { return at.size+packHeadBytes <= d.cfg.PayloadMax }

// refuse answers a request that Admit let in, and gives its room back.
func (d *Door) refuse(req *Request, r *Refusal) {
	req.stream.budget.release(req.bytes())
	req.line.letIn(-1)
	d.tell(req, r)
}

// tell counts and sends a refusal.
func (d *Door) tell(req *Request, r *Refusal) {
	d.stats.refused[r.ErrCode-CauseFirst].Add(1)
	if req.Answer != nil {
		req.Answer(Answer{Task: req.ID, Err: r})
	}
}

// stopping refuses what comes while the door closes.
func stopping() *Refusal {
	return Refuse(503, CauseStopping, "%s", say.Of("refuse.door-closing")).After(retryUnknown)
}

// Flush does what is due at a time: it acts on answers of the ports, gives up packs that the stream has left
// unanswered for too long, and publishes those whose window is over.
func (d *Door) Flush(now core.Instant) {
	d.takeOutcomes(now)
	d.expire(now)
	d.unknown.expire(d, now)
	d.unknown.reload(d, now)
	d.lookups.expire(d, now)
	for _, s := range d.streams {
		d.send(now, s)
	}
}

// send publishes the packs of a stream that are due, the oldest first.
func (d *Door) send(now core.Instant, s *stream) {
	if s.open == 0 || s.flying >= d.cfg.FlightsMax || s.oldest().since.Add(d.window(s)) > now {
		return
	}
	// All of them at once if the stream has nothing to do: a thread that wakes up
	// for one, from the server to the client, takes the others along. Under overload the
	// oldest go as others come back, so that each waits for one round of the stream's
	// syncs, and not for one to leave and one to return.
	for quiet := s.flying == 0; s.open > 0 && (quiet || s.flying < d.cfg.FlightsMax); {
		d.publish(now, s.oldest())
	}
}

// takeOutcomes acts on what the ports have answered since the last Flush.
func (d *Door) takeOutcomes(now core.Instant) {
	d.spare = d.events.take(d.spare)
	for i := range d.spare {
		e := &d.spare[i]
		if e.lookup != nil {
			d.finishLookup(now, e.lookup, e.task, e.err)
			continue
		}
		if e.node != "" {
			if overtaken(d.spare[i+1:], e.node) {
				continue
			}
			d.waits.report(now, e.node, e.readings)
			if d.shares.due(now) {
				d.shares.reckon(now, d.waits.rate())
			}
			continue
		}
		if e.pack == nil {
			d.unknown.read(d, now, e)
			continue
		}
		if e.pack.flight != e.flight {
			d.stats.lateDone.Add(1) // its requests were answered as unknown
			continue
		}
		d.answer(now, e.pack, e.seq, e.err)
		d.recycle(e.pack)
	}
	clear(d.spare)
}

// overtaken reports whether a later report of a scheduler has come. It says all that the earlier one did, and what began in the
// time of both: of reports that come at once, how far they are apart is not known.
func overtaken(later []event, node string) bool {
	for i := range later {
		if later[i].node == node {
			return true
		}
	}
	return false
}

// Due is when Flush must be called next; 0: not before a request or an answer comes. It may be in the past.
func (d *Door) Due(now core.Instant) core.Instant {
	if !d.events.empty() {
		return now
	}
	next := earlier(earlier(d.flights.due(&d.cfg), d.unknown.due(&d.cfg)), d.lookups.due())
	for _, s := range d.streams {
		if s.open > 0 && s.flying < d.cfg.FlightsMax {
			next = earlier(next, s.oldest().since.Add(d.window(s)))
		}
	}
	return next
}

// earlier is the earlier of two times, where 0 is no time.
func earlier(a, b core.Instant) core.Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Close lets no more requests in and publishes every open pack. It refuses requests that wait for the plans, and
// goes on with those that wait for a lookup as if the store had not answered. Go on calling Flush until Idle.
func (d *Door) Close(now core.Instant) {
	d.closed = true
	d.unknown.close(d)
	d.lookups.close(d, now)
	for _, s := range d.streams {
		for _, p := range s.shelves {
			if p != nil {
				d.publish(now, p)
			}
		}
	}
}

// Idle reports whether every request that came has been answered. It is safe
// for concurrent use.
func (d *Door) Idle() bool { return d.items() == 0 }
