package ingest

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"duly.dev/duly/internal/submit"
)

// tenants has a door tell tenants apart.
func tenants(weights map[string]int) func(*Config) {
	return func(cfg *Config) { cfg.TenantLabel, cfg.Weights = "tenant", weights }
}

// offerOf submits so many of a tenant with so much time, and returns how many of them were taken. The newest is answered.
func (q *queueRig) offerOf(tenant, by string, n int) (taken int) {
	for range n {
		q.n++
		req := q.request(fmt.Sprintf("x%d0", q.n))
		req.CompleteBy, req.Labels = by, "tenant="+tenant
		q.door.Submit(q.now, req)
		if len(q.answers[req.ID]) == 0 {
			taken++
		}
	}
	q.flush()
	return taken
}

// crowd is eight tenants who offer a tenth of the rate each, with short deadlines, beside one who offers so many times the
// rate, for some time. It returns what each side had, in shares of what it offered, and of the rate.
func (q *queueRig) crowd(loud float64, d time.Duration) (others, first float64) {
	offered, taken, had := 0, 0, 0
	for end := q.now.Add(d); q.now < end; q.pass(250 * time.Millisecond) {
		had += q.offerOf("loud", "30s", int(loud*float64(q.rate))/4)
		for i := range 8 {
			offered += q.rate / 40
			taken += q.offerOf(fmt.Sprintf("t%d", i), "6s", q.rate/40)
		}
	}
	return float64(taken) / float64(offered), float64(had) / d.Seconds() / float64(q.rate)
}

// TestTenantsShareTheQueue: one tenant who offers far more than his part takes nothing from others who do not, and has what
// they leave. He is told so.
//
// covers: I6
func TestTenantsShareTheQueue(t *testing.T) {
	q := newQueueRig(t, 1000, tenants(nil))
	q.tell()
	if others, _ := q.crowd(0.1, 5*time.Second); others != 1 {
		t.Errorf("of others %.1f %% were taken while there was room for all", 100*others)
	}
	others, first := q.crowd(5, 30*time.Second)
	if others != 1 || first < 0.2 || first > 0.32 {
		t.Errorf("of others %.1f %% were taken, and of the rate the first had %.0f %%", 100*others, 100*first)
	}
	if wait := q.wait(); wait > 3*time.Second/2 { // a fifth of the time that the others have
		t.Errorf("the wait is %v", wait)
	}
	if taken := q.offerOf("loud", "30s", 500); taken > 250 {
		t.Errorf("%d of 500 more were taken", taken)
	}
	e := q.refused(fmt.Sprintf("x%d0", q.n), 429, CauseBacklog)
	for _, want := range []string{`tenant "loud" asks for more than its part`, "that begin a second here"} {
		if !strings.Contains(e.Description, want) {
			t.Errorf("%q does not say %q", e.Description, want)
		}
	}
	fl := q.door.shares.of(&submit.Form{Labels: "tenant=loud"})
	fl.retryQueue.slot = 0
	q.offerOf("loud", "30s", 100) // each is told a time by what is his part, a fifth of the rate
	from, until := q.refused(fmt.Sprintf("x%d0", q.n-99), 429, CauseBacklog), q.refused(fmt.Sprintf("x%d0", q.n), 429, CauseBacklog)
	if apart := until.Retry - from.Retry; apart < 300*time.Millisecond || apart > 600*time.Millisecond {
		t.Errorf("a hundred are told times that are %v apart", apart)
	}
}

// TestSeldomTenantIsNotCut: the limit of a queue that stands is not for who asks for less than his part.
func TestSeldomTenantIsNotCut(t *testing.T) {
	q := newQueueRig(t, 1000, tenants(nil))
	q.tell()
	for range 4 * 90 {
		q.offerOf("loud", "15s", 500)
		q.pass(250 * time.Millisecond)
	}
	if taken := q.offerOf("loud", "15s", 1000); taken > 500 {
		t.Fatalf("%d of 1000 were taken: no queue stands", taken)
	}
	e := q.refused(fmt.Sprintf("x%d0", q.n), 429, CauseBacklog)
	if taken := q.offerOf("rare", "6s", 16); taken != 16 || !strings.Contains(e.Description, "does not get less") {
		t.Errorf("of one who comes seldom %d of 16 were taken, and the other is told %q", taken, e.Description)
	}
}

// TestShareOfOneOrAll: where there is one tenant, or all offer as much, shares change nothing.
func TestShareOfOneOrAll(t *testing.T) {
	for name, of := range map[string]func(i int) string{"one": func(int) string { return "a" }, "all": func(i int) string { return string(rune('a' + i%4)) }} {
		var took [2][]int
		for k, change := range []func(*Config){nil, tenants(nil)} {
			q := newQueueRig(t, 1000, change)
			q.tell()
			for range 4 * 30 {
				got := 0
				for part := range 4 {
					got += q.offerOf(of(part), "30s", 125)
				}
				took[k] = append(took[k], got)
				q.pass(250 * time.Millisecond)
			}
		}
		if fmt.Sprint(took[0]) != fmt.Sprint(took[1]) {
			t.Errorf("%s: taken with tenants %v, without %v", name, took[1], took[0])
		}
	}
}

