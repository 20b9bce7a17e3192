package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// causesFresh is how long what was read serves all who ask.
const causesFresh = time.Second

// holdings is what operators and breakers hold agents back by.
type holdings interface {
	Breakers(ctx context.Context) ([]core.Breaker, error)
	Pauses(ctx context.Context) ([]operate.Pause, error)
	AgentLimits(ctx context.Context) ([]operate.AgentLimit, error)
}

// causes says more of why a task is parked than its own row does: what holds back the agent that it waits for, and who set
// that. It is safe for concurrent use.
type causes struct {
	store holdings
	now   func() time.Time

	mu       sync.Mutex // held while they are read: others wait for it
	breakers []core.Breaker
	pauses   []operate.Pause
	limits   []operate.AgentLimit
	at       time.Time
}

func newCauses(store holdings, now func() time.Time) *causes {
	return &causes{store: store, now: now}
}

// explain adds to a task's sentence what holds back the agent that it waits for. Where that cannot be read the sentence is
// what it was.
func (c *causes) explain(ctx context.Context, v *core.View) {
	if v.WaitsFor == "" || v.Sentence == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if c.at.IsZero() || now.Sub(c.at) >= causesFresh || now.Before(c.at) {
		if c.read(ctx) != nil {
			return
		}
		c.at = now
	}
	for i := range c.breakers {
		if b := &c.breakers[i]; b.Agent == v.WaitsFor {
			if text := breakerSentence(b.Agent, operate.BreakerOf(b, now)); text != "" {
				v.Sentence += " " + text
			}
		}
	}
	for i := range c.pauses {
		if p := &c.pauses[i]; (p.Until.IsZero() || now.Before(p.Until)) && pauseHolds(p, v) {
			v.Sentence += " " + say.Of("holds.pause", "by", p.By, "until", ends(p.Until, "holds.lifted"), "reason", core.QuoteShort(p.Reason))
		}
	}
	for i := range c.limits {
		if l := &c.limits[i]; l.Agent == v.WaitsFor {
			v.Sentence += " " + say.Of("holds.limit", "agent", l.Agent, "by", l.By, "reason", core.QuoteShort(l.Reason))
		}
	}
}

// read reads all that holds agents back.
func (c *causes) read(ctx context.Context) (err error) {
	if c.breakers, err = c.store.Breakers(ctx); err != nil {
		return err
	}
	if c.pauses, err = c.store.Pauses(ctx); err != nil {
		return err
	}
	c.limits, err = c.store.AgentLimits(ctx)
	return err
}

// pauseHolds reports whether a pause covers a step of the task that has not begun, of the agent that it waits for.
func pauseHolds(p *operate.Pause, v *core.View) bool {
	return slices.ContainsFunc(v.Steps, func(s core.StepView) bool {
		return s.Agent == v.WaitsFor && s.Status == core.StepWaiting.String() && p.Covers(v.Type, s.Name, s.Agent, v.Labels)
	})
}

// ends says until when something holds; always: what is said where it has no end.
func ends(until time.Time, always string) string {
	if until.IsZero() {
		return say.Of(always)
	}
	return say.Of("holds.at", "at", until.UTC().Format(time.RFC3339))
}

// breakerSentence says how a breaker stands; empty: it holds nothing back.
func breakerSentence(agent string, b operate.Breaker) string {
	id := "holds.breaker"
	switch {
	case b.State == core.BreakerTrial:
		id = "holds.trial"
	case b.State != core.BreakerOpen:
		return ""
	case b.Forced:
		id = "holds.forced"
	}
	return say.Of(id, "agent", agent, "by", b.By, "until", ends(b.Until, "holds.auto"), "reason", core.QuoteShort(b.Reason))
}

// causeReader is operate.Reader whose sentences say why a task is parked.
type causeReader struct {
	operate.Reader
	causes *causes
}

// Get implements operate.Reader.
func (r causeReader) Get(ctx context.Context, partition int, id string) (core.View, error) {
	v, err := r.Reader.Get(ctx, partition, id)
	if err == nil {
		r.causes.explain(ctx, &v)
	}
	return v, err
}
