package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// OverloadReport is what became of a load.
type OverloadReport struct {
	Config   OverloadConfig
	Capacity float64 // tasks a second, of a queue that is always full

	// Of the window that is judged: the last whole minute of a steady load, otherwise all that came later than Bound after what
	// happened. Shares are of Capacity; what was lost is a share of what was accepted and has ended in it.
	InTime  float64 // processed by their deadlines
	Lost    float64 // accepted, and then undone or never begun
	Expired float64 // of these, those of which no step began
	Refused float64 // of what was offered; those to whom nobody answered in time count, too
	Silent  float64 // of these, those to whom nobody answered
	P50     time.Duration
	Cost    float64 // processor time of a lost task, in T: what is left of that of the window beside the others'; 0: few were, or it is a steady load

	// Of what the other tenants offered in the window, or since the spike or the stop began.
	OthersInTime float64
	OthersP50    time.Duration

	// Of a spike, a stop and agents that fail.
	During    float64       // tasks processed in time from its beginning until a minute after it, of Capacity
	Bound     time.Duration // by when after it base load is to be in time
	Recovered time.Duration // from when after it 99 % of the base load was in time until the end; below 0: never
	After     float64       // share of the base load offered later than Bound that was processed in time
	Lines     []OverloadLine

	Events int
	Took   time.Duration // that the world lasted
}

// OverloadLine is a part of a run, of ten seconds.
type OverloadLine struct {
	From                             time.Duration
	Offered, Refused, Accepted, Made int   // of what was offered then; Made: in time
	Ended, InTime, Expired, Undone   int   // of what ended then
	Unread, InFlight                 int64 // at its end: tasks in the stream; of the nodes
	Load, Speed, Used                float64
}

const overloadLine = 10 * time.Second

// judge keeps what became of each task.
type judge struct {
	l       *overload
	all     map[string]*offer
	order   []*offer
	unended int // that the stream has stored and that have not ended
	lines   []OverloadLine
	used    float64 // of the machine, when the last line ended
	window  [2]core.Instant
	usedAt  [2]float64 // of the machine, when the window begins and ends
}

func newJudge(l *overload) judge {
	from := max(l.over.Add(-time.Minute), l.over.Add(-l.over.Sub(began)/2))
	j := judge{l: l, all: map[string]*offer{}, window: [2]core.Instant{from, l.over}}
	for i, at := range j.window {
		l.w.after(at.Sub(began), func() {
			l.machine.advance()
			l.judge.usedAt[i] = l.machine.used
		})
	}
	for at := overloadLine; at <= l.over.Sub(began); at += overloadLine {
		l.w.after(at, l.judgeLine)
	}
	return j
}

// judgeLine ends a line of the timeline.
func (l *overload) judgeLine() {
	j := &l.judge
	line := j.line(l.w.now.Add(-overloadLine))
	l.machine.advance()
	line.Used = (l.machine.used - j.used) / float64(overloadLine) / overloadCores
	j.used = l.machine.used
	line.Speed = 0
	for at := l.w.now.Add(-overloadLine); at < l.w.now; at = at.Add(weatherPiece) {
		line.Speed += l.machine.weather.speed(at.Sub(began)) * float64(weatherPiece) / float64(overloadLine)
	}
	for p := range l.w.cfg.Partitions {
		_, tasks := l.unread(p)
		line.Unread += int64(tasks)
	}
	for _, n := range l.w.nodes {
		for p := range l.w.cfg.Partitions {
			if n.feeds[p] != nil {
				line.InFlight += int64(n.shardOf(p).Load(p))
			}
		}
	}
}

// line is the part of the timeline that a time is in.
func (j *judge) line(at core.Instant) *OverloadLine {
	i := int(at.Sub(began) / overloadLine)
	for len(j.lines) <= i {
		j.lines = append(j.lines, OverloadLine{From: time.Duration(len(j.lines)) * overloadLine})
	}
	return &j.lines[i]
}

// offered takes a task that a client would have done.
func (j *judge) offered(o *offer) {
	j.all[o.id], j.order = o, append(j.order, o)
}

// stored takes a submission that the stream has.
func (j *judge) stored(o *offer) {
	if !o.stored {
		o.stored = true
		j.unended++
		j.l.w.ids = append(j.l.w.ids, o.id)
	}
}

// left takes a submission of which its client will hear no more.
func (j *judge) left(*offer) {
	if j.l.cfg.Scenario == overloadFull && j.l.w.now < j.l.over {
		j.l.submit()
	}
}

// recorded sees each journal row at its commit.
func (l *overload) recorded(r *row, rec *core.Record) {
	if o := l.judge.all[r.task.ID]; o != nil {
		o.begun = o.begun || rec.Next >= 0
		if endsBy(rec) && o.ended == 0 {
			l.judge.ended(o, rec.State, o.begun)
		}
	}
}

