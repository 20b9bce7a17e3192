package drone

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
)

// Backend is what the agents call: Services in the same process, or services
// elsewhere, whose books outlive an agent that is killed. Errors are those of
// Service.
type Backend interface {
	Do(ctx context.Context, step Step, in Call) (serial uint32, err error)
	Undo(ctx context.Context, step Step, in Call) error
}

// Do implements Backend; see Service.Do.
func (s *Services) Do(ctx context.Context, step Step, in Call) (serial uint32, err error) {
	return s.each[step].Do(ctx, in)
}

// Undo implements Backend; see Service.Undo.
func (s *Services) Undo(ctx context.Context, step Step, in Call) error {
	return s.each[step].Undo(ctx, in)
}

// AsyncBackend is a Backend that can do without a goroutine that waits for it:
// done is called once, from any goroutine, with what Do or Undo would return.
type AsyncBackend interface {
	Backend
	Start(ctx context.Context, step Step, in Call, undo bool, done func(serial uint32, err error))
}

// Start implements AsyncBackend; see Service.Start.
func (s *Services) Start(ctx context.Context, step Step, in Call, undo bool, done func(serial uint32, err error)) {
	s.each[step].Start(ctx, in, undo, done)
}

// NewAgent returns an agent that performs all five steps with the services. Its
// Run blocks until its context ends, and then finishes what is in hand. Options
// are the root package's: duly.Running bounds the calls at work per agent name.
// Where the services are an AsyncBackend its calls have no goroutine each.
func NewAgent(nc *nats.Conn, w *Workflow, s Backend, options ...duly.AgentOption) (*duly.Agent, error) {
	a, err := duly.NewAgent(nc, options...)
	if err != nil {
		return nil, fmt.Errorf("agent of the deliveries: %w", err)
	}
	p := preparations{flow: w}
	err = errors.Join(
		serveCheck(a, s, w.Account, StepAccount, p.account),
		serveStep(a, s, w.Package, StepPackage, p.createPackage),
		serveCheck(a, s, w.Transport, StepTransport, p.transport),
		serveStep(a, s, w.Drone, StepDrone, p.scheduleDrone),
		serveStep(a, s, w.Delivery, StepDelivery, p.createDelivery),
		serveProbe(a, s, w.Package, StepPackage, p.createPackage),
		serveProbe(a, s, w.Drone, StepDrone, p.scheduleDrone),
		serveProbe(a, s, w.Delivery, StepDelivery, p.createDelivery),
	)
	if err != nil {
		return nil, fmt.Errorf("agent of the deliveries: %w", err)
	}
	return a, nil
}

// serveCheck lets the agent perform a check with the services.
func serveCheck[Out any](a *duly.Agent, s Backend, check *duly.Check[Request, Out], step Step, prepare preparation[Out]) error {
	if async, ok := s.(AsyncBackend); ok {
		return check.ServeAsync(a, start(async, step, prepare))
	}
	return check.Serve(a, do(s, step, prepare))
}

// serveStep lets the agent perform a step with the services. It is undone by its key
// alone: whether do answered, and what, is of no matter.
func serveStep[Out any](a *duly.Agent, s Backend, of *duly.Step[Request, Out], step Step, prepare preparation[Out]) error {
	if async, ok := s.(AsyncBackend); ok {
		return of.ServeAsync(a, start(async, step, prepare), func(ctx context.Context, u duly.Undo[Request, Out], done func(error)) {
			async.Start(ctx, step, callFor(&u.Call, 0), true, func(_ uint32, err error) { done(answerOf(err)) })
		})
	}
	return of.Serve(a, do(s, step, prepare), func(ctx context.Context, u duly.Undo[Request, Out]) error {
		return answerOf(s.Undo(ctx, step, callFor(&u.Call, 0)))
	})
}

// do calls one service under the key of the step, so that a repeated command is
// one effect.
func do[Out any](s Backend, step Step, prepare preparation[Out]) func(context.Context, duly.Call[Request]) (Out, error) {
	return func(ctx context.Context, c duly.Call[Request]) (out Out, err error) {
		w, err := prepare(&c)
		if err != nil {
			return out, err
		}
		serial, err := s.Do(ctx, step, callFor(&c, w.given))
		if err != nil {
			return out, answerOf(err)
		}
		return w.made(serial), nil
	}
}

