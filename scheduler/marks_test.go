package scheduler

import (
	"reflect"
	"testing"

	"duly.dev/duly/internal/core"
)

// TestRefusedMigrationLeavesMarks: a task that does not go on by another version of its plan has at its agents what it had, the
// calls that it has spent in this round among them: if its row is refused they come back.
func TestRefusedMigrationLeavesMarks(t *testing.T) {
	set := core.StepSetOf
	agent := &agentCalls{name: "bank", book: &agentBook{}}
	agent.out, agent.trialOut = 3, 2
	plans := [2]*planRef{{plan: &core.Plan{Version: 1}, stepsOf: stepsOf{agents: []*agentCalls{nil, agent}}}, {plan: &core.Plan{Version: 2}, stepsOf: stepsOf{agents: []*agentCalls{agent}}}}
	e := &entry{plan: plans[0], marks: marks{places: set(1), trial: set(1), noPlace: set(2), pausedRetries: set(3), heardAll: set(1)}}
	e.round.spent = set(1)
	was := *e
	had := e.replan(plans[1])
	if e.plan != plans[1] || !e.places.Empty() || !e.round.spent.Empty() || agent.out != 2 || agent.trialOut != 1 {
		t.Fatalf("by the other plan it has %+v, spent %v; at the agent %d are out, %d tried", e.marks, e.round.spent, agent.out, agent.trialOut)
	}
	e.planBack(had)
	if !reflect.DeepEqual(*e, was) || agent.out != 3 || agent.trialOut != 2 {
		t.Errorf("it has %+v, spent %v, had %+v, %v; at the agent %d are out, %d tried", e.marks, e.round.spent, was.marks, was.round.spent, agent.out, agent.trialOut)
	}
}