// TestLevel: the part of a weight of one is what is left to those who ask for more, by weight.
func TestLevel(t *testing.T) {
	for _, x := range []struct {
		asks, weights []float64
		rate, want    float64
	}{
		{[]float64{10, 10, 300}, []float64{1, 1, 1}, 100, 80},
		{[]float64{300, 10, 200}, []float64{1, 1, 1}, 100, 45},
		{[]float64{300, 200}, []float64{3, 1}, 100, 25}, // 75 and 25
		{[]float64{60, 200}, []float64{3, 1}, 100, 40},  // 60, and what it leaves
		{[]float64{20, 30}, []float64{1, 1}, 100, 80},   // nobody asks for more: what one more could have, beside the most
		{nil, nil, 100, 100},
		{[]float64{5, 5}, []float64{1, 1}, 0, 0},
	} {
		var all []*flow
		for i := range x.asks {
			all = append(all, &flow{rate: x.asks[i], weight: x.weights[i]})
		}
		if got := levelOf(all, x.rate); math.Abs(got-x.want) > 1e-9 {
			t.Errorf("%v by %v of %v: %v, want %v", x.asks, x.weights, x.rate, got, x.want)
		}
	}
}

// TestWeightsOfTenants: a tenant of four times the weight may have four times as much.
func TestWeightsOfTenants(t *testing.T) {
	s := newShares("tenant", map[string]int{"big": 4})
	s.reckon(epoch, 100)
	big, small := s.of(&submit.Form{Labels: "tenant=big"}), s.of(&submit.Form{Labels: "a=b, tenant=small"})
	for i := range 20 {
		big.seen.Add(25)
		small.seen.Add(25) // a hundred a second, of a hundred for both
		s.reckon(epoch.Add(time.Duration(i+1)*reckonEvery), 100)
	}
	if b, l := s.part(big), s.part(small); b != 80 || l != 20 {
		t.Errorf("parts of %v and %v", b, l)
	}
	if b, l := s.judge(epoch.Add(21*reckonEvery), big), s.judge(epoch.Add(21*reckonEvery), small); b != within || l != beyond {
		t.Errorf("a hundred a second of %v is judged %d, and of %v %d", s.part(big), b, s.part(small), l)
	}
}

// TestGulpOfATenant: what one sends at once is judged before the next reckoning.
func TestGulpOfATenant(t *testing.T) {
	s := newShares("tenant", nil)
	now := epoch
	s.reckon(now, 100)
	quiet, loud := s.of(&submit.Form{Labels: "tenant=quiet"}), s.of(&submit.Form{Labels: "tenant=loud"})
	for range 20 {
		now = now.Add(reckonEvery)
		quiet.seen.Add(10)
		loud.seen.Add(5)
		s.reckon(now, 100)
	}
	loud.seen.Add(400)
	if q, l := s.judge(now, quiet), s.judge(now, loud); q != shareless || l != beyond {
		t.Errorf("beside a gulp %d, the gulp %d", q, l)
	}
}

// TestTenantsAreBounded: of more tenants than are told apart the others share one flow, and who asks no more is forgotten.
func TestTenantsAreBounded(t *testing.T) {
	s := newShares("tenant", nil)
	s.reckon(epoch, 1000)
	for i := range 5000 {
		f := &submit.Form{Labels: fmt.Sprintf("tenant=t%d", i)}
		s.of(f).count(f)
	}
	if n, rest := len(s.flows), s.overflow.seen.Load(); n != flowsMax || rest != 5000-flowsMax {
		t.Errorf("%d flows, and %d of others", n, rest)
	}
	s.reckon(epoch.Add(time.Second), 1000)
	if len(s.flows) != flowsMax {
		t.Errorf("%d flows a second later", len(s.flows))
	}
	s.reckon(epoch.Add(time.Minute), 1000)
	if len(s.flows) != 0 {
		t.Errorf("%d flows a minute later", len(s.flows))
	}
	f := &submit.Form{StartAt: "1h", Labels: "tenant=later"}
	if s.of(f).count(f); s.of(f).seen.Load() != 0 {
		t.Error("what begins later counts now")
	}
}

// TestSharesOfMany: doors are asked from many goroutines while one reckons.
func TestSharesOfMany(t *testing.T) {
	s := newShares("tenant", nil)
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			for i := range 2000 {
				f := &submit.Form{Labels: fmt.Sprintf("tenant=t%d", (i*7+k)%1500)}
				fl := s.of(f)
				fl.count(f)
				s.judge(epoch.Add(time.Duration(i)*time.Millisecond), fl)
				fl.retryQueue.next(epoch, time.Second, time.Minute, s.part(fl))
			}
		})
	}
	for i := range 200 {
		s.reckon(epoch.Add(time.Duration(i)*reckonEvery), 100)
	}
	all.Wait()
	if len(s.flows) > flowsMax {
		t.Errorf("%d flows", len(s.flows))
	}
}

// BenchmarkRefused is the door's part of a refusal.
func BenchmarkRefused(b *testing.B) {
	for name, labels := range map[string]string{"by time": "", "by share": "tenant=loud"} {
		b.Run(name, func(b *testing.B) {
			door := benchDoor(b, nil, 1)
			door.shares = newShares("tenant", nil)
			door.plans.(*memPlans).now["order"].CompleteBy = map[string]time.Duration{"by time": 2 * time.Second, "by share": 30 * time.Second}[name]
			l, o := &door.waits.lines[0], &queueOwner{}
			o.pace.Store(&pace{rate: 1000, share: 1})
			o.mine.Store(3000)
			l.owner.Store(o)
			form, quiet := submit.Form{Type: "order", ID: "o-17", Labels: labels}, submit.Form{Labels: "tenant=quiet"}
			now := epoch
			for range 8 {
				if labels != "" {
					door.shares.of(&form).seen.Add(5000)
				}
				door.shares.of(&quiet).count(&quiet)
				door.shares.reckon(now, 1000)
				now = now.Add(reckonEvery)
			}
			l.moved.Store(int64(now))
			b.ReportAllocs()
			for b.Loop() {
				if r := door.late(now, l, &form, door.shares.of(&form), false); r == nil {
					b.Fatal("it is taken")
				}
			}
		})
	}
}
