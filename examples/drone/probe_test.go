package drone

import (
	"errors"
	"testing"

	"duly.dev/duly"
)

// TestProbe: a service says what became of a key, and an attempt that it has said to be absent makes no effect when it
// arrives after all; a later one does.
func TestProbe(t *testing.T) {
	all, err := NewServices(ServiceOptions{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	call := func(attempt int) Call { return Call{Task: "d-1", Key: "d-1/drone/0", Attempt: attempt} }
	probe := func(attempt int, want KeyState, serial uint32) {
		t.Helper()
		found, got, err := all.Probe(t.Context(), StepDrone, call(attempt))
		if err != nil || found != want || got != serial {
			t.Errorf("attempt %d: %d %d %v, want %d %d", attempt, found, got, err, want, serial)
		}
	}
	probe(2, KeyAbsent, 0)
	for _, late := range []int{1, 2} {
		if _, err := all.Do(t.Context(), StepDrone, call(late)); !errors.Is(err, ErrClosed) {
			t.Errorf("attempt %d, which was said to be absent: %v", late, err)
		}
	}
	serial, err := all.Do(t.Context(), StepDrone, call(3))
	if err != nil {
		t.Fatal(err)
	}
	probe(2, KeyDone, serial)
	probe(4, KeyDone, serial)
	if again, err := all.Do(t.Context(), StepDrone, call(1)); err != nil || again != serial {
		t.Errorf("a late attempt of an effect that stands: %d %v, want its answer %d", again, err, serial)
	}
	if err := all.Undo(t.Context(), StepDrone, call(1)); err != nil {
		t.Fatal(err)
	}
	probe(9, KeyAbsent, 0)
	if e := all.Books().Entry("d-1", StepDrone); e.Applied != 1 || e.Live != 0 {
		t.Errorf("%+v", e)
	}
	probe(attemptMost, KeyAbsent, 0)
	other := Call{Task: "d-2", Key: "d-2/drone/0", Attempt: attemptMost + 1}
	if found, _, err := all.Probe(t.Context(), StepDrone, other); err != nil || found != KeyInProgress {
		t.Errorf("an attempt that cannot be closed: %d %v", found, err)
	}
	if _, _, err := all.Probe(t.Context(), StepDrone, Call{Task: "d-2", Key: "d-3/drone/0"}); !errors.Is(err, ErrKey) {
		t.Errorf("another task's key: %v", err)
	}
}

// TestProbeWhileAtWork: a key that a call holds is in progress.
func TestProbeWhileAtWork(t *testing.T) {
	all, err := NewServices(ServiceOptions{Seed: 1, Scale: 1})
	if err != nil {
		t.Fatal(err)
	}
	in := Call{Task: "d-1", Key: "d-1/drone/0", Attempt: 1}
	c, err := all.Service(StepDrone).open(in, false)
	if err != nil || !c.enter() {
		t.Fatalf("the key is taken, %v", err)
	}
	if found, _, err := all.Probe(t.Context(), StepDrone, in); err != nil || found != KeyInProgress {
		t.Errorf("%d %v", found, err)
	}
	c.leave()
	if found, _, err := all.Probe(t.Context(), StepDrone, in); err != nil || found != KeyAbsent {
		t.Errorf("after it has left: %d %v", found, err)
	}
}

// TestAgentProbes: the agent of the deliveries answers probes of the three steps that have effects.
func TestAgentProbes(t *testing.T) {
	all, err := NewServices(ServiceOptions{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	flow := NewWorkflow(PlanOptions{})
	agent, err := duly.NewAgent(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := preparations{flow: flow}
	if err := errors.Join(serveProbe(agent, all, flow.Package, StepPackage, p.createPackage), serveProbe(agent, all, flow.Drone, StepDrone, p.scheduleDrone)); err != nil {
		t.Fatal(err)
	}
	if got := agent.Runtime().Probed(); len(got) != 2 || got[0] != agentDrone || got[1] != agentPackage {
		t.Errorf("probed %v", got)
	}
	if err := serveProbe(agent, struct{ Backend }{all}, flow.Delivery, StepDelivery, p.createDelivery); err != nil || len(agent.Runtime().Probed()) != 2 {
		t.Errorf("services that answer no probes: %v, probed %v", err, agent.Runtime().Probed())
	}
}
