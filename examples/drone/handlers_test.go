package drone

import (
	"strings"
	"testing"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
)

// The three steps are safe to be called again, out of order and too late,
// without any ledger but the services' own; with services that can be called without
// waiting, and with such that cannot.
//
// covers: I1
func TestHandlersTwice(t *testing.T) {
	for _, waits := range []bool{false, true} {
		all := newServices(t, ServiceOptions{Seed: 1})
		w := NewWorkflow(QuickPlan())
		var backend Backend = all
		if waits {
			backend = struct{ Backend }{all}
		}
		agent, err := NewAgent(nil, w, backend)
		if err != nil {
			t.Fatal(err)
		}
		live := func(step Step) dulytest.Option {
			return dulytest.Effects(func(key string) int {
				task, _, _ := strings.Cut(key, "/")
				return all.Books().Entry(task, step).Live
			})
		}
		input := NewGenerator(1).Request(0)
		dulytest.RunTwice(t, agent, w.Package, input, live(StepPackage))
		dulytest.RunTwice(t, agent, w.Drone, input, live(StepDrone))
		dulytest.RunTwice(t, agent, w.Delivery, input, live(StepDelivery),
			dulytest.Earlier(w.Package, PackageReceipt{PackageID: "p"}),
			dulytest.Earlier(w.Drone, Assignment{DroneID: "drone-1f"}))
	}
}

func TestNewAgentNeedsAConnectionThatIsOpen(t *testing.T) {
	nc := startNATS(t)
	nc.Close()
	if _, err := NewAgent(nc, NewWorkflow(PlanOptions{}), newServices(t, ServiceOptions{})); err == nil {
		t.Error("an agent on a closed connection")
	}
}

func TestWorkflowTakesItsOptions(t *testing.T) {
	if v := NewWorkflow(PlanOptions{}).Plan.Version(); v != 1 {
		t.Errorf("version %d, want 1", v)
	}
	o := QuickPlan()
	o.Version, o.Attempts, o.TaskCompleteBy = 3, 5, o.CompleteBy*30
	if p := NewWorkflow(o).Plan; p.Version() != 3 || p.Name() != Type {
		t.Errorf("plan %s version %d", p.Name(), p.Version())
	}
	if n := len(o.options()); n != 5 {
		t.Errorf("%d options, want 5", n)
	}
	var _ duly.StepOf[Request] = NewWorkflow(o).Drone
}
