package alerts

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// open makes incidents, as a sender finds them that begins.
func open(t *testing.T, s *settings) *incidents {
	t.Helper()
	i, err := loadIncidents(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// through takes an alert in and, if it is told, delivers it.
func through(i *incidents, a core.Alert) bool {
	told := i.take(&a)
	if told {
		i.done(&a)
	}
	return told
}

// TestOneBeginsOneEnds: what several nodes tell of one trouble is one beginning and one end; troubles of a node of its
// own, and of another resource, are others.
func TestOneBeginsOneEnds(t *testing.T) {
	i := open(t, newSettings())
	for n, step := range []struct {
		alert core.Alert
		told  bool
	}{
		{begins("n1", "partitions", "", true), true},
		{begins("n2", "partitions", "", true), false},
		{begins("n2", "partitions", "", true), false},
		{begins("n1", "streams", "A", true), true},
		{begins("n1", "streams", "B", true), true},
		{ends("n1", "partitions", "", true), false},
		{ends("n2", "partitions", "", true), true},
		{ends("n2", "partitions", "", true), false},
		{begins("n1", "partitions", "", true), true},
		{begins("n1", "database", "", false), true},
		{begins("n2", "database", "", false), true},
		{ends("n2", "database", "", false), true},
		{ends("n3", "database", "", false), false},
		{once("t1", "task-error"), true},
		{once("t2", "task-error"), true},
	} {
		if told := through(i, step.alert); told != step.told {
			t.Errorf("step %d, %s of %s by %s: told is %v", n, step.alert.Phase, step.alert.Name, step.alert.Node, told)
		}
	}
}

// TestDeliveryThatWasCutOff: an alert whose sender was killed before it was delivered is told by the next one, one that
// was delivered is not.
func TestDeliveryThatWasCutOff(t *testing.T) {
	s := newSettings()
	next := func(i *incidents) *incidents {
		document, err := i.document()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.PutSetting(t.Context(), stateName, document); err != nil {
			t.Fatal(err)
		}
		return open(t, s)
	}
	i := open(t, s)
	begin, end := begins("n1", "streams", "A", true), ends("n1", "streams", "A", true)
	if !i.take(&begin) {
		t.Error("not told")
	}
	i = next(i) // killed
	if !through(i, begin) {
		t.Error("what was not delivered is not told again")
	}
	i = next(i)
	if i.take(&begin) {
		t.Error("what was delivered is told again")
	}
	if !i.take(&end) {
		t.Error("the end is not told")
	}
	i = next(i)
	if !through(i, end) {
		t.Error("an end that was not delivered is not told again")
	}
	i = next(i)
	if i.take(&end) || len(i.open) != 0 {
		t.Errorf("an end that was delivered is told again, or kept: %v", i.open)
	}
}

// TestNodesThatAreGone: a trouble ends when no node is left that is in it, a minute after the last has gone; the end
// comes again until it is delivered.
func TestNodesThatAreGone(t *testing.T) {
	s := newSettings()
	i := open(t, s)
	for _, node := range []string{"n1", "n2"} {
		through(i, begins(node, "streams", "A", true))
	}
	at := time.Unix(1000, 0)
	for _, step := range []struct {
		live  []string
		after time.Duration
		ends  int
	}{{[]string{"n1", "n2"}, 0, 0}, {[]string{"n2"}, 0, 0}, {[]string{"n2"}, 2 * time.Minute, 0}, {nil, 0, 0}, {nil, 59 * time.Second, 0}, {nil, time.Second, 1}, {nil, time.Hour, 0}} {
		at = at.Add(step.after)
		got := i.sweep(step.live, at)
		if len(got) != step.ends {
			t.Fatalf("live %v after %v: %+v, want %d", step.live, step.after, got, step.ends)
		}
		for _, a := range got {
			if a.Phase != core.AlertEnds || a.Name != "streams" || a.ID == "" || a.ID == "b-streamsAn1" {
				t.Errorf("%+v", a)
			}
		}
	}
	document, err := i.document()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutSetting(t.Context(), stateName, document); err != nil {
		t.Fatal(err)
	}
	next := open(t, s)
	again := next.untold(at)
	if len(again) != 1 {
		t.Fatalf("%+v", again)
	}
	next.done(&again[0])
	if len(next.open) != 0 || len(next.untold(at)) != 0 {
		t.Error("an end that was delivered is kept")
	}
}

// TestIncidentsAreBounded: more troubles than are told apart are told all the same, and the document fits the store.
func TestIncidentsAreBounded(t *testing.T) {
	i := open(t, newSettings())
	long := string(slices.Repeat([]byte("x"), 300))
	for n := range 3 * incidentsMax {
		a := begins("n1", "streams", fmt.Sprint(n), true)
		a.Text, a.Error, a.Key = long, long, fmt.Sprint(n, long[:core.AlertAttrMax-4])
		if !i.take(&a) {
			t.Fatalf("%d is not told", n)
		}
		for node := range 20 {
			b := a
			b.Node = fmt.Sprint("node-", node)
			i.take(&b)
		}
	}
	document, err := i.document()
	if err != nil || len(i.open) != incidentsMax || len(document) > 64<<10 {
		t.Errorf("%d troubles, %d bytes, %v", len(i.open), len(document), err)
	}
	s := newSettings()
	if err := s.PutSetting(t.Context(), stateName, document); err != nil {
		t.Fatal(err)
	}
	if kept := len(open(t, s).open); kept < incidentsMax/3 {
		t.Errorf("%d troubles are kept", kept)
	}
}
