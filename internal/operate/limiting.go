package operate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

const rateMax = core.RateMilliMax / 1000 // calls a second

// SetLimit asks for a limit of an agent, in the place of the one that it has.
type SetLimit struct {
	Agent      string  `json:"agent"`
	Concurrent int     `json:"concurrent,omitempty"` // do commands at a time, over all nodes; 0: any number
	Rate       float64 `json:"rate,omitempty"`       // do commands a second, rounded down to thousandths; 0: any number
	// Key is an expression over a task, and the next two bound the commands of the tasks of which it is the same. That it
	// compiles is for the caller to see.
	Key           string  `json:"key,omitempty"`
	KeyConcurrent int     `json:"key_concurrent,omitempty"`
	KeyRate       float64 `json:"key_rate,omitempty"`
	Reason        string  `json:"reason"`
	EvenIfUnknown bool    `json:"even_if_unknown,omitempty"` // although no stored plan names the agent
}

// BusiestKeysMax is how many keys of a limit are shown.
const BusiestKeysMax = 20

// Granted is what committers may use of a limit together.
type Granted struct {
	Holders   int
	Wanted    int64
	Places    int64
	RateMilli int64
	Keys      int64        // of which something is granted or wanted
	Busiest   []KeyGranted // up to BusiestKeysMax of them
}

// KeyGranted is what committers may use of a key of a limit together.
type KeyGranted struct {
	Key     string `json:"key" doc:"what the expression gave, or its SHA-256 where that is longer than 128 bytes; empty: of tasks for which it fails"`
	Holders int    `json:"holders" doc:"committers that have some, or want some"`
	Wanted  int64  `json:"wanted" doc:"places that they could use"`
	Places  int64  `json:"places" doc:"places of key_concurrent that they have"`
}

// Limit is the limit of an agent as an operator sees it.
type Limit struct {
	Agent         string       `json:"agent"`
	Concurrent    int          `json:"concurrent,omitempty" doc:"do commands at a time, over all nodes; absent: any number"`
	Rate          float64      `json:"rate,omitempty" doc:"do commands a second, over all nodes; absent: any number"`
	Key           string       `json:"key,omitempty" doc:"an expression (CEL) over a task: the next two bound the commands of tasks of which it is the same"`
	KeyConcurrent int          `json:"key_concurrent,omitempty" doc:"as concurrent, of each key"`
	KeyRate       float64      `json:"key_rate,omitempty" doc:"as rate, of each key"`
	Granted       int64        `json:"granted" doc:"places of concurrent that committers have now"`
	GrantedRate   float64      `json:"granted_rate" doc:"what they have of rate"`
	Wanted        int64        `json:"wanted" doc:"places that they could use: commands that are out, and tasks that wait for one"`
	Holders       int          `json:"holders" doc:"committers that have some, or want some"`
	Keys          int64        `json:"keys,omitempty" doc:"keys of which something is granted or wanted now"`
	BusiestKeys   []KeyGranted `json:"busiest_keys,omitempty" doc:"20 of those keys at most: what wants most beyond what it has first"`
	Revision      int64        `json:"revision" doc:"rises with each change"`
	Since         time.Time    `json:"since"`
	By            string       `json:"by"`
	Reason        string       `json:"reason"`
}

// LimitControl is how operators see limits and change them. Every change is in the audit trail before it is made.
type LimitControl interface {
	// Limits returns all, by agent, with what of each is granted now.
	Limits(ctx context.Context) ([]Limit, error)
	// SetLimit bounds an agent, and returns the limit as it is stored. Error: *Refusal.
	SetLimit(ctx context.Context, by Actor, l SetLimit) (Limit, error)
	// RemoveLimit lets an agent have any number again. Error: *Refusal, 404 of an agent that has no limit.
	RemoveLimit(ctx context.Context, by Actor, agent, reason string) error
}

