package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/forecast"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

const (
	forecastSample = 1000            // unfinished tasks that are looked at, however many there are
	forecastFor    = 5 * time.Second // how long one reading serves all who ask
	forecastPlans  = 50              // plan versions that are told
)

// forecastRead is the newest forecast.
type forecastRead struct {
	mu   sync.Mutex
	at   time.Time
	last operate.Forecast
}

// Forecast implements operate.Forecaster. Those who ask while it is read wait for it.
func (n *Node) Forecast(ctx context.Context) (operate.Forecast, error) {
	f := n.forecasts
	f.read.mu.Lock()
	defer f.read.mu.Unlock()
	now := n.clock.time()
	if age := now.Sub(f.read.at); age >= 0 && age < forecastFor {
		return f.read.last, nil
	}
	h, err := n.holding(ctx, core.InstantOf(now))
	if err != nil {
		return operate.Forecast{}, fmt.Errorf("forecast: what holds tasks: %w", err)
	}
	sample, err := f.store.OpenTasks(ctx, forecastSample)
	if err != nil {
		return operate.Forecast{}, fmt.Errorf("forecast: %w", err)
	}
	f.read.last = f.aggregate(&sample, h)
	f.read.at = now
	return f.read.last, nil
}

// Counts counts all tasks by type and state.
func (n *Node) Counts(ctx context.Context) ([]core.Count, error) { return n.store.Counts(ctx) }

// planStanding adds up the tasks of one plan version.
type planStanding struct {
	plan  *core.Plan
	told  operate.PlanForecast
	steps map[int]*sums // by the first step that is not over; -1: it is undone already
	tasks sums
}

// sums are of the tasks of a plan, or of one of its steps.
type sums struct {
	tasks, known, make float64
	held               map[string]float64 // of a step: tasks by what holds them
}

// aggregate works out the forecast of a sample.
func (f *forecasts) aggregate(sample *operate.OpenSample, h *holding) operate.Forecast {
	all := operate.Forecast{At: h.now.Time(), Tasks: operate.Count{N: sample.All, AtLeast: sample.More}, Sampled: len(sample.Tasks), Plans: []operate.PlanForecast{}}
	plans := map[forecast.Key]*planStanding{}
	for i := range sample.Tasks {
		t := &sample.Tasks[i]
		k := forecast.Key{Type: t.Type, Version: t.PlanVersion}
		s := plans[k]
		if s == nil {
			s = &planStanding{plan: h.planOf(t.Type, t.PlanVersion), told: operate.PlanForecast{Type: t.Type, Version: t.PlanVersion}, steps: map[int]*sums{}}
			plans[k] = s
		}
		s.add(f.outlookOf(s.plan, t, h), t.Weight)
	}
	standings := slices.SortedFunc(maps.Values(plans), func(a, b *planStanding) int {
		return cmp.Or(cmp.Compare(b.tasks.known-b.tasks.make, a.tasks.known-a.tasks.make), cmp.Compare(b.tasks.tasks, a.tasks.tasks),
			cmp.Compare(a.told.Type, b.told.Type), cmp.Compare(a.told.Version, b.told.Version))
	})
	all.More = len(standings) > forecastPlans || int64(len(sample.Tasks)) < sample.All || sample.More
	for _, s := range standings[:min(len(standings), forecastPlans)] {
		f.finish(s, h.now)
		all.Plans = append(all.Plans, s.told)
	}
	all.Calibration = calibration(f.book.Calibration())
	return all
}

// add counts a task in that stands for so many.
func (s *planStanding) add(o outlook, weight float64) {
	step := s.steps[o.at]
	if step == nil {
		step = &sums{held: map[string]float64{}}
		s.steps[o.at] = step
	}
	for _, sum := range []*sums{step, &s.tasks} {
		sum.tasks += weight
		if o.known {
			sum.known += weight
			sum.make += weight * o.chance
		}
	}
	if o.held != "" {
		step.held[o.held] += weight
	}
}

// holds is what holds the most tasks, with their number where it is not all of them; empty: nothing does.
func (s *sums) holds() (why string) {
	for _, is := range slices.Sorted(maps.Keys(s.held)) {
		if why == "" || s.held[is] > s.held[why] {
			why = is
		}
	}
	if of := int64(math.Round(s.held[why])); why != "" && of < int64(math.Round(s.tasks)) {
		return say.Of("held.some", "why", why, "n", of)
	}
	return why
}

// told are the figures of the sums. The chance is nil where it is known of none.
func (s *sums) told() (tasks, unknown int64, chance *float64) {
	whole := func(x float64) int64 { return int64(math.Round(x)) }
	if s.known > 0 {
		chance = new(s.make / s.known)
	}
	return whole(s.tasks), whole(s.tasks - s.known), chance
}

// progressOf is how far a task of the sample is, which of its steps have a command out, and the first that is not over.
func progressOf(plan *core.Plan, t *operate.OpenTask, now core.Instant) (all []forecast.Progress, running core.StepSet, first int) {
	var out core.StepBuilder
	all = make([]forecast.Progress, len(plan.Steps))
	for _, s := range t.Steps {
		if s.Step >= len(all) {
			continue
		}
		is := &all[s.Step]
		switch s.Status {
		case core.StepDone, core.StepSkipped:
			is.Over = true
		default:
			if s.Status == core.StepRunning {
				out.Add(s.Step)
			}
			if is.Begun = s.Began != 0; is.Begun {
				is.For = max(0, now.Sub(s.Began))
			}
			if plan.Steps[s.Step].Kind == core.WaitStep && s.Due != 0 {
				is.Known = max(s.Due.Sub(now), time.Microsecond)
			}
		}
	}
	for i := range all {
		if !all[i].Over {
			return all, out.Set(), i
		}
	}
	return all, out.Set(), -1
}

// finish writes the sums down.
func (f *forecasts) finish(s *planStanding, now core.Instant) {
	told := &s.told
	told.Tasks, told.Unknown, told.Chance = s.tasks.told()
	told.Steps = []operate.StepForecast{}
	for at, sum := range s.steps {
		step := operate.StepForecast{Held: sum.holds()}
		step.Tasks, step.Unknown, step.Chance = sum.told()
		if at >= 0 {
			step.Step = s.plan.Steps[at].Name
		}
		told.Steps = append(told.Steps, step)
	}
	order := func(name string) int {
		if s.plan == nil || name == "" {
			return core.StepsMax
		}
		return s.plan.StepIndex(name)
	}
	slices.SortFunc(told.Steps, func(a, b operate.StepForecast) int { return cmp.Compare(order(a.Step), order(b.Step)) })
	if s.plan == nil {
		return
	}
	for q, ms := range map[float64]*float64{0.5: &told.P50MS, admissionQuantile: &told.P95MS} {
		if d, _, known := f.book.Needs(s.plan, q, now); known {
			*ms = float64(d) / float64(time.Millisecond)
		}
	}
}

func calibration(bins [forecast.Bins]forecast.Bin) []operate.CalibrationBin {
	all := []operate.CalibrationBin{}
	for i, b := range bins {
		if b.N > 0 {
			all = append(all, operate.CalibrationBin{From: float64(i) / forecast.Bins, To: float64(i+1) / forecast.Bins,
				Said: b.Said / float64(b.N), Made: float64(b.Made) / float64(b.N), Tasks: b.N})
		}
	}
	return all
}
