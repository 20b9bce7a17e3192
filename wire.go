package duly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/wire"
)

// source hands an agent's runtime what comes over NATS.
type source struct {
	nc      *nats.Conn
	log     *slog.Logger
	single  bool   // takes one command a message only
	variant string // see Variant
	dry     bool   // see DryRun
	names   wire.Names
	who     string // the instance that answers
	books   []agentBooks
	probes  *agents.Runtime // answers probes
}

// Serve implements agents.Source: each agent is a NATS micro service.
func (s source) Serve(ctx context.Context, names []string, accept agents.Accept) error {
	conn, err := natsbus.Wrap(s.nc, s.log, s.names)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.NameInstance(s.who)
	conn.ServeAs(s.variant, s.dry)
	closed := s.nc.StatusChanged(nats.CLOSED)
	defer s.nc.RemoveStatusListener(closed)
	denied := make(chan error, len(names))
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stops []func() // commands first: what is slow to end must not let any more in
	defer func() {
		cancel()
		for _, stop := range stops {
			stop()
		}
	}()
	for _, name := range names {
		service, err := conn.ServeCommands(name, !s.single, func(r *natsbus.CommandRequest) { accept(&r.Command, r.Reply) })
		if err != nil {
			return err
		}
		stops = append(stops, service.Stop)
		wg.Go(func() {
			select {
			case err := <-service.Denied():
				denied <- err
			case <-ctx.Done():
			}
		})
	}
	stopBooks, err := s.serveBooks(ctx, conn)
	stops = append(stops, stopBooks)
	if err != nil {
		return err
	}
	stopProbes, err := s.serveProbes(ctx, conn)
	stops = append(stops, stopProbes)
	if err != nil {
		return err
	}
	select {
	case err := <-denied:
		return err
	case <-ctx.Done():
		return nil
	case <-closed:
		return nats.ErrConnectionClosed
	}
}

// serveBooks answers for all books until stop is called. On an error some may be served.
func (s source) serveBooks(ctx context.Context, conn *natsbus.Conn) (stop func(), err error) {
	var all []*natsbus.Subscription
	stop = func() {
		for _, served := range all {
			served.Stop()
		}
	}
	if s.dry {
		return stop, nil
	}
	for _, b := range s.books {
		served, err := b.serve(ctx, conn)
		if err != nil {
			return stop, fmt.Errorf("books of agent %s: %w", b.name, err)
		}
		all = append(all, served)
	}
	return stop, nil
}

// request sends one message and gives the payload of its answer.
func (c *Client) request(ctx context.Context, subject string, header nats.Header, data []byte) ([]byte, error) {
	answer, err := natsbus.Request(ctx, c.nc, &nats.Msg{Subject: subject, Header: header, Data: data})
	if err != nil {
		return nil, err
	}
	return answer.Data, nil
}

// apply asks once that the plan be stored.
func (c *Client) apply(ctx context.Context, plan string, spec []byte) error {
	data, err := c.request(ctx, c.names.SubjectPlansApply(), nil, spec)
	if err != nil {
		return err
	}
	_, err = wire.DecodePlanAnswer(data)
	return refusalOf(plan, "", err)
}

// hand asks once that the task be taken. elapsed is how long the call has lasted.
func (c *Client) hand(ctx context.Context, typ, id string, input []byte, s *submission, elapsed time.Duration) (Receipt, error) {
	f := s.form(typ, id, input, elapsed)
	data, err := c.request(ctx, c.names.SubmitSubject(typ, id), f.Header(), f.Input)
	if err != nil {
		return Receipt{}, err
	}
	answer, err := wire.DecodeSubmitAnswer(data)
	if err != nil {
		return Receipt{}, refusalOf(typ, id, err)
	}
	return Receipt{Task: id, Type: typ, Seq: answer.Seq, Partition: answer.Partition, Warning: answer.Warning}, nil
}

// ask asks once that a control message be stored.
func (c *Client) ask(ctx context.Context, control *core.Control) error {
	data, err := c.request(ctx, c.names.AskTypeSubject(wire.ControlWord(control.Kind), control.Type), nil, wire.AppendControl(nil, control))
	if err != nil {
		return err
	}
	_, err = wire.DecodeSubmitAnswer(data) // its answers have the same form
	err = refusalOf(control.Type, control.ID, err)
	if refused, is := errors.AsType[*SubmitError](err); is && control.Kind == core.EventSignal {
		refused.late = refused.Code == 409 // the step has its answer, which may be this one
	}
	return err
}

// refusalOf says in this package's words what an answer says.
func refusalOf(typ, id string, err error) error {
	if err == nil {
		return nil
	}
	refusal := &SubmitError{Type: typ, Task: id}
	if refused, ok := errors.AsType[*wire.RefusedError](err); ok {
		refusal.Code, refusal.Description, refusal.RetryAfter = refused.Code, refused.Description, refused.Retry
		refusal.taken = refused.ErrCode == wire.ErrCodeTaken
		refusal.late = refused.ErrCode == wire.ErrCodePast || refused.ErrCode == wire.ErrCodeDeprecated || refused.ErrCode == wire.ErrCodeNoTime
		refusal.open = refused.Code >= 500 && (refused.Code != 503 || refused.ErrCode == wire.ErrCodeStore)
		return refusal
	}
	if answer, ok := errors.AsType[*wire.APIError](err); ok {
		refusal.Code, refusal.Description = answer.Code, answer.Description
		return refusal
	}
	return fmt.Errorf("%w: %w", errAnswer, err)
}

// liveStatus reads the live news of a task; ok is false for what is none. The
// end is left to the event stream, which tells it surely and with its step.
func liveStatus(msg *nats.Msg) (s Status, ok bool) {
	status, err := wire.DecodeStatus(msg.Data)
	s = statusOf(status)
	return s, err == nil && !s.State.Ended()
}

// endings reads a message of the event stream; refused is the subject of
// refusals. What does not decode was told to
// an operator by others.
func endings(refused string, msg jetstream.Msg) []Status {
	if msg.Subject() == refused {
		status, err := wire.DecodeStatus(msg.Data())
		if err != nil {
			return nil
		}
		return []Status{statusOf(status)}
	}
	ended, err := wire.DecodeEndings(msg.Data())
	if err != nil {
		return nil
	}
	all := make([]Status, len(ended))
	for i, e := range ended {
		all[i] = Status{Task: e.ID, Type: e.Type, State: State(e.State), Step: e.Step, Error: e.Error, At: e.At.Time()}
	}
	return all
}

func statusOf(s core.Status) Status {
	status := Status{Task: s.ID, Type: s.Type, State: State(s.Status), Error: s.Error, Code: s.Code}
	if s.At != 0 {
		status.At = s.At.Time()
	}
	return status
}
