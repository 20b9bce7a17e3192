package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/wire"
)

// Times of the generator.
const (
	answerMax   = 5 * time.Second  // a submission without an answer by then has timed out
	stallMax    = 30 * time.Second // without any end, the drain has failed
	paceStep    = 500 * time.Microsecond
	samplesMade = 4096 // different deliveries; each submission has an id of its own
	idBytes     = 36
)

// generatorSettings say what load to offer.
type generatorSettings struct {
	NATSURL      string
	Seed         uint64 // of the mock services: to know each task's own latencies
	Scale        float64
	Segments     []segment
	AcceptedFile string // ids that were accepted are added to it
	Profile      string

	Door        string        // where submissions are handed in; empty: doorRequest
	HTTPURL     string        // with doorHTTP
	Token       string        // the same
	Connections int           // 0: one; with doorHTTP httpConnections
	Deadline    time.Duration // of each submission, from its scheduled time; 0: the plan's, and no tenants
	FirstShare  float64       // percent of the arrivals that are the first tenant's
	Obey        int           // percent of the clients that come again when they were told to
	Window      span          // of the measured load: what happens in it is counted apart
}

// plain reports whether what is sent are no submissions.
func (s *generatorSettings) plain() bool { return s.Door == doorEmpty || s.Door == doorTake }

// States of a submission.
const (
	unanswered uint32 = iota
	accepted
	refused
	heldBack // its client was told to wait, for longer than its time
)

// generator offers the load and receives answers and ends. It only notes them;
// everything is computed when the load is over.
type generator struct {
	settings generatorSettings
	plan     *schedule
	door     door
	clients  patience
	events   *nats.Conn
	samples  [][]byte
	idAt     []int         // where each sample has its id
	headers  []nats.Header // of each tenant

	began    time.Time
	sent     int
	ids      []byte  // idBytes each
	late     []int64 // ns behind schedule, when it was offered first
	sentAt   []int64 // ns since began, of the last try
	answered []int64 // ns since began; 0: not yet
	state    []uint32
	again    []bool // a refused one was sent again

	accepted, answers atomic.Int64
	reasons           reasons

	ended    atomic.Int64
	endedIDs []byte  // of the goroutine of the events alone, until it has stopped
	endedAt  []int64 // ns since began
	endedAs  []uint8 // place in endings
}

func runGenerator(ctx context.Context, p *part) error {
	var s generatorSettings
	if ok, err := p.read(&s); !ok || err != nil {
		return err
	}
	g := &generator{settings: s, plan: newSchedule(s.Segments)}
	if err := g.open(ctx); err != nil {
		return err
	}
	defer g.door.close()
	defer g.events.Close()
	if err := p.out.Encode(struct{}{}); err != nil {
		return err
	}
	var word struct{}
	if ok, err := p.read(&word); !ok || err != nil { // the request to begin
		return err
	}
	stopProfile, err := profile(s.Profile)
	if err != nil {
		return err
	}
	stopEvents, err := g.listen(ctx)
	if err != nil {
		return err
	}
	load := g.run()
	stopEvents()
	if err := stopProfile(); err != nil {
		return err
	}
	if err := p.out.Encode(load); err != nil { // the parent stops its clocks
		return err
	}
	if ok, err := p.read(&word); !ok || err != nil {
		return err
	}
	report, err := g.report(load)
	if err != nil {
		return err
	}
	return p.out.Encode(report)
}

// open connects, stores the plan, and makes the deliveries.
func (g *generator) open(ctx context.Context) error {
	n := g.plan.total
	g.ids, g.late, g.sentAt = make([]byte, n*idBytes), make([]int64, n), make([]int64, n)
	g.answered, g.state, g.again = make([]int64, n), make([]uint32, n), make([]bool, n)
	g.endedIDs, g.endedAt, g.endedAs = make([]byte, 0, n*idBytes), make([]int64, 0, n), make([]uint8, 0, n)
	var err error
	if g.events, err = connectGenerator(g.settings.NATSURL); err != nil {
		return err
	}
	requests := drone.NewGenerator(g.settings.Seed)
	for i := range samplesMade {
		r := requests.Request(i)
		sample, err := json.Marshal(&r)
		if err != nil {
			return fmt.Errorf("delivery %d: %w", i, err)
		}
		at := bytes.Index(sample, []byte(r.DeliveryID))
		if at < 0 || len(r.DeliveryID) != idBytes {
			return fmt.Errorf("delivery %d has no id of %d bytes", i, idBytes)
		}
		g.samples, g.idAt = append(g.samples, sample), append(g.idAt, at)
	}
	g.clients.obey, g.headers = g.settings.Obey, tenantHeaders(g.settings.Deadline)
	if g.door, err = g.openDoor(); err != nil {
		g.events.Close()
		return err
	}
	return ctx.Err()
}

// listen reads how tasks end from the event stream, as any program would: after it has
// stored the event.
func (g *generator) listen(ctx context.Context) (stop func(), err error) {
	if g.settings.plain() {
		return func() {}, nil
	}
	js, err := jetstream.New(g.events)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	consumer, err := js.OrderedConsumer(ctx, wire.Names{}.StreamEvents(), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) { g.event(m.Subject(), m.Data()) }, jetstream.PullMaxBytes(8<<20))
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return func() {
		consuming.Stop()
		<-consuming.Closed()
	}, nil
}

// loadDone are the times of a load for the parent, in Unix nanoseconds.
type loadDone struct {
	Began   int64 // of the load that is measured
	Stopped int64 // its end
	Spiked  int64 // the end of the segment with the highest rate
	Drained int64
	Ended   int // by Drained
	Stalled bool
}

