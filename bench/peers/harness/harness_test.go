package harness

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a library whose tasks take a fixed time.
type fake struct {
	takes  time.Duration
	refuse error
	forget int // this task never ends
	repeat int // the end of this one is reported twice

	mu       sync.Mutex
	ended    Ended
	inFlight int
	most     int
	seen     int
}

func (f *fake) Open(_ context.Context, _ string, ended Ended) error {
	f.ended = ended
	return nil
}

func (f *fake) Close(context.Context) error { return nil }

func (f *fake) Submit(_ context.Context, tasks []Task) error {
	if f.refuse != nil {
		return f.refuse
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range tasks {
		f.seen++
		f.inFlight++
		f.most = max(f.most, f.inFlight)
		if t.Number != f.forget {
			time.AfterFunc(f.takes, func() { f.end(t.Number) })
		}
	}
	return nil
}

func (f *fake) end(number int) {
	f.mu.Lock()
	f.inFlight--
	f.mu.Unlock()
	f.ended(number, nil)
	if number == f.repeat {
		f.ended(number, nil)
	}
}

// still is a meter of a machine on which nothing costs anything.
type still struct{}

func (still) settle(context.Context) error { return nil }

func (still) usage(context.Context) (usage, error) { return usage{at: time.Now()}, nil }

// run puts a fake to the work in time that passes at once.
func run(t *testing.T, f *fake, set Settings, batch int) *Result {
	t.Helper()
	set.Steps = 5
	l := newLoop(f, Spec{Batch: batch}, set)
	if err := f.Open(t.Context(), "", l.ended); err != nil {
		t.Fatal(err)
	}
	m, err := l.measure(t.Context(), still{})
	if err != nil {
		t.Fatal(err)
	}
	l.drain(t.Context())
	f.mu.Lock()
	defer f.mu.Unlock()
	complete := f.seen
	if f.forget != 0 {
		complete--
	}
	return l.result(m, books{known: f.seen, complete: complete})
}

func TestTheLoopIsClosed(t *testing.T) {
	for _, batch := range []int{1, 100} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{takes: 10 * time.Millisecond}
			r := run(t, f, Settings{Workers: 20, Seconds: 2, Warmup: 1}, batch)
			if f.most != 20 {
				t.Errorf("%d tasks were in flight, want 20", f.most)
			}
			if r.TasksPerS < 1950 || r.TasksPerS > 2050 || r.StepsPerS != 5*r.TasksPerS {
				t.Errorf("%v tasks/s and %v steps/s, want 2000 and five times that", r.TasksPerS, r.StepsPerS)
			}
			if r.EndToEnd.P50 != 10 || r.EndToEnd.Max != 10 || r.Submit.Max != 0 {
				t.Errorf("end to end %v, submit %v, want 10 ms and none", r.EndToEnd, r.Submit)
			}
			if r.Lost != 0 || r.Doubled != 0 || r.Error != 0 || r.Accepted != r.Processed || r.Seconds != 2 {
				t.Errorf("books of a run without loss: %+v", r)
			}
		})
	}
}

func TestTasksEndTheMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, &fake{takes: 10 * time.Millisecond}, Settings{Workers: 10, Seconds: 60, Tasks: 500}, 1)
		if r.Measured != 500 || r.Seconds > 0.6 {
			t.Errorf("%d tasks in %v s, want 500 in half a second", r.Measured, r.Seconds)
		}
	})
}

func TestWhatIsLostOrDoubledIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, &fake{takes: 10 * time.Millisecond, forget: 7}, Settings{Workers: 10, Seconds: 1}, 1)
		if r.Lost != 1 || r.Error == 0 {
			t.Errorf("%d lost and %d errors, want 1 and at least 1", r.Lost, r.Error)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := run(t, &fake{takes: 10 * time.Millisecond, repeat: 7}, Settings{Workers: 10, Seconds: 1}, 1)
		if r.Doubled != 1 || r.Lost != 0 {
			t.Errorf("%d doubled and %d lost, want 1 and 0", r.Doubled, r.Lost)
		}
	})
}

func TestARefusalIsAnErrorAndNoTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, &fake{refuse: errors.New("no room")}, Settings{Workers: 3, Seconds: 1}, 1)
		if r.Error != 3 || r.Accepted != 0 || r.Lost != 0 {
			t.Errorf("%d errors, %d accepted, %d lost; want one error for each submitter and nothing else", r.Error, r.Accepted, r.Lost)
		}
	})
}

func TestTheWorkHasTheAgreedSize(t *testing.T) {
	task := NewTask(123)
	order, err := json.Marshal(task.Order)
	if err != nil {
		t.Fatal(err)
	}
	result, err := json.Marshal(Step(task.Order, 3))
	if err != nil {
		t.Fatal(err)
	}
	if len(order) < 270 || len(order) > 370 || len(result) < 90 || len(result) > 110 {
		t.Errorf("an order has %d bytes and a result %d, want about 300 and 100", len(order), len(result))
	}
	if n, err := Number(task.Order.ID); n != 123 || err != nil {
		t.Errorf("%q is number %d, %v", task.Order.ID, n, err)
	}
	if _, err := Number("parcel-1"); err == nil {
		t.Error("a foreign name has a number")
	}
}

func TestQuantiles(t *testing.T) {
	var latencies []time.Duration
	for i := 1000; i > 0; i-- {
		latencies = append(latencies, time.Duration(i)*time.Millisecond)
	}
	if q := quantiles(latencies); q != (Quantiles{P50: 500, P99: 990, P999: 999, Max: 1000}) {
		t.Errorf("%+v", q)
	}
	if q := quantiles(nil); q != (Quantiles{}) {
		t.Errorf("of nothing: %+v", q)
	}
}

func TestFlags(t *testing.T) {
	spec := Spec{System: "some", Workers: func(steps int) int { return 10 * steps }}
	set, err := parse(spec, []string{"-steps", "3", "-dsn", "postgres://secret@here/db"})
	if err != nil || set.Workers != 30 || strings.Contains(set.Command, "secret") || !strings.Contains(set.Command, "-steps=3") {
		t.Errorf("%+v, %v", set, err)
	}
	for _, args := range [][]string{{"-steps", "0"}, {"-seconds", "0"}, {"-workers", "-1"}, {"more"}} {
		if _, err := parse(spec, args); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}

func TestProcessesAreRead(t *testing.T) {
	own, ok := readStat(os.Getpid())
	if !ok || own.parent != os.Getppid() || own.comm == "" {
		t.Errorf("%+v, %v; want the parent %d", own, ok, os.Getppid())
	}
	if _, ok := readStat(-1); ok {
		t.Error("there is a process -1")
	}
}

// TestDatabaseThatLosesIsRefused starts a cluster of its own, whose answers would
// be faster because they are not true.
func TestDatabaseThatLosesIsRefused(t *testing.T) {
	c := losingCluster(t)
	set := Settings{Steps: 1, Workers: 1, Seconds: 1, DSN: c}
	if _, err := Run(t.Context(), Spec{}, set, io.Discard); err == nil || !strings.Contains(err.Error(), "fsync") {
		t.Errorf("error %v, want one about fsync", err)
	}
}
