package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"duly.dev/duly/internal/wire"
)

// Bounds of one gathering of agents.
const (
	ServicesWithin = 300 * time.Millisecond // from the request to the last answer that counts
	ServicesMax    = 1000                   // answers
)

// SubjectStats is where NATS's service discovery is asked for the statistics of all services.
const SubjectStats = micro.APIPrefix + ".STATS"

// AgentInstance is one instance of an agent, as it says of itself.
type AgentInstance struct {
	Agent    string
	ID       string
	Started  time.Time
	Calls    int64         // answered since its start; of a foreign agent: messages, of which one may hold several commands
	Errors   int64         // of these
	Busy     time.Duration // in its handlers, since its start
	Messages int64         // that Busy is about
}

// Instances asks all agents of the namespace who they are, and returns those that answer within ServicesWithin, at most
// ServicesMax of them; more: there may be others. Errors: there is no server, or the user may not ask.
func (c *Conn) Instances(ctx context.Context) (all []AgentInstance, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, ServicesWithin)
	defer cancel()
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, false, fmt.Errorf("ask for agents: %w", publishError(err))
	}
	defer func() { _ = sub.Unsubscribe() }() // gone already is fine
	if err := sub.SetPendingLimits(2*ServicesMax, -1); err != nil {
		return nil, false, fmt.Errorf("ask for agents: %w", err)
	}
	if err := c.nc.PublishRequest(SubjectStats, inbox, nil); err != nil {
		return nil, false, fmt.Errorf("ask for agents: %w", publishError(err))
	}
	seen := map[string]bool{}
	for answers := 0; ; answers++ {
		if answers == ServicesMax {
			return all, true, nil
		}
		msg, err := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			return all, false, nil // all that answer in time, or nobody listens
		case err != nil:
			return nil, false, fmt.Errorf("ask for agents: %w", publishError(err))
		}
		if is, ok := c.agentInstance(msg.Data); ok && !seen[is.ID] {
			seen[is.ID] = true
			all = append(all, is)
		}
	}
}

// agentInstance reads one answer. false: it is not of an agent of this namespace.
func (c *Conn) agentInstance(data []byte) (AgentInstance, bool) {
	var s micro.Stats
	if json.Unmarshal(data, &s) != nil {
		return AgentInstance{}, false
	}
	agent := s.Metadata[wire.MetaAgent]
	if agent == "" || s.Name != c.names.ServiceName(agent) {
		return AgentInstance{}, false
	}
	is := AgentInstance{Agent: agent, ID: s.ID, Started: s.Started}
	counted := false
	for _, e := range s.Endpoints {
		if e == nil {
			continue
		}
		is.Messages += int64(e.NumRequests)
		is.Busy += e.ProcessingTime
		// Our own agents count commands, once for all endpoints; the library counts messages.
		var own struct{ Answered, Failed *int64 }
		if len(e.Data) > 0 && json.Unmarshal(e.Data, &own) == nil && own.Answered != nil && own.Failed != nil {
			is.Calls, is.Errors, counted = *own.Answered, *own.Failed, true
		}
	}
	if !counted {
		is.Calls = is.Messages
		for _, e := range s.Endpoints {
			if e != nil {
				is.Errors += int64(e.NumErrors)
			}
		}
	}
	return is, true
}

// AnnouncePauses makes every scheduler read the pauses again.
func (c *Conn) AnnouncePauses() error {
	if err := c.nc.Publish(c.names.SubjectPausesChanged(), nil); err != nil {
		return fmt.Errorf("announcement of pauses: %w", publishError(err))
	}
	return nil
}

// OnPausesChanged calls f at every announcement. It can be missed while there is no server: read the pauses also from time
// to time.
func (c *Conn) OnPausesChanged(f func()) (*Subscription, error) {
	return c.subscribe(c.names.SubjectPausesChanged(), "", func(*nats.Msg) { f() })
}
