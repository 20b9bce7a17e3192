package duly

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// Client submits tasks, watches them and cancels them. It is safe for
// concurrent use and holds nothing that must be closed.
type Client struct {
	nc    *nats.Conn
	js    jetstream.JetStream
	clock agents.Time
	actor string
	names wire.Names
	codec Codec // nil: payloads are as they are

	holds holds

	namespace string // as the options have it
	noEvents  bool
}

// ClientOption changes how a [Client] works.
type ClientOption interface{ forClient(*Client) }

type clientOption func(*Client)

func (o clientOption) forClient(c *Client) { o(c) }

// Actor is who the journal of a task names for what this client asks of it; the
// connection's name, or "client", unless said.
func Actor(name string) ClientOption { return clientOption(func(c *Client) { c.actor = name }) }

// WithoutEvents is for a client whose NATS user may not read the event stream, as
// `duly nats-permissions` has submitters unless told otherwise: [Client.Watch] hears of a
// task by its live news, and asks the server about it every two seconds. It does not see
// that a submission of the plain door was refused.
func WithoutEvents() ClientOption { return clientOption(func(c *Client) { c.noEvents = true }) }

// NewClient makes a client on nc, which stays the caller's to close.
func NewClient(nc *nats.Conn, options ...ClientOption) (*Client, error) {
	if nc == nil || nc.IsClosed() {
		return nil, errors.New("new client: no open connection to NATS")
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	c := &Client{nc: nc, js: js, clock: wall{}, actor: cmp.Or(nc.Opts.Name, "client")}
	for _, option := range options {
		option.forClient(c)
	}
	if c.names, err = wire.NewNames(c.namespace); err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	return c, nil
}

// Apply stores the plan, so that its tasks can be submitted. The same content
// again is fine; another content under a stored version is refused (409), and
// so is what cannot work (400): errors.Is(err, ErrRefused). While no
// node answers it tries again, until ctx ends.
func (p *Plan[In]) Apply(ctx context.Context, c *Client) error {
	if err := p.check(int(c.nc.MaxPayload())); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	if err := openable(c.codec, &p.spec); err != nil {
		return fmt.Errorf("apply: %w", &refusedPlan{err})
	}
	what := operation{"apply", fmt.Sprintf("plan %s version %d", p.spec.Name, p.spec.Version)}
	spec, err := wire.EncodePlan(&p.spec)
	if err != nil {
		return fmt.Errorf("apply: %w", &refusedPlan{err})
	}
	return persist(ctx, c.clock, what, func(ctx context.Context) error { return c.apply(ctx, p.spec.Name, spec) })
}

// CancelOption changes one cancellation.
type CancelOption func(*core.Control)

// EvenIfUnknown cancels an id that no task has yet, too: it becomes a cancelled task,
// so that a submission still on its way is refused.
func EvenIfUnknown() CancelOption { return func(c *core.Control) { c.EvenIfUnknown = true } }

// Cancel asks that a task end: what it did is undone. It returns once the request is
// stored; [Client.Watch] shows what comes of it. A task that is undone, or about to be,
// is fine. Refused are, as a [SubmitError] that is [ErrRefused]: an id that no task
// has (404; see [EvenIfUnknown]), one of a task of another type or of a task that is
// processed (409). reason is written into the journal. While the server does not answer
// it tries again, until ctx ends; a second request does no harm.
func (c *Client) Cancel(ctx context.Context, typ, id, reason string, options ...CancelOption) error {
	what := operation{"cancel", fmt.Sprintf("task %s of type %s", id, typ)}
	if err := cmp.Or(checkNames(typ, id), refusedName(typ, id, core.CheckWords("reason", reason))); err != nil {
		return what.failed(err)
	}
	control := core.Control{Kind: core.EventCancel, ID: id, Type: typ, Actor: c.actor, Reason: reason}
	for _, option := range options {
		option(&control)
	}
	return persist(ctx, c.clock, what, func(ctx context.Context) error { return c.ask(ctx, &control) })
}

// checkNames refuses, before anything is sent, what no door would take.
func checkNames(typ, id string) error {
	return cmp.Or(checkTask(typ, id), refusedName(typ, id, core.CheckName("id", id)))
}

// checkTask is checkNames for a task that there may be: it may be a child.
func checkTask(typ, id string) error {
	return cmp.Or(refusedName(typ, id, core.CheckName("type", typ)), refusedName(typ, id, core.CheckTaskID(id)))
}

// refusedName is the refusal of a name, or of another value that no door would take.
func refusedName(typ, id string, err error) error {
	if err == nil {
		return nil
	}
	return &SubmitError{Type: typ, Task: id, Code: 400, Description: err.Error()}
}