// Limiting is LimitControl over the state store. All fields are required. It is safe for concurrent use.
type Limiting struct {
	Store    LimitKeeper
	Desk     *Desk
	Plans    func(ctx context.Context) ([]core.Plan, error)
	Announce func() error // tells every scheduler that limits have changed; without it they read them seconds later
	Now      func() time.Time
}

// Limits implements LimitControl.
func (s *Limiting) Limits(ctx context.Context) ([]Limit, error) {
	all, err := s.Store.AgentLimits(ctx)
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	granted, err := s.Store.Granted(ctx, core.InstantOf(s.Now()))
	if err != nil {
		return nil, fmt.Errorf("grants: %w", err)
	}
	views := make([]Limit, len(all))
	for i := range all {
		views[i] = limitView(&all[i], granted[all[i].Agent])
	}
	return views, nil
}

// SetLimit implements LimitControl.
func (s *Limiting) SetLimit(ctx context.Context, by Actor, l SetLimit) (Limit, error) {
	set := Act{By: by, Action: "limit.set", Target: limitTarget(l.Agent), Reason: l.Reason, After: l}
	if r := l.Check(); r != nil {
		return Limit{}, s.Desk.Note(ctx, &set, r)
	}
	was, r, err := s.find(ctx, &l)
	switch {
	case err != nil:
		return Limit{}, err
	case r != nil:
		return Limit{}, s.Desk.Note(ctx, &set, r)
	}
	next := l.after(was, s.Now(), by.Name)
	set.Before, set.After = limitEntry(was), limitEntry(next)
	err = s.Desk.Change(ctx, &set, func(ctx context.Context) (err error) {
		next, err = overwrite(ctx, was, func(was AgentLimit) AgentLimit { return l.after(was, s.Now(), by.Name) }, s.Store.PutLimit,
			func() (AgentLimit, *Refusal, error) { return s.find(ctx, &l) }, "the limit of agent "+l.Agent, "set")
		return err
	})
	if err != nil {
		return Limit{}, fmt.Errorf("limit of agent %s: %w", l.Agent, err)
	}
	_ = s.Announce() // what is stored counts whether or not they hear of it now: they read it from time to time
	granted, err := s.Store.Granted(ctx, core.InstantOf(s.Now()))
	if err != nil {
		return Limit{}, fmt.Errorf("grants, after the limit of agent %s is set: %w", l.Agent, err)
	}
	return limitView(&next, granted[l.Agent]), nil
}

// find reads the limit of an agent, as it is stored or as there is none yet.
func (s *Limiting) find(ctx context.Context, l *SetLimit) (AgentLimit, *Refusal, error) {
	was, n, err := s.stored(ctx, l.Agent)
	if err != nil || was.Revision != 0 {
		return was, nil, err
	}
	if n >= core.LimitsMax {
		return AgentLimit{}, &Refusal{Code: 409, Detail: say.Of("refuse.limits-full", "n", n, "limit", core.LimitsMax)}, nil
	}
	r, err := unknown(ctx, l.EvenIfUnknown, s.Plans, "", "", l.Agent)
	return was, r, err
}

// stored is the limit of an agent, with revision 0 where there is none, and how many limits there are.
func (s *Limiting) stored(ctx context.Context, agent string) (l AgentLimit, n int, err error) {
	all, err := s.Store.AgentLimits(ctx)
	if err != nil {
		return l, 0, fmt.Errorf("limits: %w", err)
	}
	if i := slices.IndexFunc(all, func(l AgentLimit) bool { return l.Agent == agent }); i >= 0 {
		return all[i], len(all), nil
	}
	return AgentLimit{Limit: core.Limit{Agent: agent}}, len(all), nil
}

