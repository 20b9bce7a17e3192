package main

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// C is found whatever the first guess is: the queue is full, and not so long that it slows the machine down.
func TestCapacityIsFound(t *testing.T) {
	for guess, tries := range map[float64]int{1000: 1, 1100: 1, 400: 4, 40: 7, 3500: 2, 20_000: 4} {
		n := 0
		c, err := capacity(guess, func(rate int) (*Capacity, error) {
			n++
			done := min(float64(rate), 1000)
			if rate > 4000 { // a queue that is too long
				done = 700
			}
			if rate > 8000 {
				done = 0
			}
			return &Capacity{OfferedPerS: float64(rate), PerS: done}, nil
		})
		if err != nil || c.PerS != 1000 || c.OfferedPerS < 1050 || c.OfferedPerS > 1550 || n != tries {
			t.Errorf("guess %v: %+v in %d tries, %v; want 1000/s in %d", guess, c, n, err, tries)
		}
	}
	// A machine that any queue slows down has the C of its emptiest.
	c, err := capacity(500, func(rate int) (*Capacity, error) {
		if rate > 1100 {
			return &Capacity{OfferedPerS: float64(rate), PerS: 400}, nil
		}
		return &Capacity{OfferedPerS: float64(rate), PerS: float64(rate)}, nil
	})
	if err != nil || c.PerS < 900 || c.PerS > 1100 {
		t.Errorf("%+v, %v; want near 1100/s", c, err)
	}
	if _, err := capacity(1000, func(rate int) (*Capacity, error) {
		return &Capacity{OfferedPerS: float64(rate), PerS: float64(rate)}, nil
	}); err == nil {
		t.Error("a machine without a limit has one")
	}
}

// What the system uses without work is in no cost.
func TestCostsAreWithoutIdle(t *testing.T) {
	o := &Overload{Idle: 0.1}
	res := &offered{Result: &Result{Seconds: 4, DrainSeconds: 1}, used: usage{engine: 1, nats: 0.5, agents: 0.5, database: 0.5, generator: 9}}
	if got := o.each(res, 2000); math.Abs(got-1000) > 1e-9 {
		t.Errorf("%v µs, want 1000: 2.5 s less 0.1 of 5 s, for 2000", got)
	}
	if o.each(res, 0) != 0 || (&Overload{Idle: 1}).each(res, 10) != 0 {
		t.Error("a cost of nothing, or below nothing")
	}
}

// The ceilings, with T, r, m and e of a run.
func TestCeilings(t *testing.T) {
	refusing := &OverloadCosts{Empty: 10, Hopeless: 12, Refused: 1}
	refusing.settle(doorRequest, []float64{390, 410})
	if refusing.Task != 400 || refusing.R != 0.03 || refusing.RBound {
		t.Errorf("%+v, want T 400 and r 3 %%", refusing)
	}
	silent := &OverloadCosts{Empty: 10, Hopeless: 200, Refused: 0.5}
	silent.settle(doorHTTP, []float64{400})
	if silent.R != 0.025 || !silent.RBound {
		t.Errorf("%+v, want r of an empty request", silent)
	}
	stream := &OverloadCosts{Take: 20, Hopeless: 40}
	stream.settle(doorStream, []float64{400})
	if stream.M != 0.05 || stream.E != 0.05 {
		t.Errorf("%+v, want m and e 5 %%", stream)
	}
	for _, tt := range []struct {
		costs *OverloadCosts
		door  string
		f     float64
		want  float64
	}{
		{refusing, doorRequest, 0.8, 0.8}, {refusing, doorRequest, 1, 1}, {refusing, doorRequest, 5, 0.88}, {refusing, doorHTTP, 50, 0},
		{stream, doorStream, 1, 1}, {stream, doorStream, 2, 0.8 / 0.9}, {stream, doorStream, 20, 0},
		{&OverloadCosts{M: 0.4, E: 0.7}, doorStream, 1.2, 0},
	} {
		if got := tt.costs.ceiling(tt.door, tt.f); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s at %v: %v, want %v", tt.door, tt.f, got, tt.want)
		}
	}
}

