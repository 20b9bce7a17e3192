package node

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/forecast"
	"duly.dev/duly/internal/operate"
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
	sample, err := f.store.OpenTasks(ctx, forecastSample)
	if err != nil {
		return operate.Forecast{}, fmt.Errorf("forecast: %w", err)
	}
	f.read.last = f.aggregate(&sample, n.plans.Plan, core.InstantOf(now))
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

type sums struct{ tasks, unknown, known, miss float64 }

// aggregate works out the forecast of a sample.
func (f *forecasts) aggregate(sample *operate.OpenSample, planOf func(string, int64) *core.Plan, now core.Instant) operate.Forecast {
	all := operate.Forecast{At: now.Time(), Tasks: operate.Count{N: sample.All, AtLeast: sample.More}, Sampled: len(sample.Tasks), Plans: []operate.PlanForecast{}}
	plans := map[forecast.Key]*planStanding{}
	for i := range sample.Tasks {
		t := &sample.Tasks[i]
		k := forecast.Key{Type: t.Type, Version: t.PlanVersion}
		s := plans[k]
		if s == nil {
			s = &planStanding{plan: planOf(t.Type, t.PlanVersion), told: operate.PlanForecast{Type: t.Type, Version: t.PlanVersion}, steps: map[int]*sums{}}
			plans[k] = s
		}
		s.add(f.book, t, now)
	}
	for _, s := range plans {
		all.Plans = append(all.Plans, s.told)
		f.finish(s, &all.Plans[len(all.Plans)-1], now)
	}
	slices.SortFunc(all.Plans, func(a, b operate.PlanForecast) int {
		return cmp.Or(cmp.Compare(b.Miss, a.Miss), cmp.Compare(b.Tasks, a.Tasks), cmp.Compare(a.Type, b.Type), cmp.Compare(b.Version, a.Version))
	})
	all.Plans = all.Plans[:min(len(all.Plans), forecastPlans)]
	all.Calibration = calibration(f.book.Calibration())
	return all
}

// add counts a task in.
func (s *planStanding) add(b *forecast.Book, t *operate.OpenTask, now core.Instant) {
	at, chance, known := -1, 0.0, true
	if t.State != core.StateUndoing && s.plan != nil {
		var progress []forecast.Progress
		progress, at = progressOf(s.plan, t, now)
		chance, known = b.Chance(s.plan, progress, t.Deadline.Sub(now), now)
	}
	step := s.steps[at]
	if step == nil {
		step = &sums{}
		s.steps[at] = step
	}
	for _, sum := range []*sums{step, &s.tasks} {
		sum.tasks += t.Weight
		if known {
			sum.known += t.Weight
			sum.miss += t.Weight * (1 - chance)
		} else {
			sum.unknown += t.Weight
		}
	}
}

// progressOf is how far a task of the sample is, and its first step that is not over.
func progressOf(plan *core.Plan, t *operate.OpenTask, now core.Instant) (all []forecast.Progress, first int) {
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
			return all, i
		}
	}
	return all, -1
}

// finish writes the sums down.
func (f *forecasts) finish(s *planStanding, told *operate.PlanForecast, now core.Instant) {
	whole := func(x float64) int64 { return int64(math.Round(x)) }
	told.Tasks, told.Unknown, told.Miss = whole(s.tasks.tasks), whole(s.tasks.unknown), s.tasks.miss
	told.Steps = []operate.StepForecast{}
	for at, sum := range s.steps {
		step := operate.StepForecast{Tasks: whole(sum.tasks), Miss: sum.miss}
		if at >= 0 {
			step.Step = s.plan.Steps[at].Name
		}
		if sum.known > 0 {
			step.Chance = 1 - sum.miss/sum.known
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
