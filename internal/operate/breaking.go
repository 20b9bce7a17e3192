package operate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// BreakerWish is what an operator wants of an agent's breaker.
type BreakerWish string

// What operators want.
const (
	BreakerOpened BreakerWish = "open"   // nothing begins there
	BreakerClosed BreakerWish = "closed" // whatever its calls come to, they go on
	BreakerAuto   BreakerWish = "auto"   // it decides by itself again
)

// ForceBreaker asks for a change of an agent's breaker.
type ForceBreaker struct {
	Agent  string      `json:"agent"`
	State  BreakerWish `json:"state"`
	Until  time.Time   `json:"until,omitzero"` // it decides by itself again then; zero: when it is let go
	Reason string      `json:"reason"`

	EvenIfUnknown bool `json:"even_if_unknown,omitempty"` // although no stored plan names the agent
}

// Breaker is the breaker of an agent as an operator sees it.
type Breaker struct {
	State    core.BreakerState `json:"state" enum:"closed,open,trial" doc:"open: nothing begins there; trial: a few do commands at a time"`
	Since    time.Time         `json:"since,omitzero" doc:"of this state; absent: it has never been another"`
	Until    time.Time         `json:"until,omitzero" doc:"of an open one: the trial begins then; of one that is forced: it decides by itself again"`
	Stage    int               `json:"stage,omitempty" doc:"of a trial: 0 to 8"`
	Openings int               `json:"openings,omitempty" doc:"in a row: each lasts twice as long"`
	Forced   bool              `json:"forced,omitempty" doc:"an operator has said so"`
	By       string            `json:"by,omitempty" doc:"that operator"`
	Reason   string            `json:"reason,omitempty" doc:"the operator's words, or what its calls came to"`
}

// BreakerOf is a breaker as it counts at a time.
func BreakerOf(b *core.Breaker, now time.Time) Breaker {
	at := core.InstantOf(now)
	state, stage := b.At(at)
	v := Breaker{State: state, Stage: stage, Openings: b.Openings, Forced: b.Holds(at), By: b.By, Reason: b.Reason}
	since := b.Since
	switch {
	case state == core.BreakerTrial && b.State == core.BreakerOpen: // its time is over, and no call has been tried yet
		since = b.Until
	case b.Until != 0 && at < b.Until:
		v.Until = b.Until.Time()
	}
	if since != 0 {
		v.Since = since.Time()
	}
	return v
}

// BreakerControl is how operators force breakers. Every change is in the audit trail before it is made.
type BreakerControl interface {
	// Force opens or closes the breaker of an agent, or lets it go, and returns it as it is stored. Error: *Refusal, 404 of
	// an agent that no stored plan names, unless it is said to be meant, 409 of one that is not forced and is to be let go.
	Force(ctx context.Context, by Actor, f ForceBreaker) (Breaker, error)
}

// Breaking is BreakerControl over the state store. All fields are required. It is safe for concurrent use.
type Breaking struct {
	Store    BreakerStore
	Desk     *Desk
	Flow     FlowReader
	Announce func() error // tells every scheduler that breakers have changed; without it they read them seconds later
	Now      func() time.Time
}

