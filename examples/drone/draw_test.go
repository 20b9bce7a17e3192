package drone

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"
)

// The drawn latencies have the published median and 95th percentile.
func TestLatenciesHaveThePublishedQuantiles(t *testing.T) {
	all := newServices(t, ServiceOptions{Seed: 3, Scale: 1})
	for step := range Step(StepCount) {
		const n = 20_000
		drawn := make([]time.Duration, n)
		for i := range drawn {
			c := call{Call: Call{Attempt: 1}, step: step, hash: hashText("task" + strconv.Itoa(i))}
			drawn[i] = all.Service(step).draw(&c, 0).latency
		}
		slices.Sort(drawn)
		want := LatencyOf(step)
		near(t, step.String()+" p50", drawn[n/2], want.P50)
		near(t, step.String()+" p95", drawn[n*95/100], want.P95)
	}
}

func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if math.Abs(float64(got-want)) > 0.03*float64(want) {
		t.Errorf("%s is %v, want %v within 3 %%", what, got, want)
	}
}

func TestLatencyAtTheEnds(t *testing.T) {
	l := LatencyOf(StepDelivery)
	if low, high := l.At(0), l.At(math.Nextafter(1, 0)); low <= 0 || high > time.Second {
		t.Errorf("latency runs from %v to %v", low, high)
	}
	if got := (Latency{}).At(0.5); got != 0 {
		t.Errorf("no latency draws %v", got)
	}
}

// The shares come out as asked, and every draw can be had again.
func TestFaultSharesAndRepeatability(t *testing.T) {
	faults := Faults{Transient: 0.15, TimedOut: 0.03, Silent: 0.02}
	a := newServices(t, ServiceOptions{Seed: 5, Faults: faults}).Service(StepDrone)
	b := newServices(t, ServiceOptions{Seed: 5, Faults: faults}).Service(StepDrone)
	const n = 100_000
	var seen [faultSilent + 1]float64
	differs := 0
	for i := range n {
		c := call{Call: Call{Attempt: 1}, step: StepDrone, hash: hashText(strconv.Itoa(i))}
		f := a.draw(&c, 0)
		if f != b.draw(&c, 0) {
			t.Fatalf("call %d: another fate under the same seed", i)
		}
		if f != a.draw(&c, 1) {
			differs++
		}
		seen[f.fault]++
	}
	for kind, want := range map[fault]float64{faultNone: 0.8, faultTransient: 0.15, faultHang: 0.03, faultSilent: 0.02} {
		if got := seen[kind] / n; math.Abs(got-want) > 0.005 {
			t.Errorf("share of fault %d is %.4f, want %.4f", kind, got, want)
		}
	}
	if differs < n*9/10 {
		t.Errorf("only %d of %d repeated attempts had a draw of their own", differs, n)
	}
}

func TestFaultsNamed(t *testing.T) {
	for name, want := range map[string]Faults{"none": FaultsNone, "some": FaultsSome, "storm": FaultsStorm} {
		got, err := FaultsNamed(name)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := FaultsNamed("lots"); err == nil {
		t.Error("lots was accepted")
	}
	for _, bad := range []Faults{{Refused: -0.1}, {Refused: math.NaN()}, {Transient: 0.6, TimedOut: 0.6}, {Doubled: 0.7, Dropped: 0.7}} {
		if bad.Validate() == nil {
			t.Errorf("%+v was accepted", bad)
		}
		if _, err := NewServices(ServiceOptions{Faults: bad}); err == nil {
			t.Errorf("services with %+v were made", bad)
		}
	}
}