// run offers the load and waits until everything accepted has ended.
func (g *generator) run() loadDone {
	g.began = time.Now()
	var load loadDone
	g.pace(&load)
	stopped := time.Now()
	load.Stopped = stopped.UnixNano()
	if load.Spiked == 0 {
		load.Spiked = load.Stopped
	}
	last, moved := int64(-1), stopped
	for {
		ended, now := g.ended.Load(), time.Now()
		if ended != last {
			last, moved = ended, now
		}
		all := g.answers.Load() >= int64(g.sent) || now.Sub(stopped) > answerMax
		if all && (ended >= g.accepted.Load() || g.settings.plain()) {
			break
		}
		if now.Sub(moved) > stallMax {
			load.Stalled = true
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	load.Drained, load.Ended = time.Now().UnixNano(), int(g.ended.Load())
	return load
}

// pace sends every submission as soon as it is due.
func (g *generator) pace(load *loadDone) {
	highest := 0
	for _, s := range g.plan.segments {
		highest = max(highest, s.Rate)
	}
	segment := -1
	for g.sent < g.plan.total {
		now := time.Since(g.began)
		g.comeAgain(int64(now))
		due := g.plan.due(now)
		for g.sent < due {
			if k := g.plan.segmentOf(g.sent); k != segment {
				g.enter(load, segment, k, highest)
				segment = k
			}
			newID(g.id(g.sent))
			at := int64(time.Since(g.began))
			g.late[g.sent] = at - int64(g.plan.at(g.sent))
			g.offer(g.sent, at)
			g.sent++
			if g.sent%64 == 0 && g.plan.segments[segment].Settle && g.settled(g.plan.segments[segment]) {
				return
			}
		}
		if g.sent < g.plan.total {
			time.Sleep(min(paceStep, max(0, g.plan.at(g.sent)-time.Since(g.began))))
		}
	}
	// The last arrival is not the end of its segment.
	time.Sleep(g.plan.length - time.Since(g.began))
}

// enter notes when the measured load begins and when the spike is over.
func (g *generator) enter(load *loadDone, from, to, highest int) {
	segments := g.plan.segments
	at := g.began.Add(g.plan.begins[to]).UnixNano()
	if load.Began == 0 && !segments[to].Warm {
		load.Began = at
	}
	if from >= 0 && segments[from].Rate == highest && !segments[from].Warm {
		load.Spiked = at
	}
}

// settled reports whether less than a second of arrivals is unfinished.
func (g *generator) settled(s segment) bool {
	return g.answers.Load() >= int64(g.sent)-int64(s.Rate) && g.accepted.Load()-g.ended.Load() < int64(s.Rate)
}

// newID writes a random UUID.
func newID(dst []byte) {
	var r [16]byte
	_, _ = rand.Read(r[:]) // never fails, by its contract
	r[6], r[8] = r[6]&0x0f|0x40, r[8]&0x3f|0x80
	const digits = "0123456789abcdef"
	at := 0
	for i, b := range r {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst[at] = '-'
			at++
		}
		dst[at], dst[at+1] = digits[b>>4], digits[b&15]
		at += 2
	}
}

// The ends of tasks, as generator.endedAs has them.
const (
	endProcessed = iota
	endUndone
	endError
	endRefused // after the stream endpoint had stored it
	endExpired // undone, before anything of it was called
)

// endings are the states of the events by which tasks end, and refusals.
var endings = [...]string{drone.StateProcessed, drone.StateUndone, drone.StateError, "refused"}

// event notes the ends in one message of the event stream.
func (g *generator) event(subject string, data []byte) {
	at := int64(time.Since(g.began))
	kind := -1
	for k, state := range endings {
		if subject == (wire.Names{}).EventSubject(drone.Type, state) {
			kind = k
		}
	}
	if kind < 0 {
		return
	}
	mark := []byte(`"id":"`)
	for {
		i := bytes.Index(data, mark)
		if i < 0 || len(data) < i+len(mark)+idBytes {
			return
		}
		data = data[i+len(mark):]
		g.endedIDs = append(g.endedIDs, data[:idBytes]...)
		g.endedAt = append(g.endedAt, at)
		data = data[idBytes:]
		g.endedAs = append(g.endedAs, endOf(kind, data))
		g.ended.Add(1)
	}
}

// endOf is how a task ended, by its event from behind its id.
func endOf(kind int, event []byte) uint8 {
	own, _, _ := bytes.Cut(event, []byte("}"))
	if kind == endUndone && bytes.Contains(own, []byte(`"seq":1,`)) { // the journal row of its birth is that of its end
		kind = endExpired
	}
	return uint8(kind)
}

// id is that of an arrival.
func (g *generator) id(i int) []byte { return g.ids[i*idBytes : (i+1)*idBytes] }

// timedOut reports whether an arrival's last try was not answered in time.
func (g *generator) timedOut(i int) bool {
	switch g.state[i] {
	case unanswered:
		return true
	case heldBack:
		return false
	}
	return g.answered[i]-g.sentAt[i] > int64(answerMax)
}

// inTime reports whether the end at a place is a task that was processed by its deadline, as its submitter's clock has it.
func (g *generator) inTime(k int, took int64) bool {
	return g.endedAs[k] == endProcessed && (g.settings.Deadline == 0 || took <= int64(g.settings.Deadline))
}

// writeAccepted adds the ids that were accepted to the file for the checker.
func (g *generator) writeAccepted() error {
	f, err := os.OpenFile(g.settings.AcceptedFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("accepted ids: %w", err)
	}
	w := bufio.NewWriter(f)
	for i := range g.sent {
		if g.state[i] == accepted {
			_, _ = w.Write(g.id(i)) // Flush returns the error
			_ = w.WriteByte('\n')
		}
	}
	return errors.Join(w.Flush(), f.Close())
}
