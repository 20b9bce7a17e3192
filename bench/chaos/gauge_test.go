package main

import (
	"strings"
	"testing"
	"time"

	"duly.dev/duly/examples/drone"
)

// A gauge counts distinct tasks, in all and of each key, and tells what is more than is allowed; calls of other tasks, of
// other steps and undos are none of its.
func TestGauge(t *testing.T) {
	var g gauge
	requests := make([]drone.Request, 4)
	for i, id := range []string{"a", "b", "c", "d"} {
		requests[i].DeliveryID, requests[i].OwnerID = id, []string{"north", "north", "south", "west"}[i]
	}
	enter := func(id string) (leave func()) {
		takes, leave := g.enter(&Ask{Step: boundedStep, Call: drone.Call{Task: id}})
		if takes != time.Second {
			t.Errorf("a call of %s takes %v", id, takes)
		}
		return leave
	}
	g.watch(requests, time.Second, atWork{2, 1})
	for _, ask := range []*Ask{
		{Step: boundedStep, Call: drone.Call{Task: "x"}}, {Step: boundedStep, Undo: true, Call: drone.Call{Task: "a"}}, {Step: drone.StepDrone, Call: drone.Call{Task: "a"}},
	} {
		if takes, leave := g.enter(ask); takes != 0 {
			t.Errorf("%+v is counted", ask)
		} else {
			leave()
		}
	}
	first, again, other := enter("a"), enter("a"), enter("c")
	if began, working := g.count(); began != 3 || working != 2 || len(g.over) != 0 || g.seen != (atWork{2, 1}) {
		t.Errorf("%d calls, %d at work, the most %+v, over: %q", began, working, g.seen, g.over)
	}
	first()
	one := enter("d") // a is at work once more still
	again()
	one()
	enter("b")()
	other()
	three, same := enter("a"), enter("b")
	three()
	same()
	over, seen := g.release()
	if len(over) != 2 || seen != (atWork{3, 2}) || !strings.Contains(over[0], "3 tasks are at work at one time, the limit is 2: a c d") || !strings.Contains(over[1], "2 tasks of key north are at work at one time, the limit is 1: a b") {
		t.Errorf("the most %+v, over: %q", seen, over)
	}
	for range 3 {
		for _, id := range []string{"a", "b", "c", "d"} {
			_ = enter(id) // it stays at work
		}
	}
	if over, seen := g.release(); len(over) != 2 || seen != (atWork{4, 2}) {
		t.Errorf("released: the most %+v, over: %q", seen, over)
	}
	if n := g.within(time.Now().Add(-time.Minute), time.Now().Add(time.Minute)); n != len(g.began) || n != 19 {
		t.Errorf("%d of %d calls within a minute", n, len(g.began))
	}
	g.watch(requests, time.Second, atWork{3, 0})
	if began, working := g.count(); began != 0 || working != 0 {
		t.Errorf("from nothing: %d calls, %d at work", began, working)
	}
	for _, id := range []string{"a", "b", "c"} {
		_ = enter(id) // it stays at work
	}
	if over, _ := g.release(); len(over) != 0 {
		t.Errorf("any number of a key: %q", over)
	}
}
