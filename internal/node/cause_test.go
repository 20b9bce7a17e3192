package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// boundedBy is what holds agents back: limits alone.
type boundedBy []operate.AgentLimit

func (boundedBy) Breakers(context.Context) ([]core.Breaker, error)            { return nil, nil }
func (boundedBy) Pauses(context.Context) ([]operate.Pause, error)             { return nil, nil }
func (l boundedBy) AgentLimits(context.Context) ([]operate.AgentLimit, error) { return l, nil }

// TestCausesAfterClockSetBack: why a task is parked is read again within a second, also where the clock was set back.
func TestCausesAfterClockSetBack(t *testing.T) {
	now := time.Now()
	c := newCauses(boundedBy(nil), func() time.Time { return now })
	says := func() string {
		v := core.View{Type: "order", WaitsFor: "payment", Sentence: "It waits."}
		c.explain(t.Context(), &v)
		return v.Sentence
	}
	if got := says(); got != "It waits." {
		t.Errorf("nothing holds it: %s", got)
	}
	c.store = boundedBy{{Limit: core.Limit{Agent: "payment"}, By: "olga"}}
	now = now.Add(-time.Hour)
	if got := says(); !strings.Contains(got, "olga") {
		t.Errorf("olga holds it: %s", got)
	}
}
