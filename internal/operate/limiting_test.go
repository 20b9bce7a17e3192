package operate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// bounds keeps limits beside a world.
type bounds struct {
	*world
	limits []operate.AgentLimit
	lost   int // how often another changes the limit before a change of it is stored
}

func (b *bounds) AgentLimits(context.Context) ([]operate.AgentLimit, error) {
	return slices.Clone(b.limits), b.unread
}

// PutLimit compares the revision as every store does.
func (b *bounds) PutLimit(_ context.Context, l operate.AgentLimit) (bool, error) {
	i := slices.IndexFunc(b.limits, func(is operate.AgentLimit) bool { return is.Agent == l.Agent })
	if b.lost > 0 {
		b.lost--
		if i < 0 {
			i, b.limits = len(b.limits), append(b.limits, operate.AgentLimit{Limit: core.Limit{Agent: l.Agent}})
		}
		b.limits[i].Revision++
	}
	switch {
	case b.failing != nil:
		return false, b.failing
	case i < 0 && l.Revision == 1:
		b.limits = append(b.limits, l)
	case i >= 0 && b.limits[i].Revision == l.Revision-1:
		b.limits[i] = l
	default:
		return false, nil
	}
	return true, nil
}

func (b *bounds) clock() time.Time { return b.now }

func (b *bounds) DeleteLimit(_ context.Context, agent string) error {
	b.limits = slices.DeleteFunc(b.limits, func(l operate.AgentLimit) bool { return l.Agent == agent })
	return b.failing
}

func (b *bounds) Granted(context.Context, core.Instant) (map[string]operate.Granted, error) {
	return map[string]operate.Granted{"ship": {Holders: 2, Wanted: 9, Places: 4, RateMilli: 2500, Keys: 70, Busiest: []operate.KeyGranted{{Key: "acme", Holders: 1, Wanted: 8, Places: 3}}}}, b.unread
}

func newBounds() (*bounds, *operate.Limiting) {
	b := &bounds{world: newWorld()}
	return b, &operate.Limiting{Store: b, Plans: b.Plans, Desk: operate.NewDesk(b, b.clock, slog.New(slog.DiscardHandler)), Announce: func() error { b.told++; return errors.New("not now") }, Now: b.clock}
}

// TestSetLimit: a limit is set, changed, seen and removed with by whom and why, written down before, and told; also where
// another changes it meanwhile.
func TestSetLimit(t *testing.T) {
	b, s := newBounds()
	set := operate.SetLimit{Agent: "ship", Concurrent: 20, Rate: 0.57, Key: "input.customer", KeyConcurrent: 3, KeyRate: 1.25, Reason: "the depot is small"}
	b.lost = 2
	got, err := s.SetLimit(t.Context(), olga, set)
	want := operate.Limit{Agent: "ship", Concurrent: 20, Rate: 0.57, Key: "input.customer", KeyConcurrent: 3, KeyRate: 1.25, Keys: 70, BusiestKeys: []operate.KeyGranted{{Key: "acme", Holders: 1, Wanted: 8, Places: 3}}, Granted: 4, GrantedRate: 2.5, Wanted: 9, Holders: 2, Revision: 3, Since: b.now, By: "olga", Reason: set.Reason}
	if err != nil || !reflect.DeepEqual(got, want) || b.told != 1 {
		t.Fatalf("got %+v, %v, told %d times", got, err, b.told)
	}
	if is := b.limits[0]; is.RateMilli != 570 || is.Key != set.Key || is.KeyConcurrent != 3 || is.KeyRateMilli != 1250 {
		t.Errorf("stored %+v", is)
	}
	e := b.last(t)
	var after operate.SetLimit
	if json.Unmarshal(e.After, &after) != nil || after != set || e.Before != nil || e.Action != "limit.set" || e.Target != "agent/ship" || e.Reason != set.Reason || e.Outcome != "done" {
		t.Errorf("audit trail %+v", e)
	}
	set.Concurrent, set.Rate, set.Key, set.KeyConcurrent, set.KeyRate = 0, 1.0/60, "", 0, 0
	if got, err := s.SetLimit(t.Context(), olga, set); err != nil || got.Concurrent != 0 || got.Rate != 0.016 || got.Revision != 4 {
		t.Errorf("another: %+v, %v", got, err)
	}
	if e := b.last(t); !strings.Contains(string(e.Before), `"concurrent":20`) || !strings.Contains(string(e.Before), `"key":"input.customer","key_concurrent":3,"key_rate":1.25`) || strings.Contains(string(e.After), "concurrent") || strings.Contains(string(e.After), "key") {
		t.Errorf("audit trail: before %s, after %s", e.Before, e.After)
	}
	all, err := s.Limits(t.Context())
	if err != nil || len(all) != 1 || all[0].Rate != 0.016 || all[0].Granted != 4 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := s.RemoveLimit(t.Context(), olga, "ship", "it has grown"); err != nil || len(b.limits) != 0 || b.told != 3 {
		t.Errorf("removed: %v, %d limits, told %d times", err, len(b.limits), b.told)
	}
	if e := b.last(t); e.Action != "limit.remove" || e.Target != "agent/ship" || e.Outcome != "done" || e.Before == nil || e.After != nil {
		t.Errorf("audit trail %+v", e)
	}
	b.refusedWith(t, s.RemoveLimit(t.Context(), olga, "ship", "again"), 404, "agent", "has no limit")
}

