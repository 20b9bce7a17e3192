package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Overload: more is offered than the machine can process, and every task has a deadline. What counts is how many are processed
// in time, as a share of what it processes when nothing is refused and nothing expires: C. The system has one core and the
// generator another, so that neither takes the other's time. They are cores and no quota of CPU: a quota stops the system for
// the rest of its period, and with the usual 100 ms that is what would be measured.
const (
	systemCore    = 0
	generatorCore = 1

	overloadDeadline = 5 * time.Second
	overloadSeconds  = 10
	onsetDeadlines   = 3 // before a window, so that nothing in it is of a queue that was empty

	capacityGuess    = 4000 // tasks per second, before anything is known
	capacityOver     = 1.3  // C is offered so many times, so that the queue is never empty
	capacityDeadline = time.Minute
	capacityOnset    = 2 * time.Second
	capacityFor      = 6 * time.Second
	capacityTries    = 10

	idleFor      = 3 * time.Second
	costRate     = 10_000
	costFor      = 2 * time.Second
	costDeadline = time.Millisecond // no task can make it

	differMax = 0.10 // of C before and after a factor
	lateMax   = 20.0 // ms of the generator's p99
)

// Overload is what a machine does of what it is offered, by how much that is.
type Overload struct {
	Scenario    string           `json:"scenario"`
	Store       string           `json:"store"`
	Wire        string           `json:"wire"`
	Door        string           `json:"door"` // request, stream or http
	Date        string           `json:"date"`
	Machine     string           `json:"machine"`
	Command     string           `json:"command"`
	Deadline    float64          `json:"deadline_s"`
	FirstShare  float64          `json:"first_share_percent"` // of the arrivals that one tenant of twenty has
	Obey        int              `json:"obey_percent"`        // of the clients that come again when they are told to
	Connections int              `json:"connections,omitempty"`
	Idle        float64          `json:"idle_cores"` // that the system uses without work; in no cost
	Costs       *OverloadCosts   `json:"costs"`
	Capacities  []*Capacity      `json:"capacities"` // one before the first factor and one after each
	Points      []*OverloadPoint `json:"points"`
}

// Capacity is one measurement of C.
type Capacity struct {
	OfferedPerS float64 `json:"offered_per_s"`
	PerS        float64 `json:"per_s"`   // processed in time
	TaskUS      float64 `json:"task_us"` // CPU of the system for a whole task
	Cores       float64 `json:"cores"`   // that the system used; of one well below 1 C is a limit of the disk, not of the CPU
}

// OverloadCosts are CPU times of the system, in microseconds, and shares of a whole task's.
type OverloadCosts struct {
	Task     float64 `json:"task_us"`     // T: the mean of all measurements of C
	Empty    float64 `json:"empty_us"`    // of an empty request and its answer
	Take     float64 `json:"take_us"`     // stream door: of storing a message in a stream and taking it off
	Hopeless float64 `json:"hopeless_us"` // of a submission that has 1 ms
	Refused  float64 `json:"refused"`     // share of those that the door refused; the others expired

	R      float64 `json:"r"`       // refusing one, as a share of T
	RBound bool    `json:"r_bound"` // the door does not refuse for want of time: r is that of an empty request, which it cannot be below
	M      float64 `json:"m"`       // taking a message off the stream
	E      float64 `json:"e"`       // expiring one, without m
}

// OverloadPoint is one factor.
type OverloadPoint struct {
	Factor         float64   `json:"factor"`
	Before         float64   `json:"c_before"`
	After          float64   `json:"c_after"`
	Window         *Window   `json:"window"`
	Reasons        []Reason  `json:"reasons,omitempty"` // why tries of the whole load were refused
	Offered        float64   `json:"offered_of_c"`      // by the mean of both C
	InTime         float64   `json:"in_time_of_c"`
	Ceiling        float64   `json:"ceiling_of_c"`
	InTimeOfCeil   float64   `json:"in_time_of_ceiling"`
	GeneratorLate  Quantiles `json:"generator_late_ms"`
	DrainSeconds   float64   `json:"drain_seconds"`
	Cores          float64   `json:"cores"` // that the system used
	StolenCores    float64   `json:"stolen_cores,omitempty"`
	GeneratorCores float64   `json:"generator_cores"`
	Void           []string  `json:"void,omitempty"` // why it counts for nothing
}

