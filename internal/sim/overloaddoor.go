package sim

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

const (
	readingOld   = 50 * time.Millisecond // how old what a node says of its partitions is when it comes
	inboxMost    = 1 << 14               // requests that wait for the door in its connection, as internal/natsbus has it
	patienceMost = 5 * time.Second       // of a client, as the Go client has it

	overloadTenant = "tenant" // key of the label that names one
)

// loadDoor is the process with the role ingest of one node: what takes requests off the wire, and the door's own loop.
type loadDoor struct {
	l          *overload
	n          *node
	wire, loop *thread
	door       *ingest.Door
	asks       int64 // that the door or its loop has, and not answered
	alarm      int
}

func (l *overload) openDoors() {
	for _, n := range l.w.nodes {
		d := &loadDoor{l: l, n: n, wire: &thread{m: l.machine, class: doorJobs}, loop: &thread{m: l.machine, class: doorJobs}}
		cfg := ingest.Config{
			StreamOf: func(int) string { return "tasks" }, Partitions: l.w.cfg.Partitions,
			PartitionOf: func(id string, _ int) int { return l.w.partitionOf(id) },
			PackItems:   scaled(ingest.DefaultPackItems), ItemsMax: scaled(ingest.DefaultItemsMax), Needs: l.needs,
		}
		if !l.cfg.Blind {
			cfg.TenantLabel = overloadTenant
		}
		door, err := ingest.NewDoor(cfg, planBook{l.w}, loadLog{l})
		if err != nil {
			panic(err) // the world is built wrong
		}
		d.door = door
		l.doors = append(l.doors, d)
	}
}

// request takes a request off the wire, as natsbus and Ingest.Submit do: one that the door does not let in is refused there.
func (d *loadDoor) request(req ingest.Request) {
	l := d.l
	if still := d.n.frozen(); still > 0 {
		l.w.after(still, func() { d.request(req) })
		return
	}
	if d.wire.waits() >= scaled(inboxMost) {
		return // its client waits in vain
	}
	d.wire.do(l.cost.wire, func() {
		answer, by := req.Answer, d.wire
		d.asks++
		req.Answer = func(a ingest.Answer) {
			d.asks--
			by.do(l.cost.answer, func() { answer(a) })
		}
		if !d.door.Admit(l.w.now, &req) {
			return // that is answered
		}
		by = d.loop
		d.loop.do(l.cost.take, func() {
			d.door.Take(l.w.now, &req)
			d.flush()
		})
	})
}

// flush lets the door do what is due, and comes again when something is.
func (d *loadDoor) flush() {
	w := d.l.w
	d.door.Flush(w.now)
	d.alarm++
	due := d.door.Due(w.now)
	if due == 0 {
		return
	}
	alarm := d.alarm
	w.after(max(time.Millisecond, due.Sub(w.now)), func() {
		if d.alarm == alarm {
			d.flush()
		}
	})
}

// loadLog is the task stream as a door sees it.
type loadLog struct{ l *overload }

// Publish stores a pack when the streams come to it.
func (g loadLog) Publish(partition int, subs []core.Submission, done func(uint64, error)) {
	l := g.l
	m := message{partition: partition, subs: slices.Clone(subs)}
	l.store(m, func(seq uint64) {
		done(seq, nil)
		for _, d := range l.doors {
			d.flush()
		}
	})
}

// store brings a message to the task stream, and says when it is synced.
func (l *overload) store(m message, stored func(seq uint64)) {
	w := l.w
	l.streams.do(l.cost.pack+time.Duration(len(m.subs))*l.cost.stored, func() {
		for i := range m.subs {
			l.judge.stored(l.judge.all[m.subs[i].ID])
		}
		tasks := len(m.subs)
		if held := l.held[m.partition]; len(held) > 0 {
			tasks += held[len(held)-1]
		}
		l.held[m.partition] = append(l.held[m.partition], tasks)
		l.places[m.partition] = append(l.places[m.partition], len(w.stream))
		seq := w.append(&w.stream, m)
		w.after(l.cost.sync+w.delay(), func() { stored(seq) })
	})
}

// tellReadings tells the doors how far the nodes are.
func (l *overload) tellReadings() {
	l.w.eachReading(func(node string, all []core.Reading) {
		l.w.after(readingOld, func() {
			for _, d := range l.doors { // one that stands still hears them, too: they are no older when it reads them
				d.door.Report(node, all)
				d.flush()
			}
		})
	})
}

// unread is how many messages of a partition have not come to its owner, and how many tasks are in them.
func (l *overload) unread(p int) (messages int64, tasks int) {
	next := int(l.w.cursor(p))
	if f := l.w.feedOf(p); f != nil {
		next = f.next
	}
	all := l.places[p]
	read, _ := slices.BinarySearch(all, next)
	if read < len(all) {
		tasks = l.held[p][len(all)-1]
	}
	if read < len(all) && read > 0 {
		tasks -= l.held[p][read-1]
	}
	return int64(len(all) - read), tasks
}

