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

// NewAgent returns an agent that performs all five steps with the services. Its
// Run blocks until its context ends, and then finishes what is in hand. Options
// are the root package's: duly.Running bounds the calls at work per agent name.
func NewAgent(nc *nats.Conn, w *Workflow, s Backend, options ...duly.AgentOption) (*duly.Agent, error) {
	a, err := duly.NewAgent(nc, options...)
	if err != nil {
		return nil, fmt.Errorf("agent of the deliveries: %w", err)
	}
	h := handlers{flow: w, services: s}
	err = errors.Join(
		w.Account.Serve(a, h.account),
		w.Package.Serve(a, h.createPackage, undo[PackageReceipt](s, StepPackage)),
		w.Transport.Serve(a, h.transport),
		w.Drone.Serve(a, h.scheduleDrone, undo[Assignment](s, StepDrone)),
		w.Delivery.Serve(a, h.createDelivery, undo[Confirmed](s, StepDelivery)),
	)
	if err != nil {
		return nil, fmt.Errorf("agent of the deliveries: %w", err)
	}
	return a, nil
}

// handlers are the five agents. They keep nothing between calls: what a step
// needs of an earlier one comes with the call.
type handlers struct {
	flow     *Workflow
	services Backend
}

// do calls one service under the key of the step, so that a repeated command is
// one effect.
func (h handlers) do(ctx context.Context, step Step, c *duly.Call[Request], given uint32) (uint32, error) {
	serial, err := h.services.Do(ctx, step, Call{Task: c.Task, Key: c.Key, Attempt: c.Attempt, Given: given})
	return serial, answerOf(err)
}

func (h handlers) account(ctx context.Context, c duly.Call[Request]) (AccountStatus, error) {
	_, err := h.do(ctx, StepAccount, &c, 0)
	return AccountStatus{OwnerID: c.Input.OwnerID, Active: true}, err
}

func (h handlers) createPackage(ctx context.Context, c duly.Call[Request]) (PackageReceipt, error) {
	_, err := h.do(ctx, StepPackage, &c, 0)
	return PackageReceipt{PackageID: c.Input.PackageInfo.PackageID, Size: c.Input.PackageInfo.Size}, err
}

// transport answers false, as the reference's mock does: no other carrier.
func (h handlers) transport(ctx context.Context, c duly.Call[Request]) (Transport, error) {
	_, err := h.do(ctx, StepTransport, &c, 0)
	return Transport{}, err
}

func (h handlers) scheduleDrone(ctx context.Context, c duly.Call[Request]) (Assignment, error) {
	serial, err := h.do(ctx, StepDrone, &c, 0)
	return Assignment{DroneID: droneID(serial)}, err
}

// createDelivery joins what the earlier steps made.
func (h handlers) createDelivery(ctx context.Context, c duly.Call[Request]) (Confirmed, error) {
	created, err := h.flow.Package.Result(c)
	if err != nil {
		return Confirmed{}, err
	}
	assigned, err := h.flow.Drone.Result(c)
	if err != nil {
		return Confirmed{}, err
	}
	serial, err := droneSerial(assigned.DroneID)
	if err != nil {
		return Confirmed{}, duly.Refuse(err)
	}
	serial, err = h.do(ctx, StepDelivery, &c, serial)
	return Confirmed{
		DeliveryID: c.Input.DeliveryID,
		DroneID:    droneID(serial),
		PackageID:  created.PackageID,
		Expedited:  c.Input.Expedited,
	}, err
}

// undo takes one step back by its key alone: whether do answered, and what, is
// of no matter.
func undo[Out any](s Backend, step Step) func(context.Context, duly.Undo[Request, Out]) error {
	return func(ctx context.Context, u duly.Undo[Request, Out]) error {
		return answerOf(s.Undo(ctx, step, Call{Task: u.Task, Key: u.Key, Attempt: u.Attempt}))
	}
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
