package node

import (
	"context"
	"sync"

	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/repair"
	"duly.dev/duly/supervisor"
)

// condOperations is that the leader runs the operations over many tasks.
const condOperations = "operations"

func operationsCondition() ground.Condition {
	return ground.Condition{
		Name: condOperations,
	}
}

// repairConfig is how operations work here. It has a cache of expressions of its own.
func (n *Node) repairConfig() repair.Config {
	return repair.Config{Now: n.clock.time, CheckInput: n.schemas.input, CheckSignal: n.schemas.signal, Evaluate: new(expr.Cache).Bind}
}

// repairs are the actions on many tasks. agents may be nil: then a rehearsal does not know which agents are away.
func (n *Node) repairs(agents repair.Agents) *repair.Service {
	holds := repair.NewHolds(n.store, agents, n.clock.time)
	return repair.NewService(n.repairConfig(), n.store, n.desk(), n.store, holds, n.store, n.log)
}

var _ operate.Operations = (*repair.Service)(nil)

// runRepairs runs operations while the supervisor of this node leads, and returns what ends that and waits for its end.
func (n *Node) runRepairs(ctx context.Context, sup *supervisor.Runner) (end func()) {
	report := func(err error) { n.report(condOperations, err) }
	r := repair.NewRunner(n.repairConfig(), n.store, controls{n.conn}, n.desk(), supervises{sup}, repairLoad{n}, report, n.log)
	return begin(ctx, func(ctx context.Context) { _ = r.Run(ctx) })
}

// begin runs something; end ends it and waits for that.
func begin(ctx context.Context, run func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { run(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// supervises is repair.Leader: operations run where the supervisor leads.
type supervises struct{ runner *supervisor.Runner }

// Leads implements repair.Leader.
func (s supervises) Leads() bool { return s.runner.Last().Held }

// repairLoad is repair.Load of this node's scheduler, if it has that role.
type repairLoad struct{ n *Node }

// Overloaded implements repair.Load.
func (l repairLoad) Overloaded() bool { return l.n.overloaded() }