// Force implements BreakerControl.
func (s *Breaking) Force(ctx context.Context, by Actor, f ForceBreaker) (Breaker, error) {
	now := s.Now()
	force := Act{By: by, Action: "breaker." + string(f.State), Target: "agent/" + core.ShortText(f.Agent, core.WordsBytesMax), Reason: f.Reason, After: f}
	if r := f.Check(now); r != nil {
		if r.Field == "state" {
			force.Action = "breaker.force"
		}
		return Breaker{}, s.Desk.Note(ctx, &force, r)
	}
	was, r, err := s.find(ctx, &f)
	switch {
	case err != nil:
		return Breaker{}, err
	case r != nil:
		return Breaker{}, s.Desk.Note(ctx, &force, r)
	}
	next := f.apply(was, now, by.Name)
	force.Before, force.After = BreakerOf(&was, now), BreakerOf(&next, now)
	err = s.Desk.Change(ctx, &force, func(ctx context.Context) (err error) {
		next, err = overwrite(ctx, was, func(was core.Breaker) core.Breaker { return f.apply(was, s.Now(), by.Name) }, s.Store.PutBreaker,
			func() (core.Breaker, *Refusal, error) { return s.find(ctx, &f) }, "the breaker of agent "+f.Agent, "forced")
		return err
	})
	if err != nil {
		return Breaker{}, fmt.Errorf("breaker of agent %s: %w", f.Agent, err)
	}
	_ = s.Announce() // what is stored counts whether or not they hear of it now: they read it from time to time
	return BreakerOf(&next, now), nil
}

// find reads the breaker of the agent, as it is stored or as there is none yet; the refusal says why it cannot be changed.
func (s *Breaking) find(ctx context.Context, f *ForceBreaker) (core.Breaker, *Refusal, error) {
	all, err := s.Store.Breakers(ctx)
	if err != nil {
		return core.Breaker{}, nil, fmt.Errorf("breakers: %w", err)
	}
	i := slices.IndexFunc(all, func(b core.Breaker) bool { return b.Agent == f.Agent })
	if i >= 0 {
		if is := BreakerOf(&all[i], s.Now()); !is.Takes(f.State) {
			return all[i], notForced(f.Agent), nil
		}
		return all[i], nil, nil
	}
	if f.State == BreakerAuto {
		return core.Breaker{}, notForced(f.Agent), nil
	}
	if n := len(all); f.EvenIfUnknown && n >= core.BreakersMax {
		return core.Breaker{}, &Refusal{Code: 409, Detail: say.Of("refuse.breakers-full", "n", n, "limit", core.BreakersMax)}, nil
	}
	r, err := unknown(ctx, f.EvenIfUnknown, s.Flow.Plans, "", "", f.Agent)
	return core.Breaker{Agent: f.Agent}, r, err
}

func notForced(agent string) *Refusal {
	return &Refusal{Code: 409, Field: "state", Detail: say.Of("refuse.breaker-auto", "agent", agent)}
}

// Check refuses a wish that is wrong in itself; nil: it can be asked.
func (f *ForceBreaker) Check(now time.Time) *Refusal {
	if err := core.CheckAgent(f.Agent); err != nil {
		return wrong("agent", "%v", err)
	}
	switch {
	case f.State != BreakerOpened && f.State != BreakerClosed && f.State != BreakerAuto:
		return wrong("state", "state is %s, want open, closed or auto", core.QuoteShort(string(f.State)))
	case f.State == BreakerAuto && !f.Until.IsZero():
		return wrong("until", "%s", say.Of("refuse.auto-until"))
	case !f.Until.IsZero() && !f.Until.After(now):
		return wrong("until", "%s", say.Of("refuse.until-passed", "until", f.Until.UTC().Format(time.RFC3339), "now", now.UTC().Format(time.RFC3339)))
	case f.Until.After(now.Add(core.DurationMax)):
		return wrong("until", "%s", say.Of("refuse.until-far", "until", f.Until.UTC().Format(time.RFC3339), "limit", core.DurationMax))
	}
	return checkReason(f.Reason)
}

// apply is a breaker as it is wanted.
func (f *ForceBreaker) apply(b core.Breaker, now time.Time, by string) core.Breaker {
	at, until := core.InstantOf(now), core.Instant(0)
	if !f.Until.IsZero() {
		until = core.InstantOf(f.Until)
	}
	switch f.State {
	case BreakerOpened:
		return b.Force(core.BreakerOpen, at, until, by, f.Reason)
	case BreakerClosed:
		return b.Force(core.BreakerClosed, at, until, by, f.Reason)
	default:
		return b.LetGo(at, by, f.Reason)
	}
}