// TestSetLimitRefused: what cannot be is refused with the field, its value and the bound, and written down. Nothing is
// stored without a trail.
func TestSetLimitRefused(t *testing.T) {
	b, s := newBounds()
	ok := operate.SetLimit{Agent: "ship", Concurrent: 1, Reason: "r"}
	for _, x := range []struct {
		field, says string
		change      func(*operate.SetLimit)
	}{
		{"agent", "a..b", func(l *operate.SetLimit) { l.Agent = "a..b" }},
		{"concurrent", "-1, want 0", func(l *operate.SetLimit) { l.Concurrent = -1 }},
		{"concurrent", "1000001, want 0 (any number) to 1000000", func(l *operate.SetLimit) { l.Concurrent = core.ConcurrentMax + 1 }},
		{"concurrent", "neither concurrent nor rate", func(l *operate.SetLimit) { l.Concurrent = 0 }},
		{"rate", "0.0009 a second, want 0 (any number), or 0.001 to 1000000", func(l *operate.SetLimit) { l.Rate = 0.0009 }},
		{"rate", "-1 a second", func(l *operate.SetLimit) { l.Rate = -1 }},
		{"rate", "1e+300 a second", func(l *operate.SetLimit) { l.Rate = 1e300 }},
		{"rate", "NaN a second", func(l *operate.SetLimit) { l.Rate = math.NaN() }},
		{"key_concurrent", "-1, want 0", func(l *operate.SetLimit) { l.Key, l.KeyConcurrent = "type", -1 }},
		{"key_rate", "key_rate is 0.0009 a second", func(l *operate.SetLimit) { l.Key, l.KeyRate = "type", 0.0009 }},
		{"key", "neither key_concurrent nor key_rate is", func(l *operate.SetLimit) { l.Key = "type" }},
		{"key", "it is not given, but key_concurrent or key_rate is", func(l *operate.SetLimit) { l.KeyRate = 1 }},
		{"key", "1025 bytes, the most is 1024", func(l *operate.SetLimit) { l.Key, l.KeyRate = strings.Repeat("k", core.LimitKeyMax+1), 1 }},
		{"reason", "empty", func(l *operate.SetLimit) { l.Reason = " " }},
		{"reason", "at most", func(l *operate.SetLimit) { l.Reason = strings.Repeat("r", core.WordsBytesMax+1) }},
	} {
		l := ok
		x.change(&l)
		_, err := s.SetLimit(t.Context(), olga, l)
		b.refusedWith(t, err, 400, x.field, x.says)
	}
	b.lost = 100
	_, err := s.SetLimit(t.Context(), olga, ok)
	if r, is := errors.AsType[*operate.Refusal](err); !is || r.Code != 409 || !strings.Contains(b.last(t).Outcome, "refused: the limit of agent ship was changed 5 times") {
		t.Errorf("one that changes all the time: %v, %+v", err, b.last(t))
	}
	b.refusedWith(t, s.RemoveLimit(t.Context(), olga, "ship", ""), 400, "reason", "empty")
	b.lost, b.limits = 0, nil
	for i := range core.LimitsMax {
		b.limits = append(b.limits, operate.AgentLimit{Limit: core.Limit{Agent: fmt.Sprint("a", i), Concurrent: 1, Revision: 1}})
	}
	_, err = s.SetLimit(t.Context(), olga, ok)
	b.refusedWith(t, err, 409, "", "the maximum is 1000")
	ok.Agent = "a7"
	b.failing = errors.New("no disk")
	if _, err := s.SetLimit(t.Context(), olga, ok); !errors.Is(err, b.failing) || b.last(t).Outcome != "failed: no disk" {
		t.Errorf("a store that fails: %v, %+v", err, b.last(t))
	}
	b.failing, b.dumb = nil, errors.New("no trail")
	if _, err := s.SetLimit(t.Context(), olga, ok); !away(err) || b.limits[7].Revision != 1 || b.told != 0 {
		t.Errorf("a trail that cannot be written: %v, %+v, told %d times", err, b.limits[7], b.told)
	}
	if err := s.RemoveLimit(t.Context(), olga, "a7", "r"); !away(err) || len(b.limits) != core.LimitsMax || b.told != 0 {
		t.Errorf("a trail that cannot be written: %v, %d limits, told %d times", err, len(b.limits), b.told)
	}
	b.dumb, b.unread = nil, errors.New("no database")
	if _, err := s.Limits(t.Context()); !errors.Is(err, b.unread) {
		t.Errorf("a store that cannot be read: %v", err)
	}
}