// A point counts for nothing when the machine changed while it was measured, or when the generator was late.
func TestPointsAreJudged(t *testing.T) {
	window := func(offered, inTime int) *Window {
		return &Window{Seconds: 10, Offered: offered, InTime: inTime, Refused: 7, TimedOut: 3}
	}
	o := &Overload{Store: "sqlite", Wire: "batched", Door: doorRequest, Deadline: 5, FirstShare: 99, Obey: 50, Costs: &OverloadCosts{Hopeless: 4, Empty: 4, Refused: 1},
		Capacities: []*Capacity{{TaskUS: 400, Cores: 0.5}},
		Points: []*OverloadPoint{
			{Factor: 2, Before: 950, After: 1050, Window: window(20_000, 9_000)},
			{Factor: 2, Before: 1000, After: 850, Window: window(20_000, 9_000)},
			{Factor: 5, Before: 1000, After: 1000, Window: window(50_000, 9_000), GeneratorLate: Quantiles{P99: 20.1}},
		}}
	o.settle()
	if p := o.Points[0]; p.Offered != 2 || p.InTime != 0.9 || p.Ceiling != 0.99 || math.Abs(p.InTimeOfCeil-0.9/0.99) > 1e-9 || p.Void != nil {
		t.Errorf("%+v", p)
	}
	for i, want := range map[int]string{1: "C differs by 15 %", 2: "the generator was late: p99 20 ms"} {
		if got := o.Points[i].Void; !slices.Equal(got, []string{want}) {
			t.Errorf("point %d void by %v, want %s", i, got, want)
		}
	}
	var out bytes.Buffer
	if err := o.table(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"SQLite, batched wire, request door, deadline 5 s, window by completion 10 s after 15 s", "r 1.0 % of T, 1.00 times an empty request",
		"950, 1050", "90.9 %", "C differs by 15 %", "held back", "0.50 of its core", "of the tenant with 99 %"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// Each tenant has its share, spread over time.
func TestTenantsHaveTheirShares(t *testing.T) {
	for _, share := range []float64{0, evenShare, 50, 99.5, 100} {
		var n [tenants]int
		for i := range 19_000 {
			n[tenantOf(i, share)]++
		}
		rest := (19_000 - n[0]) / (tenants - 1)
		if n[0] != int(share*190) || slices.Min(n[1:]) < rest*9/10 || slices.Max(n[1:]) > rest*11/10+1 {
			t.Errorf("%v %%: %v", share, n)
		}
	}
}

// sent is a door that notes what it is handed.
type sent struct {
	arrivals []int
	left     []string
}

func (s *sent) close() {}

func (s *sent) send(i int, header nats.Header, _ []byte) {
	s.arrivals, s.left = append(s.arrivals, i), append(s.left, header["Duly-Complete-By"][0])
}

// A client that obeys submits nothing until the time that it was told, then what it put off, with what is left of its time; and
// gives up what would come too late. One that does not obey is not held.
func TestClientsObey(t *testing.T) {
	const second = time.Second
	segments := []segment{{Rate: clients, For: 4 * second}}
	door := &sent{}
	g := &generator{plan: newSchedule(segments), headers: tenantHeaders(3 * second), began: time.Now(), samples: [][]byte{make([]byte, idBytes)}, idAt: []int{0}}
	g.settings.Deadline, g.clients.obey, g.door = 3*second, 1, door
	n := g.plan.total
	g.ids, g.state, g.again, g.answered, g.sentAt = make([]byte, n*idBytes), make([]uint32, n), make([]bool, n), make([]int64, n), make([]int64, n)
	at := func(d time.Duration) int64 { return int64(d) }
	g.offer(0, at(0)) // of client 0, which obeys
	g.offer(1, at(0)) // of client 1, which does not
	g.refuse(0, at(second/10), 2*second)
	g.refuse(1, at(second/10), 2*second)
	g.offer(clients, at(second))   // of client 0, held
	g.offer(clients+1, at(second)) // of client 1
	g.comeAgain(at(2 * second))    // not yet
	if want := []int{0, 1, clients + 1}; !slices.Equal(door.arrivals, want) || g.answers.Load() != 3 {
		t.Fatalf("sent %v, %d without an answer under way; want %v and 3", door.arrivals, g.answers.Load(), want)
	}
	g.comeAgain(at(21 * second / 10))
	if want := []int{0, 1, clients + 1, 0, clients}; !slices.Equal(door.arrivals, want) || !slices.Equal(door.left[3:], []string{"900ms", "1.9s"}) {
		t.Fatalf("sent %v with %v; want %v, the last two with 900ms and 1.9s", door.arrivals, door.left, want)
	}
	if g.clients.cameAgain != 1 || !g.again[0] || g.again[clients] {
		t.Errorf("%d came again, want arrival 0 alone", g.clients.cameAgain)
	}
	g.refuse(0, at(22*second/10), 2*second) // too late for arrival 0 itself
	g.offer(2*clients, at(2500*time.Millisecond))
	g.comeAgain(at(10 * second))
	if g.state[0] != refused || g.state[2*clients] != unanswered || door.arrivals[len(door.arrivals)-1] != 2*clients {
		t.Errorf("states %d and %d, last sent %d; want the first given up, and the other sent", g.state[0], g.state[2*clients], door.arrivals[len(door.arrivals)-1])
	}
}

// When a refusal says to come again.
func TestRetryIsRead(t *testing.T) {
	for text, want := range map[string]int{
		`{"error":{"code":429},"task":"x","retry_ms":250}`: 250, `{"retry_ms":7,"task":"x"}`: 7,
		`{"error":{}}`: 0, ``: 0, `"retry_ms":`: 0, `"retry_ms":x}`: 0,
	} {
		if got := numberOf([]byte(text), "retry_ms"); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// Refusals are counted by code, with the first answer of each.
func TestReasonsAreCounted(t *testing.T) {
	var r reasons
	for _, answer := range []string{`{"err_code":7021,"n":1}`, `{"err_code":7020}`, `{"err_code":7021,"n":2}`} {
		r.count(numberOf([]byte(answer), "err_code"), []byte(answer))
	}
	want := []Reason{{Code: 7020, N: 1, Text: `{"err_code":7020}`}, {Code: 7021, N: 2, Text: `{"err_code":7021,"n":1}`}}
	if got := r.list(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// An answer is of the arrival at the end of its subject, over whatever connection; the first counts.
func TestAnswersAreNoted(t *testing.T) {
	g := &generator{began: time.Now(), state: make([]uint32, 5), answered: make([]int64, 5)}
	d := &natsDoor{g: g, prefix: "_INBOX.x."}
	for _, m := range []nats.Msg{
		{Subject: "_INBOX.x.17.0", Data: []byte(`{"stream":"DULY_TASKS","seq":1}`)},
		{Subject: "_INBOX.x.0.1"}, // of an empty request
		{Subject: "_INBOX.x.0.2", Data: []byte(`{"error":{"code":429},"retry_ms":9}`)},
		{Subject: "_INBOX.x.0.2", Data: []byte(`{"stream":"DULY_TASKS","seq":2}`)},
		{Subject: "_INBOX.x.0.3", Header: nats.Header{"Status": {"503"}}}, // no responder
		{Subject: "_INBOX.x.0.5", Data: []byte(`{"stream":"x"}`)}, {Subject: "_INBOX.x.0.y"}, {Subject: "_INBOX"},
	} {
		d.answer(&m)
	}
	if want := []uint32{accepted, accepted, refused, refused, unanswered}; !slices.Equal(g.state, want) || g.answers.Load() != 4 || g.accepted.Load() != 2 {
		t.Errorf("states %v, %d answers, %d accepted; want %v, 4, 2", g.state, g.answers.Load(), g.accepted.Load(), want)
	}
}