// start is do without waiting for the service.
func start[Out any](s AsyncBackend, step Step, prepare preparation[Out]) func(context.Context, duly.Call[Request], func(Out, error)) {
	return func(ctx context.Context, c duly.Call[Request], done func(Out, error)) {
		var none Out
		w, err := prepare(&c)
		if err != nil {
			done(none, err)
			return
		}
		s.Start(ctx, step, callFor(&c, w.given), false, func(serial uint32, err error) {
			if err != nil {
				done(none, answerOf(err))
				return
			}
			done(w.made(serial), nil)
		})
	}
}

func callFor(c *duly.Call[Request], given uint32) Call {
	return Call{Task: c.Task, Key: c.Key, Attempt: c.Attempt, Given: given}
}

// preparation reads from a call what its service is asked for, and what is answered.
type preparation[Out any] func(c *duly.Call[Request]) (work[Out], error)

// work is one call of a service.
type work[Out any] struct {
	given uint32                  // as of Call
	made  func(serial uint32) Out // the step's result, of what the service made
}

// preparations are the five agents. They keep nothing between calls: what a step
// needs of an earlier one comes with the call.
type preparations struct{ flow *Workflow }

func (preparations) account(c *duly.Call[Request]) (work[AccountStatus], error) {
	owner := c.Input.OwnerID
	return work[AccountStatus]{made: func(uint32) AccountStatus { return AccountStatus{OwnerID: owner, Active: true} }}, nil
}

func (preparations) createPackage(c *duly.Call[Request]) (work[PackageReceipt], error) {
	made := PackageReceipt{PackageID: c.Input.PackageInfo.PackageID, Size: c.Input.PackageInfo.Size}
	return work[PackageReceipt]{made: func(uint32) PackageReceipt { return made }}, nil
}

// transport answers false, as the reference's mock does: no other carrier.
func (preparations) transport(*duly.Call[Request]) (work[Transport], error) {
	return work[Transport]{made: func(uint32) Transport { return Transport{} }}, nil
}

func (preparations) scheduleDrone(*duly.Call[Request]) (work[Assignment], error) {
	return work[Assignment]{made: func(serial uint32) Assignment { return Assignment{DroneID: droneID(serial)} }}, nil
}

// createDelivery joins what the earlier steps made.
func (p preparations) createDelivery(c *duly.Call[Request]) (work[Confirmed], error) {
	created, err := p.flow.Package.Result(*c)
	if err != nil {
		return work[Confirmed]{}, err
	}
	assigned, err := p.flow.Drone.Result(*c)
	if err != nil {
		return work[Confirmed]{}, err
	}
	given, err := droneSerial(assigned.DroneID)
	if err != nil {
		return work[Confirmed]{}, duly.Refuse(err)
	}
	made := Confirmed{DeliveryID: c.Input.DeliveryID, PackageID: created.PackageID, Expedited: c.Input.Expedited}
	return work[Confirmed]{given: given, made: func(serial uint32) Confirmed {
		made.DroneID = droneID(serial)
		return made
	}}, nil
}

// answerOf gives a service's 4xx on as they are; of these, 425 is tried again.
// Everything else is worth another try as any error is.
func answerOf(err error) error {
	if code := codeOf(err); code >= 400 && code < 500 && code != codeSilent {
		return duly.RefuseCode(code, err)
	}
	return err
}

const dronePrefix = "drone-"

// droneID writes a drone's number as the id that agents exchange.
func droneID(serial uint32) string {
	return dronePrefix + strconv.FormatUint(uint64(serial), 16)
}

func droneSerial(id string) (uint32, error) {
	digits, ok := strings.CutPrefix(id, dronePrefix)
	serial, err := strconv.ParseUint(digits, 16, 32)
	if !ok || err != nil {
		return 0, fmt.Errorf("drone id %s, want %s and a number", quoteShort(id), dronePrefix)
	}
	return uint32(serial), nil
}