// feedOf is what reads a partition; nil: nothing does.
func (w *World) feedOf(p int) *feed {
	for _, n := range w.nodes {
		if f := n.feeds[p]; f != nil && f.reads {
			return f
		}
	}
	return nil
}

// offer is one task that a client would have done by its deadline, which counts from the schedule.
type offer struct {
	l  *overload
	id string
	at core.Instant

	has      time.Duration // until its deadline
	tenant   int           // 0: the one whose load varies
	tries    int
	told     int          // tries of which its client was told something
	accepted bool         // and its client has heard so
	over     bool         // its client asks no more
	stored   bool         // by the stream
	refused  bool         // its client was told so last
	why      string       // likewise
	ended    core.Instant // 0: it has not
	state    core.State
	begun    bool // a step of it was
}

// due is its deadline, as far as its client knows it.
func (o *offer) due() core.Instant { return o.at.Add(o.l.cfg.QueueFor + o.has) }

// deadline is how long tasks have: where the queue is always full it must not matter.
func (l *overload) deadline() time.Duration {
	if l.cfg.Scenario == overloadFull {
		return time.Hour
	}
	return l.cfg.Deadline
}

// submit is one try.
func (o *offer) submit() {
	l, w := o.l, o.l.w
	left := o.due().Sub(w.now)
	if left <= 0 {
		o.end()
		return
	}
	o.tries++
	try := o.tries
	input := []byte(`{"id":"` + o.id + `"}`)
	w.after(min(patienceMost, left), func() {
		if !o.over && !o.accepted && o.tries == try && o.told < try && l.cfg.Scenario != overloadFull {
			o.refused = false
			o.end()
		}
	})
	w.after(w.delay(), func() {
		if l.cfg.Stream && o.tenant == 0 {
			sub := core.Submission{Type: w.roots[0].Name, ID: o.id, Input: input, Unchecked: true}
			l.streams.do(0, func() {
				if sub.At = w.now; l.cfg.QueueFor == 0 {
					sub.CompleteBy = w.now.Add(left)
				}
				l.store(message{partition: w.partitionOf(o.id), subs: []core.Submission{sub}}, func(uint64) { o.answered(ingest.Answer{}) })
			})
			return
		}
		form := submit.Form{Type: w.roots[0].Name, ID: o.id, Input: input, Labels: o.labels()}
		if l.cfg.QueueFor == 0 {
			form.CompleteBy = strconv.FormatInt(left.Milliseconds(), 10) + "ms"
		}
		l.doors[l.rand.IntN(len(l.doors))].request(ingest.Request{
			Form:   form,
			Answer: func(a ingest.Answer) { w.after(w.delay(), func() { o.answered(a) }) },
		})
	})
}

// labels name the tenant and, where much is mixed, the priority.
func (o *offer) labels() string {
	var all []string
	if o.l.cfg.Others > 0 {
		all = append(all, overloadTenant+"=t"+strconv.Itoa(o.tenant))
	}
	if o.l.cfg.Mixed {
		all = append(all, core.PriorityLabel+"=high")
	}
	return strings.Join(all, ",")
}

// answered is what the client hears.
func (o *offer) answered(a ingest.Answer) {
	l, w := o.l, o.l.w
	if o.over || o.accepted {
		return
	}
	o.told = o.tries
	if a.Err == nil {
		if !o.stored {
			w.wrong(w.partitionOf(o.id), o.id, "a submission is accepted that the stream has not stored")
		}
		o.accepted = true
		w.accepted[o.id] = true
		return
	}
	o.refused, o.why = true, a.Err.Description
	wait := a.Err.Retry
	switch l.cfg.Clients {
	case ClientsObey:
	case ClientsRush:
		wait = 10 * time.Millisecond
	default:
		wait = 0
	}
	if wait == 0 || w.now.Add(wait) >= o.due() {
		o.end()
		return
	}
	w.after(wait+time.Duration(l.rand.Int64N(int64(wait/10+1))), o.submit)
}

// end is a client that asks no more.
func (o *offer) end() {
	o.over = true
	o.l.judge.left(o)
}

// refusedAtBirth is a submission that its owner refuses: it was stored, and becomes no task.
func (o *offer) refusedAtBirth() { o.l.judge.ended(o, core.StateUndone, false) }

// idle reports whether no request is under way.
func (l *overload) idle() bool {
	for _, d := range l.doors {
		if d.wire.waits()+d.loop.waits() > 0 || d.asks > 0 {
			return false
		}
	}
	return l.streams.waits() == 0
}
