package ingest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// epoch is when the tests begin.
const epoch = core.Instant(1_700_000_000_000_000)

// message is a pack as the stream got it.
type message struct {
	partition int
	ids       []string
	subs      []core.Submission
	done      func(uint64, error)
}

// memLog is a stream that keeps its outcomes until a test gives them.
type memLog struct {
	got []message
	seq uint64
}

func (l *memLog) Publish(partition int, subs []core.Submission, done func(uint64, error)) {
	m := message{partition: partition, subs: slices.Clone(subs), done: done}
	for _, s := range subs {
		m.ids = append(m.ids, s.ID)
	}
	l.got = append(l.got, m)
}

// store confirms the nth message.
func (l *memLog) store(n int) {
	l.seq++
	l.got[n].done(l.seq, nil)
}

// memPlans is a set of plans; what is in later comes with a reading.
type memPlans struct {
	now, later map[string]*core.Plan
	readings   []func(error)
	deprecated map[string]bool
}

func (p *memPlans) Plan(taskType string, version int64) *core.Plan {
	if plan := p.now[taskType]; plan != nil && (version == 0 || version == plan.Version) {
		return plan
	}
	return nil
}

func (p *memPlans) Deprecated(taskType string, _ int64) bool { return p.deprecated[taskType] }

func (p *memPlans) Reload(done func(error)) { p.readings = append(p.readings, done) }

// read ends the oldest reading.
func (p *memPlans) read(err error) {
	if err == nil {
		p.now = p.later
	}
	done := p.readings[0]
	p.readings = p.readings[1:]
	done(err)
}

func plans(types ...string) *memPlans {
	p := &memPlans{now: map[string]*core.Plan{}}
	for _, name := range types {
		p.now[name] = &core.Plan{Name: name, Version: 3, InputMax: 1000}
	}
	p.later = p.now
	return p
}

// byDigit puts an id that ends in a digit into the partition of that digit.
func byDigit(id string, partitions int) int { return int(id[len(id)-1]) % partitions }

// rig is a door with its ports and the answers it gave.
type rig struct {
	t       testing.TB
	door    *Door
	log     *memLog
	plans   *memPlans
	answers map[string][]Answer
}

func newRig(t testing.TB, change func(*Config)) *rig {
	r := &rig{t: t, log: &memLog{}, plans: plans("order"), answers: map[string][]Answer{}}
	cfg := Config{
		StreamOf: oneStream, Partitions: 4, PartitionOf: byDigit, WindowMax: 10 * time.Millisecond, PackItems: 64,
		CheckReplyTo: func(subject string) error {
			if !strings.HasPrefix(subject, "_INBOX.") {
				return errors.New("not allowed")
			}
			return nil
		},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if r.door, err = NewDoor(cfg, r.plans, r.log); err != nil {
		t.Fatal(err)
	}
	return r
}

// request is a good one whose answer the rig keeps.
func (r *rig) request(id string) Request {
	return Request{Form: submit.Form{Type: "order", ID: id, Input: []byte(`{"a":1}`)}, Answer: func(a Answer) { r.answers[id] = append(r.answers[id], a) }}
}

func (r *rig) submit(now core.Instant, ids ...string) {
	for _, id := range ids {
		r.door.Submit(now, r.request(id))
	}
}

// answer is the only answer of a request.
func (r *rig) answer(id string) Answer {
	r.t.Helper()
	if len(r.answers[id]) != 1 {
		r.t.Fatalf("request %s has %d answers, want 1", id, len(r.answers[id]))
	}
	return r.answers[id][0]
}

func (r *rig) refused(id string, code, cause int) *Refusal {
	r.t.Helper()
	a := r.answer(id)
	if a.Err == nil {
		r.t.Fatalf("request %s was accepted, want code %d cause %d", id, code, cause)
	}
	if a.Err.Code != code || a.Err.ErrCode != cause || a.Task != id {
		r.t.Fatalf("request %s: task %s code %d cause %d (%s), want code %d cause %d", id, a.Task, a.Err.Code, a.Err.ErrCode, a.Err, code, cause)
	}
	return a.Err
}

// idle fails unless every request was answered, all room given back, and none counts in a queue that is not in the stream.
func (r *rig) idle() {
	r.t.Helper()
	if s := r.door.Stats(epoch); !r.door.Idle() || s.Items != 0 || s.Bytes != 0 {
		r.t.Errorf("not idle: %d items, %d bytes", s.Items, s.Bytes)
	}
	for p := range r.door.waits.lines {
		if n := r.door.waits.lines[p].open; n != 0 {
			r.t.Errorf("%d requests count in the queue of partition %d that go no further", n, p)
		}
	}
}

func ids(prefix string, n, partition int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%d-%d", prefix, i, partition)
	}
	return all
}

func ms(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// oneStream is Config.StreamOf where there is one.
func oneStream(int) string { return "TASKS" }