// overload measures the factors of -factors, one after the other on one system.
func overload(ctx context.Context, s *settings, command string, out io.Writer) error {
	where, err := whereOf(s)
	if err != nil {
		return err
	}
	o := &Overload{Scenario: s.scenario, Store: s.store, Wire: s.wire, Door: s.door, Date: time.Now().UTC().Format(time.RFC3339), Machine: where,
		Command: command, Deadline: s.deadline.Seconds(), FirstShare: s.firstShare, Obey: s.obey, Connections: s.connections}
	if err := runOn(systemCore); err != nil { // what is started now inherits it
		return err
	}
	r, err := newRig(ctx, s.system(rigOptions{Apart: true, Single: s.wire == "single", HTTP: s.door == doorHTTP}))
	if err != nil {
		return err
	}
	err = runOn(generatorCore)
	if err == nil {
		err = o.measure(ctx, s, r)
	}
	if err == nil {
		err = r.closeBooks(&Result{})
	}
	if err := errors.Join(err, r.close()); err != nil {
		return err
	}
	return publishTable(s, o, out)
}

// runOn lets this process, and what it starts from now on, run on one core only.
func runOn(core int) error {
	out, err := exec.Command("taskset", "-a", "-c", "-p", strconv.Itoa(core), strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run on core %d: %w: %s", core, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// measure measures C, what things cost, and each factor with C after it.
func (o *Overload) measure(ctx context.Context, s *settings, r *rig) error {
	if _, err := r.load(ctx, []segment{{Rate: warmUp.Rate, For: warmUp.For}}); err != nil {
		return err
	}
	res, err := r.offer(ctx, generatorSettings{Segments: []segment{{Rate: 1, For: idleFor}}, Door: doorEmpty})
	if err != nil {
		return err
	}
	o.Idle = res.cores(res.used.system())
	load := func(rate int) (*Capacity, error) { return o.capacityAt(ctx, s, r, rate) }
	guess := float64(orElse(s.rate, capacityGuess))
	c, err := capacity(guess, load)
	if err != nil {
		return err
	}
	o.Capacities = []*Capacity{c}
	if o.Costs, err = o.costs(ctx, s, r, c.PerS); err != nil {
		return err
	}
	for _, f := range s.factors {
		p, err := o.point(ctx, s, r, f, c.PerS)
		if err != nil {
			return err
		}
		if c, err = capacity(c.PerS, load); err != nil {
			return err
		}
		o.Capacities, o.Points = append(o.Capacities, c), append(o.Points, p)
		p.After = c.PerS
	}
	o.settle()
	return nil
}

// capacityAt offers so much for a while, with time enough for all of it.
func (o *Overload) capacityAt(ctx context.Context, s *settings, r *rig, rate int) (*Capacity, error) {
	res, err := r.offer(ctx, generatorSettings{
		Segments: []segment{{Rate: rate, For: capacityOnset + capacityFor}}, Window: span{capacityOnset, capacityOnset + capacityFor},
		Door: s.door, Connections: s.connections, Deadline: capacityDeadline, FirstShare: evenShare,
	})
	if err != nil {
		return nil, err
	}
	c := &Capacity{OfferedPerS: float64(rate), PerS: float64(res.Window.InTime) / res.Window.Seconds, TaskUS: o.each(res, res.Processed), Cores: res.cores(res.used.system())}
	fmt.Fprintf(os.Stderr, "overload: C: %.0f/s of %d/s, %.0f µs a task, %.2f cores, drained in %.1f s\n", c.PerS, rate, c.TaskUS, c.Cores, res.DrainSeconds)
	return c, nil
}

// each is the CPU of the system for each of n, in microseconds, without what it uses anyway.
func (o *Overload) each(res *offered, n int) float64 {
	return 1e6 * max(0, ratio(res.used.system()-o.Idle*(res.Seconds+res.DrainSeconds), float64(n)))
}

// capacity finds C near a guess. The queue was full if less was processed than offered; and what was offered must not be so
// much more that the length of the queue slows the machine down. Where nothing lies between the two, C is the most that was
// processed.
func capacity(guess float64, load func(rate int) (*Capacity, error)) (*Capacity, error) {
	var best Capacity
	empty, slow, next := 0.0, 0.0, guess*capacityOver // the highest rate with an empty queue, the lowest that slowed it down
	for range capacityTries {
		c, err := load(int(next))
		if err != nil {
			return nil, err
		}
		if c.PerS > best.PerS {
			best = *c
		}
		switch share := ratio(c.PerS, c.OfferedPerS); {
		case share > 0.95:
			empty, next = c.OfferedPerS, 2*c.OfferedPerS
			if slow <= empty { // the machine has changed
				slow = 0
			}
		case share >= 0.65:
			return c, nil
		default:
			slow, next = c.OfferedPerS, capacityOver*max(c.PerS, c.OfferedPerS/5)
			if empty >= slow {
				empty = 0
			}
		}
		if slow > 0 && slow < 1.2*empty {
			return &best, nil
		}
		if slow > 0 && empty > 0 && (next >= slow || next <= empty) {
			next = (empty + slow) / 2
		}
	}
	return nil, fmt.Errorf("overload: C was not found in %d tries, the most that was processed is %.0f/s", capacityTries, best.PerS)
}

// costLoad is a load of one thing whose cost is compared with a whole task's.
type costLoad struct {
	door     string
	deadline time.Duration
	us       *float64
}

// costs measures what is compared with a whole task. A stream syncs each message by itself, so that it takes no more of
// them than of submissions; and over HTTP no door takes costRate.
func (o *Overload) costs(ctx context.Context, s *settings, r *rig, capacity float64) (*OverloadCosts, error) {
	c, rate := &OverloadCosts{}, costRate
	loads := []costLoad{{doorEmpty, 0, &c.Empty}, {s.door, costDeadline, &c.Hopeless}}
	switch s.door {
	case doorHTTP:
		rate = min(rate, int(2*capacity))
	case doorStream:
		loads, rate = slices.Insert(loads, 1, costLoad{doorTake, 0, &c.Take}), int(capacity)
	}
	for _, of := range loads {
		res, err := r.offer(ctx, generatorSettings{Segments: []segment{{Rate: rate, For: costFor}}, Door: of.door, Deadline: of.deadline, Connections: s.connections, FirstShare: evenShare})
		if err != nil {
			return nil, err
		}
		*of.us = o.each(res, res.Accepted+res.Refused)
		c.Refused = ratio(float64(res.Refused), float64(res.Accepted+res.Refused)) // of the last
		fmt.Fprintf(os.Stderr, "overload: %s: %.1f µs; accepted %d, refused %d, processed %d, undone %d, expired %d, timed out %d\n",
			of.door, *of.us, res.Accepted, res.Refused, res.Processed, res.Undone, res.Expired, res.TimedOut)
	}
	return c, nil
}

// point offers f times C until what is in the window is of nothing but that.
func (o *Overload) point(ctx context.Context, s *settings, r *rig, f, c float64) (*OverloadPoint, error) {
	onset, seconds := onsetDeadlines*s.deadline, time.Duration(orElse(s.seconds, overloadSeconds))*time.Second
	res, err := r.offer(ctx, generatorSettings{
		Segments: []segment{{Rate: int(f * c), For: onset + seconds}}, Window: span{onset, onset + seconds},
		Door: s.door, Connections: s.connections, Deadline: s.deadline, FirstShare: s.firstShare, Obey: s.obey,
	})
	if err != nil {
		return nil, err
	}
	p := &OverloadPoint{Factor: f, Before: c, Window: res.Window, Reasons: res.Reasons, GeneratorLate: res.GeneratorLate, DrainSeconds: res.DrainSeconds,
		Cores: res.cores(res.used.system()), StolenCores: res.StolenCores, GeneratorCores: res.cores(res.used.generator)}
	if res.stalled {
		p.Void = append(p.Void, "it did not drain")
	}
	fmt.Fprintf(os.Stderr, "overload: f %g: %d offered, %d refused, %d taken, %d in time, %d undone, %d expired in %.0f s; drained in %.1f s\n",
		f, res.Window.Offered, res.Window.Refused, res.Window.Taken, res.Window.InTime, res.Window.Undone, res.Window.Expired, res.Window.Seconds, res.DrainSeconds)
	return p, nil
}

// settle works out shares, ceilings, and which points count for nothing.
func (o *Overload) settle() {
	var task []float64
	for _, c := range o.Capacities {
		task = append(task, c.TaskUS)
	}
	o.Costs.settle(o.Door, task)
	for _, p := range o.Points {
		c := (p.Before + p.After) / 2
		p.Offered, p.InTime = ratio(float64(p.Window.Offered), p.Window.Seconds*c), ratio(float64(p.Window.InTime), p.Window.Seconds*c)
		p.Ceiling = o.Costs.ceiling(o.Door, p.Offered)
		p.InTimeOfCeil = ratio(p.InTime, p.Ceiling)
		if differ := ratio(math.Abs(p.After-p.Before), max(p.Before, p.After)); differ > differMax {
			p.Void = append(p.Void, fmt.Sprintf("C differs by %.0f %%", 100*differ))
		}
		if p.GeneratorLate.P99 > lateMax {
			p.Void = append(p.Void, fmt.Sprintf("the generator was late: p99 %.0f ms", p.GeneratorLate.P99))
		}
	}
}

// refusedAll is the share of hopeless submissions from which on the door is said to refuse them.
const refusedAll = 0.99

// settle works out the shares of a whole task's time.
func (c *OverloadCosts) settle(door string, task []float64) {
	for _, us := range task {
		c.Task += us / float64(len(task))
	}
	c.M = ratio(c.Take, c.Task)
	if door == doorStream {
		c.E = max(0, ratio(c.Hopeless, c.Task)-c.M)
		return
	}
	c.RBound = c.Refused < refusedAll
	c.R = ratio(c.Hopeless, c.Task)
	if c.RBound {
		c.R = ratio(c.Empty, c.Task)
	}
}

// ceiling is the share of C that can be processed in time when f times C is offered: at the stream endpoint, where T has m in
// it, each that is not processed costs m and e; elsewhere each that is over C costs r.
func (c *OverloadCosts) ceiling(door string, f float64) float64 {
	switch {
	case f <= 1:
		return f
	case door == doorStream && c.M+c.E < 1:
		return max(0, (1-f*(c.M+c.E))/(1-c.M-c.E))
	case door == doorStream: // what is lost costs more than what is done
		return 0
	}
	return max(0, 1-(f-1)*c.R)
}

// coresFull is the part of its core from which on CPU is what limits the system.
const coresFull = 0.85

// table writes a line for each factor.
func (o *Overload) table(out io.Writer) error {
	c := o.Costs
	fmt.Fprintf(out, "%s, %s wire, %s door, deadline %g s, window by completion %d s after %g s; one core for the system, one for the generator\n",
		storeWord(o.Store), o.Wire, o.Door, o.Deadline, o.windowSeconds(), onsetDeadlines*o.Deadline)
	refused := fmt.Sprintf("refused %.0f %%, the others expired", 100*c.Refused)
	fmt.Fprintf(out, "T %.0f µs at %.2f cores; an empty request %.1f, a submission with 1 ms %.1f (%s)\n", c.Task, o.Capacities[0].Cores, c.Empty, c.Hopeless, refused)
	switch {
	case o.Door == doorStream:
		fmt.Fprintf(out, "m %.1f %% of T (%.1f µs), e %.1f %%\n", 100*c.M, c.Take, 100*c.E)
	case c.RBound:
		fmt.Fprintf(out, "r at least %.1f %% of T, that of an empty request: this door does not refuse for want of time\n", 100*c.R)
	default:
		fmt.Fprintf(out, "r %.1f %% of T, %.2f times an empty request\n", 100*c.R, ratio(c.Hopeless, c.Empty))
	}
	if o.Capacities[0].Cores < coresFull {
		fmt.Fprintf(out, "at C the system uses %.2f of its core: CPU is not what limits it, and the ceilings say nothing\n", o.Capacities[0].Cores)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "f\tC before, after\toffered/s\trefused/s\ttimed out\ttaken/s\tin time/s\tof C\tceiling\tof it\tundone/s\texpired/s\tlate, error\tp50, p99 ms\tvoid")
	for _, p := range o.Points {
		v := p.Window
		per := func(n int) float64 { return ratio(float64(n), v.Seconds) }
		fmt.Fprintf(w, "%g\t%.0f, %.0f\t%.0f\t%.0f\t%d\t%.0f\t%.0f\t%.1f %%\t%.1f %%\t%.1f %%\t%.0f\t%.0f\t%d, %d\t%.0f, %.0f\t%s\n",
			p.Factor, p.Before, p.After, per(v.Offered), per(v.Refused), v.TimedOut, per(v.Taken), per(v.InTime), 100*p.InTime, 100*p.Ceiling, 100*p.InTimeOfCeil,
			per(v.Undone), per(v.Expired), v.Late, v.Error, v.EndToEnd.P50, v.EndToEnd.P99, strings.Join(p.Void, "; "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range o.Points {
		v := p.Window
		if o.Obey > 0 {
			fmt.Fprintf(out, "f %g: %d held back in the window; of %d that came again when told, %d were taken\n", p.Factor, v.HeldBack, v.CameAgain, v.TakenAgain)
		}
		if o.FirstShare != evenShare {
			fmt.Fprintf(out, "f %g: in time of the tenant with %g %% of the arrivals %.1f %%, of the others %.1f %%\n", p.Factor, o.FirstShare,
				100*ratio(float64(v.First.InTime), float64(v.First.Offered)), 100*ratio(float64(v.Others.InTime), float64(v.Others.Offered)))
		}
	}
	return nil
}

func (o *Overload) windowSeconds() int {
	if len(o.Points) == 0 {
		return 0
	}
	return int(o.Points[0].Window.Seconds)
}

// evenShare is what each tenant has of the arrivals when none has more.
const evenShare = 100.0 / tenants

// factorsOf reads factors, with commas between.
func factorsOf(text string) ([]float64, error) {
	var all []float64
	for _, one := range strings.Split(text, ",") {
		f, err := strconv.ParseFloat(strings.TrimSpace(one), 64)
		if err != nil || !(f > 0 && f <= 50) {
			return nil, fmt.Errorf("factors %q: want numbers over 0, 50 at most, with commas between", text)
		}
		all = append(all, f)
	}
	return all, nil
}