// ended takes the end of a task.
func (j *judge) ended(o *offer, state core.State, begun bool) {
	if o.ended != 0 {
		return
	}
	o.ended, o.state, o.begun = j.l.w.now, state, begun
	j.unended--
	if j.l.cfg.Scenario == overloadFull && j.l.w.now < j.l.over {
		j.l.submit()
	}
}

// made reports whether a task was processed in time, and its client had heard that it would be.
func (o *offer) made() bool {
	return o.accepted && o.state == core.StateProcessed && o.ended <= o.due()
}

// lost reports whether a task was accepted and then not processed in time.
func (o *offer) lost() bool { return o.accepted && o.ended != 0 && !o.made() }

// event is when what happens to the base load is over; 0: nothing does.
func (l *overload) event() core.Instant {
	if len(l.phases) < 3 || l.over <= began.Add(l.phases[1].until) {
		return 0
	}
	return began.Add(l.phases[1].until)
}

// bound is by when after it the base load has to be in time again: at once after a spike, because what cannot be done in time was
// to be refused; after a stop as soon as what waits is done.
func (l *overload) bound() time.Duration {
	const spare = 5 * time.Second
	if l.cfg.Scenario == OverloadSpike || l.cfg.Load >= 1 {
		return 2 * spare
	}
	waits := min(overloadStillFor, time.Duration(float64(l.cfg.Deadline)/l.cfg.Load)).Seconds() * l.cfg.Load
	return time.Duration(waits/(1-l.cfg.Load)*float64(time.Second)) + spare
}

// report sums up.
func (j *judge) report() OverloadReport {
	l := j.l
	rep := OverloadReport{Config: *l.cfg, Capacity: l.cfg.Capacity, Events: l.w.steps, Took: l.w.now.Sub(began)}
	minute := j.window[1].Sub(j.window[0]).Seconds()
	made, lost, expired, offered, refused, silent := 0, 0, 0, 0, 0, 0
	var took []time.Duration
	for _, o := range j.order {
		if o.at >= j.window[0] && o.at < j.window[1] {
			offered++
			if !o.accepted {
				refused++
			}
			if !o.accepted && !o.refused {
				silent++
			}
		}
		if o.ended < j.window[0] || o.ended >= j.window[1] {
			continue
		}
		switch {
		case o.made():
			made++
			took = append(took, o.ended.Sub(o.at))
		case o.lost():
			lost++
			if !o.begun {
				expired++
			}
		}
	}
	if l.cfg.Scenario == overloadFull {
		rep.Capacity = float64(made) / minute
	}
	rep.InTime = float64(made) / minute / rep.Capacity
	rep.Lost, rep.Expired = share(lost, made+lost), share(expired, made+lost)
	rep.Refused, rep.Silent = share(refused, offered), share(silent, offered)
	slices.Sort(took)
	if len(took) > 0 {
		rep.P50 = took[len(took)/2]
	}
	if l.event() != 0 && lost > made/4 {
		used := j.usedAt[1] - j.usedAt[0]
		perTask := overloadCores * float64(time.Second) / rep.Capacity
		turnedAway := float64(refused-silent) * float64(l.cost.wire+l.cost.take+l.cost.answer)
		rep.Cost = (used - float64(made)*perTask - turnedAway) / float64(lost) / perTask
	}
	rep.Lines = j.timeline()
	if l.event() != 0 {
		j.recovery(&rep)
	}
	rep.OthersInTime, rep.OthersP50 = j.others()
	return rep
}

// others are what the other tenants had: which share of what they offered was processed in time, and how long half of it took.
func (j *judge) others() (inTime float64, p50 time.Duration) {
	offered, from := 0, j.window[0]
	if j.l.event() != 0 {
		from = began.Add(j.l.phases[1].from)
	}
	var took []time.Duration
	for _, o := range j.order {
		if o.tenant == 0 || o.at < from {
			continue
		}
		if offered++; o.made() {
			took = append(took, o.ended.Sub(o.at))
		}
	}
	slices.Sort(took)
	if len(took) > 0 {
		p50 = took[len(took)/2]
	}
	return share(len(took), offered), p50
}

func share(of, all int) float64 {
	if all == 0 {
		return 0
	}
	return float64(of) / float64(all)
}

// timeline is what happened in each ten seconds while load was offered.
func (j *judge) timeline() []OverloadLine {
	for i := range j.lines {
		is := &j.lines[i]
		*is = OverloadLine{From: is.From, Unread: is.Unread, InFlight: is.InFlight, Speed: is.Speed, Used: is.Used}
	}
	for _, o := range j.order {
		line := j.line(o.at)
		line.Offered++
		switch {
		case o.accepted:
			line.Accepted++
		default:
			line.Refused++
		}
		if o.made() {
			line.Made++
		}
		if o.ended == 0 {
			continue
		}
		line = j.line(o.ended)
		line.Ended++
		switch {
		case o.made():
			line.InTime++
		case !o.begun:
			line.Expired++
		default:
			line.Undone++
		}
	}
	lines := j.lines[:min(len(j.lines), int(j.l.over.Sub(began)/overloadLine))]
	for i := range lines {
		lines[i].Load = float64(lines[i].Offered) / overloadLine.Seconds() / j.l.cfg.Capacity
	}
	return lines
}

