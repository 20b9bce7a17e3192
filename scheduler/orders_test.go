package scheduler

import (
	"errors"
	"log/slog"
	"testing"

	"duly.dev/duly/internal/core"
)

// However often a committer is asked, there is one order of a kind for a partition; of several losses of one ownership
// each stream that went back is remembered, and a loss of an older ownership does not replace that of a newer one.
func TestOrdersAreOneOfAKind(t *testing.T) {
	s := New(RunConfig{
		Config: Config{Node: "n1", Now: func() core.Instant { return 1 }}, Partitions: 2, Shards: 1, Rand: func() float64 { return 0 },
	}, nil, nil, nil, nil, slog.New(slog.DiscardHandler))
	c := s.committers[0]
	for range 3 {
		c.ask(order{kind: orderAdopt, partition: 1})
		c.Lose(0, 7, ErrRewound)
		c.ask(order{kind: orderRelease, partition: 0})
		c.Lose(0, 7, errors.Join(errSuccessor, ErrControlRewound))
		c.Lose(0, 6, nil)
		c.Lose(0, 7, errSuccessor)
	}
	if c.Due() != 1 {
		t.Error("there are orders, and no step is due")
	}
	var kinds []orderKind
	for o, ok := c.nextOrder(); ok; o, ok = c.nextOrder() {
		kinds = append(kinds, o.kind)
		if o.kind == orderLost && (o.epoch != 7 || !errors.Is(o.why, ErrRewound) || !errors.Is(o.why, ErrControlRewound) || !errors.Is(o.why, errSuccessor)) {
			t.Errorf("%+v", o)
		}
	}
	if len(kinds) != 3 || kinds[0] != orderAdopt || kinds[1] != orderLost || kinds[2] != orderRelease {
		t.Errorf("orders %v", kinds)
	}
	if !c.holds(1) || !c.adopting() {
		t.Error("a partition that is about to be adopted does not count as held")
	}
}
