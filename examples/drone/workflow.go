package drone

import (
	"context"
	"errors"
	"time"

	"duly.dev/duly"
)

// PlanOptions change the plan of a delivery. A zero field keeps Duly's default.
type PlanOptions struct {
	Version        int64         // 0 means 1; raise it when another field changes
	CompleteBy     time.Duration // of one call, do or undo
	TaskCompleteBy time.Duration // of the whole delivery
	QueueFor       time.Duration // its time counts from its turn, for which it may wait so long
	Grace          time.Duration // how long a call that was given up may still take effect
	Backoff        time.Duration // before the second attempt
	BackoffCap     time.Duration // of its doubling
	Attempts       int           // of each do
	Probes         bool          // services are asked what became of a call that was not answered
}

// QuickPlan is for demonstrations and tests with faults, in which a
// time-out of ten seconds would take too long.
func QuickPlan() PlanOptions {
	return PlanOptions{
		CompleteBy: time.Second,
		Grace:      250 * time.Millisecond,
		Backoff:    50 * time.Millisecond,
		BackoffCap: 500 * time.Millisecond,
		Probes:     true,
	}
}

// Workflow is the plan of a delivery and its typed steps, which both the
// submitter and the agents use: they cannot disagree about a type.
type Workflow struct {
	Account   *duly.Check[Request, AccountStatus]
	Package   *duly.Step[Request, PackageReceipt]
	Transport *duly.Check[Request, Transport]
	Drone     *duly.Step[Request, Assignment]
	Delivery  *duly.Step[Request, Confirmed]
	Plan      *duly.Plan[Request]

	Rescheduling *Rescheduling
}

// Apply stores the plans of a delivery and of its rescheduling.
func (w *Workflow) Apply(ctx context.Context, client *duly.Client) error {
	return errors.Join(w.Plan.Apply(ctx, client), w.Rescheduling.Plan.Apply(ctx, client))
}

// resultMax bounds each result; the largest holds three ids.
const resultMax = 1 << 10

// NewWorkflow defines the five steps in the order of the ingestion-and-workflow
// page.
func NewWorkflow(o PlanOptions) *Workflow {
	var (
		checks []duly.CheckOption
		steps  []duly.StepOption
	)
	for _, option := range o.options() {
		checks, steps = append(checks, option), append(steps, option)
	}
	if o.Probes { // not of a check: it leaves nothing that a service could look for
		steps = append(steps, duly.Probed())
	}
	w := &Workflow{
		Account:   duly.NewCheck[Request, AccountStatus](StepAccount.String(), "account.check", checks...),
		Package:   duly.NewStep[Request, PackageReceipt](StepPackage.String(), agentPackage, steps...),
		Transport: duly.NewCheck[Request, Transport](StepTransport.String(), "transport.check", checks...),
		Drone:     duly.NewStep[Request, Assignment](StepDrone.String(), agentDrone, steps...),
		Delivery:  duly.NewStep[Request, Confirmed](StepDelivery.String(), agentDelivery, steps...),

		Rescheduling: newRescheduling(o),
	}
	w.Plan = duly.NewPlan(Type, max(o.Version, 1), w.Account, w.Package, w.Transport, w.Drone, w.Delivery).
		With(duly.InputMax(BodyBytesMax))
	if o.TaskCompleteBy > 0 {
		w.Plan = w.Plan.With(duly.TaskCompleteBy(o.TaskCompleteBy))
	}
	if o.QueueFor > 0 {
		w.Plan = w.Plan.With(duly.QueueFor(o.QueueFor))
	}
	if o.Grace > 0 {
		w.Plan = w.Plan.With(duly.Grace(o.Grace))
	}
	return w
}

// options are those that every step shares.
func (o PlanOptions) options() []duly.Option {
	options := []duly.Option{duly.ResultMax(resultMax), duly.KeyLasts(2 * rescheduleBy)} // the services keep keys for ever
	if o.CompleteBy > 0 {
		options = append(options, duly.CompleteBy(o.CompleteBy))
	}
	if o.Backoff > 0 {
		options = append(options, duly.Backoff(o.Backoff, max(o.Backoff, o.BackoffCap)))
	}
	if o.Attempts > 0 {
		options = append(options, duly.Attempts(o.Attempts))
	}
	return options
}
