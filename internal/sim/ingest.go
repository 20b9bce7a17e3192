package sim

import (
	"slices"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
)

// ingestProcess is the process with the role ingest. Its requests die with it; their
// clients hear nothing and ask again.
type ingestProcess struct {
	w     *World
	clock *clock
	door  *ingest.Door
	life  int
}

func (w *World) startIngest() {
	d := &ingestProcess{w: w, clock: w.newClock()}
	w.ingest = d
	d.open()
}

// open begins a life. Small limits, so that they are met.
func (d *ingestProcess) open() {
	d.life++
	w := d.w
	door, err := ingest.NewDoor(ingest.Config{
		StreamOf: func(int) string { return "tasks" }, Partitions: w.cfg.Partitions, PackItems: 1 + w.rand.IntN(8), ItemsMax: 2 + w.rand.IntN(16),
		PublishMax:  400 * time.Millisecond,
		PartitionOf: func(id string, _ int) int { return w.partitionOf(id) },
	}, planBook{w}, streamLog{w})
	if err != nil {
		panic(err) // the world is built wrong
	}
	d.door = door
}

// serve lets ingest do something; it may die at any of its effects.
func (d *ingestProcess) serve(do func()) {
	defer func() {
		if cause := recover(); cause != nil {
			if cause != errKilled {
				panic(cause)
			}
			d.w.tell("", -1, "ingest crashes")
			d.open()
		}
	}()
	do()
}

// point is a moment between two effects of ingest.
func (d *ingestProcess) point() {
	if d.w.fault(IngestCrash) {
		panic(errKilled)
	}
}

func (d *ingestProcess) submit(req ingest.Request) {
	d.serve(func() { d.door.Submit(d.clock.now(), req) })
	d.flush()
}

func (d *ingestProcess) flush() {
	d.serve(func() { d.door.Flush(d.clock.now()) })
	if due := d.door.Due(d.clock.now()); due != 0 {
		life := d.life
		d.w.after(max(time.Millisecond, d.clock.until(due)), func() {
			if d.life == life {
				d.flush()
			}
		})
	}
}

// readingEvery is how often a node says how far it is with its partitions, as internal/node does.
const readingEvery = 250 * time.Millisecond

// eachReading has every node that runs say how far it is.
func (w *World) eachReading(say func(node string, all []core.Reading)) {
	for _, n := range w.nodes {
		if n.sched != nil && w.now >= n.thaw {
			say(n.name, n.sched.Readings())
		}
	}
}

// tellReadings tells the door how far the nodes are.
func (w *World) tellReadings() {
	w.eachReading(func(node string, all []core.Reading) {
		w.after(w.delay(), func() {
			w.ingest.serve(func() { w.ingest.door.Report(node, all) })
			w.ingest.flush()
		})
	})
}

// streamLog is the task stream as ingest sees it.
type streamLog struct{ w *World }

func (l streamLog) Publish(partition int, subs []core.Submission, done func(uint64, error)) {
	w := l.w
	w.ingest.point()
	m := message{partition: partition, subs: slices.Clone(subs)}
	switch {
	case w.during(w.others) || w.fault(StreamDown):
		done(0, ingest.ErrLogDown)
	case w.during(w.full) || w.fault(StreamFull):
		done(0, ingest.ErrLogFull)
	case w.fault(StreamSilent): // and nothing was stored
	case w.fault(StreamAnswerLost):
		w.append(&w.stream, m)
		w.after(w.upTo(time.Second), func() { done(0, errFault) }) // also when it was given up already
	default:
		w.after(w.delay(), func() {
			seq := w.append(&w.stream, m)
			w.after(w.delay(), func() { done(seq, nil) })
		})
	}
	w.ingest.point()
}
