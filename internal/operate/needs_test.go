package operate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
)

var looked = time.Date(2026, 11, 29, 3, 0, 0, 0, time.UTC)

// TestNeedsByImpact: what holds tasks up comes before what has come of it, and of each what concerns the most tasks; of
// more than a screen has room for the largest are named, and the rest is counted.
//
// covers: O3
func TestNeedsByImpact(t *testing.T) {
	agents := []Agent{{Name: "a.gone", Gone: true, Waiting: Count{N: 1}}, {Name: "b.open", Instances: 1, Waiting: Count{N: 40}, Breaker: Breaker{State: core.BreakerOpen}}, {Name: "c.bound", Instances: 1, Waiting: Count{N: 300}},
		{Name: "d.busy", Instances: 1, Waiting: Count{N: 7}}, {Name: "y.retired", Gone: true}, {Name: "x.unannounced", Waiting: Count{N: 200}}, {Name: "z.gone", Gone: true, Waiting: Count{N: 1000}, Unserved: Count{N: 248}}}
	pauses := []PauseView{{Pause: Pause{ID: "p1", Agent: "x", Reason: "late"}, Waiting: Count{N: 3}}, {Pause: Pause{ID: "p2", Label: "tenant=a", Reason: "asked"}, Waiting: Count{N: 51}}}
	limits := []Limit{{Agent: "c.bound", Concurrent: 5, Wanted: 305}, {Agent: "d.busy", Concurrent: 50, Wanted: 20}, {Agent: "a.gone", Rate: 1}, {Agent: "x.unannounced", Rate: 5}}
	var groups []Group
	for i, n := range []int64{2000, 500, 80, 6, 2} {
		groups = append(groups, Group{ID: fmt.Sprint("g", i), Tasks: Count{N: n}})
	}
	needs := slices.Concat(
		ErrorNeeds(looked, Groups{Groups: groups, All: Count{N: 7}, Tasks: Count{N: 2590}}),
		AnswerNeeds(looked, 5*time.Minute, &Signals{Tasks: Count{N: 1}, Next: []OpenSignal{{Type: "trip", ID: "t", Steps: []string{"ok"}}}}),
		OperationNeeds(looked, []Operation{{ID: "op", State: OperationPaused, Tally: Tally{Waiting: 10}}, {ID: "runs", State: OperationRunning}}),
		DeadlineNeeds(looked, 5*time.Minute, make([]core.View, 1000), true),
		FlowNeeds(looked, agents, pauses, limits), TroubleNeeds(looked, []Trouble{{Name: "nats", Text: "there is no connection"}}))
	SortNeeds(needs)
	var got []string
	for i := range needs {
		n := &needs[i]
		line := n.Title
		if len(n.Lines) > 0 {
			line += " | " + n.Lines[0].ID
		}
		if rest := n.Rest(); rest != "" {
			line += " | " + rest
		}
		got = append(got, line)
	}
	want := []string{
		"This node: nats | nats",
		"2 agents gone: 1,249 tasks wait | z.gone",
		"2 limits reached: 500 tasks wait | c.bound",
		"2 pauses in force: ≥ 51 tasks held | p2",
		"1 breaker open: 40 tasks wait | b.open",
		"2,590 tasks in error, in 7 groups | g0 | 2 more, with 2 tasks",
		"≥ 1,000 tasks within 5 min of the deadline | / | ≥ 995 more",
		"1 operation on hold: 10 tasks not started yet | op",
		"1 task waiting for an answer: none of them has to be answered within 5 min | trip/t",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// TestNeedsAddUp: whatever there is, what is named and what is left out are together what the title says, and nothing that
// is left out is larger than what is named.
//
// covers: O3
func TestNeedsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		waiting := rapid.SliceOfN(rapid.Int64Range(1, 20_000), 0, 40).Draw(t, "waiting")
		var agents []Agent
		largest, sum := int64(0), int64(0)
		for i, n := range waiting {
			agents = append(agents, Agent{Name: fmt.Sprint("a", i), Gone: true, Waiting: Count{N: n}})
			largest, sum = max(largest, n), sum+n
		}
		for _, n := range FlowNeeds(looked, agents, nil, nil) {
			named := Count{}
			for i, l := range n.Lines {
				if named = named.Add(l.Tasks); i > 0 && l.Tasks.N > n.Lines[i-1].Tasks.N {
					t.Fatalf("%v above %v", n.Lines[i-1], l)
				}
			}
			if n.Tasks.N != sum || named.Add(n.MoreTasks) != n.Tasks || int64(len(n.Lines))+n.More.N != int64(len(waiting)) || n.Lines[0].Tasks.N != largest {
				t.Fatalf("%+v of %v", n, waiting)
			}
		}
	})
}

// TestRanked: the groups of a page stand with errors first, and of each state the largest.
//
// covers: O3
func TestRanked(t *testing.T) {
	page := Groups{Groups: []Group{
		{ID: "u1", GroupKey: GroupKey{State: core.StateUndone}, Tasks: Count{N: 57}}, {ID: "e1", GroupKey: GroupKey{State: core.StateError}, Tasks: Count{N: 3}},
		{ID: "u2", GroupKey: GroupKey{State: core.StateUndone}, Tasks: Count{N: 500}}, {ID: "e2", GroupKey: GroupKey{State: core.StateError}, Tasks: Count{N: 3}},
		{ID: "e3", GroupKey: GroupKey{State: core.StateError}, Tasks: Count{N: 250}},
	}}
	got := ""
	for _, g := range page.Ranked() {
		got += g.ID + " "
	}
	if got != "e3 e1 e2 u2 u1 " || page.Groups[0].ID != "u1" {
		t.Error(got)
	}
}

// TestNeedNotes: what a time says fits before a date and before "in 5 min", and is not said without a time.
//
// covers: O3
func TestNeedNotes(t *testing.T) {
	needs := FlowNeeds(looked, []Agent{{Name: "a", Gone: true, Waiting: Count{N: 1}}}, []PauseView{{Pause: Pause{ID: "p", Until: looked.Add(time.Hour)}}}, nil)
	if len(needs) != 2 || needs[0].Lines[0].Note != "" || needs[1].Lines[0].Note != "ends" {
		t.Errorf("%+v", needs)
	}
}

// TestCounted: effects that do not agree are no tasks, and have no 0 before them; a line without tasks has one beside others.
func TestCounted(t *testing.T) {
	some, none := NeedLine{Text: "a", Tasks: Count{N: 2}}, NeedLine{Text: "b"}
	for want, n := range map[bool]*Need{true: {Kind: NeedErrors, Lines: []NeedLine{some, none}}, false: {Kind: "books", Lines: []NeedLine{none}}} {
		if n.Counted() != want {
			t.Errorf("%s: %t", n.Kind, !want)
		}
	}
	if (&Need{Kind: NeedDeadlines, Lines: []NeedLine{some}}).Counted() {
		t.Error("a line is one task")
	}
}
