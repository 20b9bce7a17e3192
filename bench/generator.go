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
	"strconv"
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
}

// States of a submission.
const (
	unanswered uint32 = iota
	accepted
	refused
)

// generator offers the load and receives answers and ends. It only notes them;
// everything is computed when the load is over.
type generator struct {
	settings generatorSettings
	plan     *schedule
	nc       *nats.Conn // submissions and their answers
	events   *nats.Conn
	prefix   string // of the inbox
	samples  [][]byte
	idAt     []int // where each sample has its id

	began    time.Time
	sent     int
	ids      []byte  // idBytes each
	late     []int64 // ns behind schedule, at the sending
	answered []int64 // ns since began; 0: not yet
	state    []uint32

	accepted, answers atomic.Int64

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
	defer g.nc.Close()
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
	g.ids, g.late = make([]byte, n*idBytes), make([]int64, n)
	g.answered, g.state = make([]int64, n), make([]uint32, n)
	g.endedIDs, g.endedAt, g.endedAs = make([]byte, 0, n*idBytes), make([]int64, 0, n), make([]uint8, 0, n)
	var err error
	for _, nc := range []**nats.Conn{&g.nc, &g.events} {
		if *nc, err = nats.Connect(g.settings.NATSURL, nats.Name("bench-generator"), nats.MaxReconnects(-1)); err != nil {
			return fmt.Errorf("connect the generator: %w", err)
		}
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
	g.prefix = g.nc.NewInbox() + "."
	sub, err := g.nc.Subscribe(g.prefix+"*", g.answer)
	if err != nil {
		return fmt.Errorf("listen to answers: %w", err)
	}
	if err := errors.Join(sub.SetPendingLimits(-1, -1), g.nc.Flush()); err != nil {
		return fmt.Errorf("listen to answers: %w", err)
	}
	return ctx.Err()
}

// listen reads how tasks end from the event stream, as any program would: after it has
// stored the event.
func (g *generator) listen(ctx context.Context) (stop func(), err error) {
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
		if all && ended >= g.accepted.Load() {
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
		due := g.plan.due(now)
		for g.sent < due {
			if k := g.plan.segmentOf(g.sent); k != segment {
				g.enter(load, segment, k, highest)
				segment = k
			}
			g.send(g.sent)
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

func (g *generator) send(i int) {
	id := g.ids[i*idBytes : (i+1)*idBytes]
	newID(id)
	k := i % len(g.samples)
	sample, at := g.samples[k], g.idAt[k]
	copy(sample[at:], id) // the connection copies it
	g.late[i] = int64(time.Since(g.began) - g.plan.at(i))
	// An error is one of the connection; the submission then has no answer.
	_ = g.nc.PublishRequest(wire.Names{}.SubmitSubject(drone.Type, string(id)), g.prefix+strconv.Itoa(i), sample)
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

// answer notes the answer to one submission.
func (g *generator) answer(m *nats.Msg) {
	i, err := strconv.Atoi(m.Subject[len(g.prefix):])
	if err != nil || i >= len(g.state) || g.state[i] != unanswered {
		return
	}
	g.answered[i] = int64(time.Since(g.began))
	g.answers.Add(1)
	if bytes.HasPrefix(m.Data, []byte(`{"stream":`)) {
		g.state[i] = accepted
		g.accepted.Add(1)
		return
	}
	g.state[i] = refused
}

// The ends, in the order of generator.endedAs.
var endings = [...]string{drone.StateProcessed, drone.StateUndone, drone.StateError}

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
		g.endedAs = append(g.endedAs, uint8(kind))
		g.ended.Add(1)
		data = data[idBytes:]
	}
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
			_, _ = w.Write(g.ids[i*idBytes : (i+1)*idBytes]) // Flush returns the error
			_ = w.WriteByte('\n')
		}
	}
	return errors.Join(w.Flush(), f.Close())
}
