package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// quiet is a world in which nothing happens by itself.
func quiet() *World { return &World{now: began} }

// ends lets jobs of these costs begin together and says when each has ended.
func ends(m *machine, costs ...time.Duration) []time.Duration {
	all := make([]time.Duration, len(costs))
	from := m.w.now
	for i, cost := range costs {
		m.run(otherJobs, cost, func() { all[i] = m.w.now.Sub(from) })
	}
	m.w.until(from.Add(time.Hour), func() bool { return false })
	return all
}

func TestMachineIsShared(t *testing.T) {
	const ms = time.Millisecond
	for _, x := range []struct {
		cores float64
		costs []time.Duration
		want  []time.Duration
	}{
		{2, []time.Duration{10 * ms}, []time.Duration{10 * ms}}, // one has one core
		{2, []time.Duration{10 * ms, 10 * ms}, []time.Duration{10 * ms, 10 * ms}},
		{2, []time.Duration{10 * ms, 10 * ms, 10 * ms, 10 * ms}, []time.Duration{20 * ms, 20 * ms, 20 * ms, 20 * ms}},
		{1, []time.Duration{10 * ms, 20 * ms}, []time.Duration{20 * ms, 30 * ms}}, // who is left has it alone
		{2, []time.Duration{10 * ms, 10 * ms, 40 * ms}, []time.Duration{15 * ms, 15 * ms, 45 * ms}},
		{2, []time.Duration{0, 10 * ms}, []time.Duration{0, 10 * ms}},
	} {
		m := newMachine(quiet(), x.cores, 1, &weather{})
		got := ends(m, x.costs...)
		var used time.Duration
		for i := range got {
			if late := got[i] - x.want[i]; late < 0 || late > 3*time.Microsecond {
				t.Errorf("%v on %v cores end after %v, want %v", x.costs, x.cores, got, x.want)
			}
			used += x.costs[i]
		}
		if got := time.Duration(m.used); (got - used).Abs() > 10*time.Microsecond {
			t.Errorf("%v on %v cores used %v, want %v", x.costs, x.cores, got, used)
		}
	}
}

// A thread of the door has its weight, one core at most, and leaves what it does not use to the others.
func TestDoorHasWeight(t *testing.T) {
	const ms = time.Millisecond
	for _, x := range []struct {
		cores, weight float64
		others        int
		door, other   time.Duration // how long 12 ms of each take
	}{
		{1, 3, 1, 16 * ms, 24 * ms},
		{1, 3, 3, 24 * ms, 48 * ms},
		{2, 3, 1, 12 * ms, 12 * ms},
		{2, 8, 3, 12 * ms, 24 * ms},
	} {
		w := quiet()
		m := newMachine(w, x.cores, x.weight, &weather{})
		var door, other time.Duration
		m.run(doorJobs, 12*ms, func() { door = w.now.Sub(began) })
		for range x.others {
			m.run(otherJobs, 12*ms, func() { other = w.now.Sub(began) })
		}
		w.until(began.Add(time.Second), func() bool { return false })
		if (door-x.door).Abs() > 5*time.Microsecond || (other-x.other).Abs() > 5*time.Microsecond {
			t.Errorf("%+v: the door took %v, the others %v", x, door, other)
		}
	}
}

// Whatever comes and goes, no more is done than the cores do, and no job has more than one of them.
func TestMachineIsNotFaster(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := quiet()
		m := newMachine(w, 1+float64(seed%4), 1+float64(seed%3), &weather{rand: rand.New(rand.NewPCG(seed, 2))})
		var all time.Duration
		done, jobs := 0, 1+r.IntN(40)
		for range jobs {
			cost, at := time.Duration(r.Int64N(int64(2*time.Second))), time.Duration(r.Int64N(int64(20*time.Second)))
			all += cost
			w.after(at, func() {
				from := w.now
				m.run(r.IntN(2), cost, func() {
					done++
					if took := w.now.Sub(from); float64(took) < float64(cost)/(1+weatherMost/2)-float64(time.Microsecond) {
						t.Errorf("seed %d: %v were done in %v", seed, cost, took)
					}
				})
			})
		}
		w.until(w.now.Add(5*time.Minute), func() bool { return done == jobs })
		if used := time.Duration(m.used); done != jobs || (used-all).Abs() > time.Millisecond {
			t.Errorf("seed %d: %d of %d jobs done, %v used, want %v", seed, done, jobs, used, all)
		}
		if most := m.cores * (1 + weatherMost/2) * float64(w.now.Sub(began)); m.used > most {
			t.Errorf("seed %d: used %v in %v on %v cores", seed, time.Duration(m.used), w.now.Sub(began), m.cores)
		}
	}
}

// A minute is as fast as any other, and varies by 20 to 40 % within it.
func TestWeather(t *testing.T) {
	y := &weather{rand: rand.New(rand.NewPCG(1, 1))}
	for minute := range 100 {
		sum, least, most := 0.0, 2.0, 0.0
		for at := time.Duration(minute) * time.Minute; at < time.Duration(minute+1)*time.Minute; at += time.Second {
			s := y.speed(at)
			sum, least, most = sum+s, min(least, s), max(most, s)
		}
		if mean := sum / 60; math.Abs(mean-1) > 1e-9 || most-least < weatherLeast-1e-9 || most-least > weatherMost+1e-9 {
			t.Errorf("minute %d: mean %v, from %v to %v", minute, mean, least, most)
		}
	}
}

// A job that runs while the weather changes gets what each part gives.
func TestMachineInWeather(t *testing.T) {
	y := &weather{rand: rand.New(rand.NewPCG(3, 1))}
	m := newMachine(quiet(), 1, 1, y)
	got := ends(m, 8*time.Second)[0]
	first, second := y.speed(0), y.speed(weatherPiece)
	want := weatherPiece + time.Duration((8-5*first)/second*float64(time.Second))
	if late := got - want; late < 0 || late > 5*time.Microsecond {
		t.Errorf("8 s of work at %v, then %v, took %v, want %v", first, second, got, want)
	}
}

// A thread does one thing after the other, and a proc waits for the machine.
func TestThread(t *testing.T) {
	w := quiet()
	m := newMachine(w, 2, 1, &weather{})
	th := &thread{m: m, class: otherJobs}
	var at []core.Instant
	for range 3 {
		th.do(time.Second, func() { at = append(at, w.now) })
	}
	waited := core.Instant(0)
	w.start(func() {
		m.use(time.Second)
		waited = w.now
	})
	if th.waits() != 3 {
		t.Errorf("%d wait, want 3", th.waits())
	}
	w.until(began.Add(time.Minute), func() bool { return false })
	w.end()
	for i, is := range at {
		if late := is.Sub(began) - time.Duration(i+1)*time.Second; late < 0 || late > 10*time.Microsecond {
			t.Errorf("thing %d was done after %v", i, is.Sub(began))
		}
	}
	if late := waited.Sub(began) - time.Second; len(at) != 3 || th.waits() != 0 || late < 0 || late > 10*time.Microsecond {
		t.Errorf("%d things done, %d wait, a proc waited %v", len(at), th.waits(), waited.Sub(began))
	}
}