// RemoveLimit implements LimitControl.
func (s *Limiting) RemoveLimit(ctx context.Context, by Actor, agent, reason string) error {
	remove := Act{By: by, Action: "limit.remove", Target: limitTarget(agent), Reason: reason}
	was, _, err := s.stored(ctx, agent)
	if err != nil {
		return err
	}
	if was.Revision == 0 {
		return s.Desk.Note(ctx, &remove, &Refusal{Code: 404, Field: "agent", Detail: say.Of("refuse.no-limit", "agent", core.QuoteShort(agent))})
	}
	remove.Before = limitEntry(was)
	if r := checkReason(reason); r != nil {
		return s.Desk.Note(ctx, &remove, r)
	}
	if err := s.Desk.Change(ctx, &remove, func(ctx context.Context) error { return s.Store.DeleteLimit(ctx, agent) }); err != nil {
		return fmt.Errorf("limit of agent %s: %w", agent, err)
	}
	_ = s.Announce() // as SetLimit
	return nil
}

// Check refuses a limit that cannot be; nil: it can.
func (l *SetLimit) Check() *Refusal {
	if err := core.CheckAgent(l.Agent); err != nil {
		return wrong("agent", "%v", err)
	}
	for _, r := range []struct {
		field string
		rate  float64
	}{{"rate", l.Rate}, {"key_rate", l.KeyRate}} {
		if !(r.rate >= 0 && r.rate <= rateMax) || r.rate > 0 && rateMilli(r.rate) == 0 {
			return wrong(r.field, "%s is %g a second, want 0 (any number), or 0.001 to %d", r.field, r.rate, rateMax)
		}
	}
	limit := l.bounds()
	if err := limit.Check(); err != nil {
		field, _, _ := strings.Cut(err.Error(), ":")
		if field != "key" && field != "key_concurrent" {
			field = "concurrent"
		}
		return wrong(field, "%v", err)
	}
	return checkReason(l.Reason)
}

// rateMilli is a rate in calls in 1,000 seconds, rounded down but for what binary fractions are off.
func rateMilli(rate float64) int64 { return int64(math.Floor(rate*1000 + 1e-6)) }

// bounds is the limit as it is kept, without its revision.
func (l *SetLimit) bounds() core.Limit {
	return core.Limit{
		Agent: l.Agent, Concurrent: l.Concurrent, RateMilli: rateMilli(l.Rate), Key: l.Key, KeyConcurrent: l.KeyConcurrent, KeyRateMilli: rateMilli(l.KeyRate),
	}
}

// after is the limit that is to be stored in the place of one.
func (l *SetLimit) after(was AgentLimit, now time.Time, by string) AgentLimit {
	next := AgentLimit{Limit: l.bounds(), At: now.UTC(), By: by, Reason: l.Reason}
	next.Revision = was.Revision + 1
	return next
}

// limitTarget is what the audit trail names.
func limitTarget(agent string) string { return "agent/" + core.ShortText(agent, core.WordsBytesMax) }

// limitEntry is a limit as the audit trail has it; nil: there is none.
func limitEntry(l AgentLimit) any {
	if l.Revision == 0 {
		return nil
	}
	return SetLimit{
		Agent: l.Agent, Concurrent: l.Concurrent, Rate: float64(l.RateMilli) / 1000,
		Key: l.Key, KeyConcurrent: l.KeyConcurrent, KeyRate: float64(l.KeyRateMilli) / 1000, Reason: l.Reason,
	}
}

func limitView(l *AgentLimit, g Granted) Limit {
	return Limit{
		Agent: l.Agent, Concurrent: l.Concurrent, Rate: float64(l.RateMilli) / 1000, Revision: l.Revision, Since: l.At, By: l.By, Reason: l.Reason,
		Key: l.Key, KeyConcurrent: l.KeyConcurrent, KeyRate: float64(l.KeyRateMilli) / 1000, Keys: g.Keys, BusiestKeys: g.Busiest,
		Granted: g.Places, GrantedRate: float64(g.RateMilli) / 1000, Wanted: g.Wanted, Holders: g.Holders,
	}
}
