package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// causesFresh is how long breakers that were read serve all who ask.
const causesFresh = time.Second

// causes says more of why a task is parked than its own row does: what holds back the agent that it waits for. It is safe for
// concurrent use.
type causes struct {
	store operate.BreakerStore
	now   func() time.Time

	mu   sync.Mutex // held while they are read: others wait for it
	seen []core.Breaker
	at   time.Time
}

func newCauses(store operate.BreakerStore, now func() time.Time) *causes {
	return &causes{store: store, now: now}
}

// explain adds to a task's sentence the breaker that it waits for. Where breakers cannot be read the sentence is what it was.
func (c *causes) explain(ctx context.Context, v *core.View) {
	if v.WaitsFor == "" || v.Sentence == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if c.at.IsZero() || now.Sub(c.at) >= causesFresh {
		seen, err := c.store.Breakers(ctx)
		if err != nil {
			return
		}
		c.seen, c.at = seen, now
	}
	i := slices.IndexFunc(c.seen, func(b core.Breaker) bool { return b.Agent == v.WaitsFor })
	if i < 0 {
		return
	}
	if text := breakerSentence(v.WaitsFor, operate.BreakerOf(&c.seen[i], now)); text != "" {
		v.Sentence += " " + text
	}
}

// breakerSentence says how a breaker stands; empty: it holds nothing back.
func breakerSentence(agent string, b operate.Breaker) string {
	text := "The breaker of agent " + agent
	switch {
	case b.State == core.BreakerTrial:
		return text + " is in trial: a few commands at a time are let through, and more with each success."
	case b.State != core.BreakerOpen:
		return ""
	case b.Until.IsZero():
		text += " is open until it is let go"
	default:
		text += " is open until " + b.Until.UTC().Format(time.RFC3339)
	}
	if b.Forced {
		text += ", by " + b.By
	}
	return fmt.Sprintf("%s: %s.", text, core.QuoteShort(b.Reason))
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
