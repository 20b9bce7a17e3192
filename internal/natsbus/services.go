package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"duly.dev/duly/internal/wire"
)

// Bounds of one question to all agents.
const (
	instancesWithin = 300 * time.Millisecond // from the request to the last answer that counts
	instancesMax    = 1000                   // most answers, and most agents that are asked
)

// subjectStats is where NATS's service discovery asks one service for its statistics.
const subjectStats = micro.APIPrefix + ".STATS."

// SubjectStatsOf returns the subject on which NATS's service discovery asks an agent, or with an empty name
// every agent, for statistics.
func SubjectStatsOf(names wire.Names, agent string) string {
	if agent == "" {
		return subjectStats + "*"
	}
	return subjectStats + names.ServiceName(agent)
}

// AgentInstance is one instance of an agent, as it describes itself.
type AgentInstance struct {
	Agent   string
	ID      string
	Started time.Time
	// Calls counts the commands answered since its start. An agent that is not built with Duly counts
	// messages, which may hold several commands.
	Calls int64
	// Errors counts those of them that failed.
	Errors int64
	// Busy is the time in its handlers since its start, over Messages messages.
	Busy     time.Duration
	Messages int64
}

// Instances asks these agents, up to instancesMax, for their instances, and returns up to instancesMax that
// answer within instancesWithin; more: there may be others. Each agent is asked on a subject of its own,
// because a process with several agents may be allowed only one answer to a request. Errors: there is no
// server, or it cannot be asked.
func (c *Conn) Instances(ctx context.Context, agents []string) (all []AgentInstance, more bool, err error) {
	if len(agents) > instancesMax {
		agents, more = agents[:instancesMax], true
	}
	ctx, cancel := context.WithTimeout(ctx, instancesWithin)
	defer cancel()
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox + ".*")
	if err != nil {
		return nil, false, fmt.Errorf("ask for agents: %w", publishError(err))
	}
	defer func() { _ = sub.Unsubscribe() }() // gone already is fine
	if err := sub.SetPendingLimits(2*instancesMax, -1); err != nil {
		return nil, false, fmt.Errorf("ask for agents: %w", err)
	}
	for i, agent := range agents {
		reply := inbox + "." + strconv.Itoa(i)
		if err := c.nc.PublishRequest(SubjectStatsOf(c.names, agent), reply, nil); err != nil {
			return nil, false, fmt.Errorf("ask for agent %s: %w", agent, publishError(err))
		}
	}
	seen, unserved := map[string]bool{}, 0
	for answers := 0; unserved < len(agents); answers++ {
		if answers == 2*instancesMax {
			return all, true, nil
		}
		msg, err := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return all, more, nil // all that answer in time
		case errors.Is(err, nats.ErrNoResponders): // one of them has no listener
			unserved++
			continue
		case err != nil:
			return nil, false, fmt.Errorf("ask for agents: %w", publishError(err))
		}
		nth, err := strconv.Atoi(strings.TrimPrefix(msg.Subject, inbox+"."))
		if err != nil || nth < 0 || nth >= len(agents) {
			continue
		}
		if is, ok := c.agentInstance(msg.Data); ok && is.Agent == agents[nth] && !seen[is.Agent+" "+is.ID] {
			if len(all) == instancesMax {
				return all, true, nil
			}
			seen[is.Agent+" "+is.ID] = true
			all = append(all, is)
		}
	}
	return all, more, nil
}

// agentInstance decodes one answer. false: it is not from an agent of this namespace.
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

// AnnouncePauses tells every scheduler to read the pauses and the breakers again.
func (c *Conn) AnnouncePauses() error {
	return c.tell(c.names.SubjectPausesChanged(), "announcement of pauses", nil, nil)
}

// OnPausesChanged calls f at every announcement. Announcements are lost while there is no server, so pauses
// must also be read periodically.
func (c *Conn) OnPausesChanged(f func()) (*Subscription, error) {
	return c.subscribe(c.names.SubjectPausesChanged(), "", func(*nats.Msg) { f() })
}

// Watch says that somebody watches the steps of tasks. Whoever watches repeats it every few seconds.
func (c *Conn) Watch(w wire.Wanted) error {
	data, err := wire.EncodeWanted(w)
	return c.tell(c.names.SubjectWatched(), "wish for steps", data, err)
}

// OnWanted calls f with what somebody watches.
func (c *Conn) OnWanted(f func(wire.Wanted)) (*Subscription, error) {
	return hear(c, c.names.SubjectWatched(), "a wish for steps", wire.DecodeWanted, f)
}

// PublishSteps tells those who watch of steps, without storing it. lost is how many steps before these are
// left out.
func (c *Conn) PublishSteps(taskType string, events []wire.StepEvent, lost int) {
	data, err := wire.EncodeSteps(taskType, events, lost)
	if half := len(events) / 2; half > 0 && len(data) > c.MaxPayload() {
		c.PublishSteps(taskType, events[:half], lost)
		c.PublishSteps(taskType, events[half:], 0)
		return
	}
	if err := c.tell(c.names.StepsSubject(taskType), "steps", data, err); err != nil {
		c.log.Debug("steps not told", "type", taskType, "steps", len(events), "error", err)
	}
}

// FollowSteps calls f with the steps of tasks of a type (empty: all) as they are told.
func (c *Conn) FollowSteps(taskType string, f func(taskType string, events []wire.StepEvent, lost int)) (*Subscription, error) {
	return c.subscribe(c.names.StepsSubject(taskType), "", func(msg *nats.Msg) {
		taskType, events, lost, err := wire.DecodeSteps(msg.Data)
		if err != nil {
			c.log.Debug("steps are ignored", "subject", msg.Subject, "error", err)
			return
		}
		f(taskType, events, lost)
	})
}