const overloadBack = 0.99 // of the base load is in time when all is well again

// back reports whether all was well in ten seconds: where more was offered than can be done, that the machine did nearly what
// it can.
func (l *overload) back(line *OverloadLine) bool {
	if l.cfg.Load < 1 {
		return share(line.Made, line.Offered) >= overloadBack
	}
	return float64(line.InTime) >= 0.9*line.Speed*l.cfg.Capacity*overloadLine.Seconds()
}

// recovery says when after what happened the base load was in time again.
func (j *judge) recovery(rep *OverloadReport) {
	l, over := j.l, j.l.event()
	rep.Bound = l.bound()
	made, offered, during := 0, 0, 0
	for _, o := range j.order {
		if o.made() && o.ended >= began.Add(l.phases[1].from) && o.ended < over.Add(time.Minute) {
			during++
		}
		if o.at >= over.Add(rep.Bound) {
			offered++
			if o.made() {
				made++
			}
		}
	}
	rep.After = share(made, offered)
	rep.During = float64(during) / over.Add(time.Minute).Sub(began.Add(l.phases[1].from)).Seconds() / l.cfg.Capacity
	rep.Recovered = -1
	for _, line := range slices.Backward(rep.Lines) {
		at := line.From - over.Sub(began)
		if at < 0 || !l.back(&line) {
			break
		}
		rep.Recovered = at
	}
}

// goals are what a load is held to besides the books.
func (j *judge) goals() {
	rep, l := j.report(), j.l
	var missed []string
	want := func(ok bool, format string, args ...any) {
		if !ok {
			missed = append(missed, fmt.Sprintf(format, args...))
		}
	}
	if l.cfg.Others > 0 {
		want(rep.OthersInTime >= 0.99, "%.1f %% of what the other tenants offered was processed in time, want 99 %%", 100*rep.OthersInTime)
		want(rep.OthersP50 <= 4*time.Second, "half of that took %s or longer, want 4s at most", rep.OthersP50)
	}
	if l.event() != 0 && l.cfg.Load < 1 {
		want(rep.After >= overloadBack, "%.1f %% of the base load that came later than %s after the %s was processed in time, want %.0f %%", 100*rep.After, rep.Bound, l.cfg.Scenario, 100*overloadBack)
	} else if l.event() == 0 {
		want(rep.InTime >= l.least(), "%.1f %% of capacity was processed in time at a load of %.1f, want %.1f %%", 100*rep.InTime, l.cfg.Load+l.others(), 100*l.least())
		if l.cfg.Deadline == 15*time.Second && l.cfg.Load > 1 {
			want(rep.P50 <= 4*time.Second, "half of what was processed took %s or longer, want 4s at most", rep.P50)
		}
	}
	if !l.cfg.Stream {
		most := 0.01
		if l.cfg.Load >= 20 && l.cfg.Deadline <= 5*time.Second {
			most = 0.03
		}
		want(rep.Lost <= most, "%.1f %% of what was accepted was lost, want %.0f %% at most", 100*rep.Lost, 100*most)
	}
	if l.cfg.QueueFor > 0 && l.cfg.Scenario == OverloadSpike {
		refused, lost, why := 0, 0, ""
		for _, o := range j.order {
			if !o.accepted {
				refused++
				why = cmp.Or(why, o.why, "nobody answered")
			}
			if o.lost() {
				lost++
			}
		}
		want(refused+lost == 0, "of %d submissions %d were refused and %d not processed in time, want none: their time counts from their turn; the first was refused because: %s", len(j.order), refused, lost, why)
	}
	if len(missed) > 0 {
		l.w.wrong(-1, "", "%s; deadline %s: %s", l.cfg.Scenario, l.cfg.Deadline, strings.Join(missed, "; "))
	}
}

// least is the share of capacity that is to be processed in time at a load.
func (l *overload) least() float64 {
	f := l.cfg.Load + l.others()
	if f <= 1 {
		return 0.97 * f
	}
	if l.cfg.Stream { // each takes what taking it off the stream does, and ending it
		const ended = 0.05
		taken := float64(l.cost.stored+l.cost.pack+l.cost.read) / float64(l.cost.whole)
		return 0.95 * max(0, 1-f*(taken+ended)) / (1 - ended)
	}
	switch {
	case f <= 2:
		return 0.95
	case f <= 5 || l.cfg.Clients == ClientsObey && f <= 20:
		return 0.9
	case f <= 20:
		return 0.55
	}
	return 0
}
