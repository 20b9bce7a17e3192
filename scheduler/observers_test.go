package scheduler_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// seeing is an observer that tells what it sees.
type seeing struct {
	name    string
	do      func() error // instead
	commits chan []string
	reports chan string // of all observers of the set
}

func newSeeing(name string, do func() error) *seeing {
	return &seeing{name: name, do: do, commits: make(chan []string, 4096), reports: make(chan string, 4096)}
}

// of is a set with this observer and others.
func (s *seeing) of(t *testing.T, others ...*seeing) *scheduler.Observers {
	all := scheduler.NewObservers(slog.New(slog.DiscardHandler), func(name string, err error) {
		s.reports <- fmt.Sprintf("%s: %v", name, err)
	})
	for _, o := range append(others, s) {
		t.Cleanup(all.Add(o))
	}
	return all
}

func (s *seeing) Name() string { return s.name }

func (s *seeing) Committed(c *scheduler.Committed) error {
	var lines []string
	for plan, w := range c.All() {
		var kinds []string
		for i := range w.Records {
			kinds = append(kinds, string(w.Records[i].Kind))
		}
		lines = append(lines, fmt.Sprintf("%s of %s: %s, born %v", w.Task.ID, plan.Name, strings.Join(kinds, " "), w.Birth))
	}
	if s.do != nil {
		if err := s.do(); err != nil {
			return err
		}
	}
	s.commits <- lines
	return nil
}

// TestObserversSeeTheSame: every observer gets the same list, also of a task that has changed since, and one that panics is
// called no more, which is told once; commits and the others go on.
//
// covers: L5
func TestObserversSeeTheSame(t *testing.T) {
	calls := 0
	first, broken, last := newSeeing("first", nil), newSeeing("broken", func() error { calls++; panic("index out of range") }), newSeeing("last", nil)
	all := last.of(t, first, broken)
	r := newRig(t, scheduler.Config{Observers: all})
	r.tasks(0, order("t1"))
	r.cycle()
	if told := <-last.reports; told != "broken: broken is switched off until this node is started again: it panicked: index out of range" {
		t.Errorf("told %q", told)
	}
	r.answer(r.bus.take()[0], 0)
	r.cycle()
	want := [][]string{{"t1 of order: submitted, born true"}, {"t1 of order: done, born false"}}
	for _, o := range []*seeing{first, last} {
		for _, w := range want {
			if got := <-o.commits; !slices.Equal(got, w) {
				t.Errorf("%s sees %q, want %q", o.name, got, w)
			}
		}
	}
	all.Guard("broken", func() { t.Error("what is switched off is called") })
	if calls != 1 || len(last.reports) != 0 {
		t.Errorf("called %d times, %d further reports", calls, len(last.reports))
	}
	r.state("t1", core.StateProcessing)
}

// TestObserverHangs: commits do not wait for an observer that hangs. What it misses is counted and told, and that it has
// caught up.
//
// covers: L5
func TestObserverHangs(t *testing.T) {
	var hangs = make(chan struct{})
	slow, quick := newSeeing("slow", func() error { <-hangs; return nil }), newSeeing("quick", nil)
	r := newRig(t, scheduler.Config{Observers: quick.of(t, slow)})
	const commits = 600
	for i := range commits {
		r.tasks(0, order(fmt.Sprint("t", i)))
		r.cycle()
		<-quick.commits
	}
	if told := <-quick.reports; told != "slow: slow does not keep up with the commits: 1 were left out so far" {
		t.Errorf("told %q", told)
	}
	close(hangs)
	for told := ""; told != "slow: <nil>"; {
		told = <-quick.reports
	}
	if n := len(slow.commits); n == 0 || n >= commits {
		t.Errorf("it has seen %d of %d commits", n, commits)
	}
}

// TestObserverFails: an error is told, and that it is over; commits go on.
//
// covers: L5
func TestObserverFails(t *testing.T) {
	fail := errors.New("no room")
	o := newSeeing("o", nil)
	o.do = func() error { err := fail; fail = nil; return err }
	r := newRig(t, scheduler.Config{Observers: o.of(t)})
	for i, want := range []string{"o: o: no room", "o: <nil>"} {
		r.tasks(0, order(fmt.Sprint("t", i)))
		r.cycle()
		if told := <-o.reports; told != want {
			t.Errorf("told %q, want %q", told, want)
		}
	}
}

// TestObserverSeesWhatIsStored: a row that the database refuses is shown to none.
//
// covers: L5
func TestObserverSeesWhatIsStored(t *testing.T) {
	o := newSeeing("o", nil)
	r := newRig(t, scheduler.Config{Observers: o.of(t)})
	r.tasks(0, order("t1"))
	r.cycle()
	r.store.RefuseRow = func(w *core.TaskWrite) bool { return w.Task.ID == "t1" && w.Records[0].Kind == core.KindDone }
	r.answer(r.one(), 0)
	r.cycle()
	r.state("t1", core.StateError)
	r.tasks(0, order("t2"))
	r.cycle()
	for {
		got := <-o.commits
		if slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, "done") }) {
			t.Errorf("it sees %q", got)
		}
		if slices.Contains(got, "t2 of order: submitted, born true") {
			return
		}
	}
}

// TestObserverThatKeepsUpSeesAll: what it has seen does not count as waiting, however large it was.
//
// covers: L5
func TestObserverThatKeepsUpSeesAll(t *testing.T) {
	o := newSeeing("o", nil)
	r := newRig(t, scheduler.Config{Observers: o.of(t)})
	large := []byte(`"` + strings.Repeat("x", core.InputBytesMax-2) + `"`)
	for i := range 2 + 2*core.BatchBytesMax/core.InputBytesMax {
		id := fmt.Sprint("t", i)
		r.tasks(0, core.Submission{Type: "order", ID: id, Input: large})
		r.cycle()
		select {
		case got := <-o.commits:
			if !slices.Equal(got, []string{id + " of order: submitted, born true"}) {
				t.Fatalf("%q", got)
			}
		case told := <-o.reports:
			t.Fatalf("told %q", told)
		}
	}
}

// TestObserverThatHasCaughtUpSeesAll: what it missed does not count as waiting for it.
//
// covers: L5
func TestObserverThatHasCaughtUpSeesAll(t *testing.T) {
	hangs := make(chan struct{})
	slow := newSeeing("slow", func() error { <-hangs; return nil })
	r := newRig(t, scheduler.Config{Observers: slow.of(t)})
	large := []byte(`"` + strings.Repeat("x", core.InputBytesMax-2) + `"`)
	for i := range 4 * core.BatchBytesMax / core.InputBytesMax {
		r.tasks(0, core.Submission{Type: "order", ID: fmt.Sprint("t", i), Input: large})
		r.cycle()
	}
	close(hangs)
	for told := ""; told != "slow: <nil>"; {
		told = <-slow.reports
	}
	r.tasks(0, order("last"))
	r.cycle()
	for {
		select {
		case got := <-slow.commits:
			if slices.Equal(got, []string{"last of order: submitted, born true"}) {
				return
			}
		case told := <-slow.reports:
			t.Fatalf("told %q", told)
		}
	}
}
