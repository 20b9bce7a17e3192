package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// Limits. In some worlds an agent has one from the beginning. What is promised: at no time are more do commands committed
// that may be at work than the limit has places, and in no time more than its rate.

// Limits returns the limits, by agent.
func (m *MemStore) Limits(context.Context) ([]core.Limit, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []core.Limit
	for _, l := range m.limits {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b core.Limit) int { return cmp.Compare(a.Agent, b.Agent) })
	return all, nil
}

// grantsOf is what grants are kept by: those of an agent's limit, and those of each of its keys.
type grantsOf struct {
	agent string
	keyed bool
	key   string
}

// text is what a sentence says of the key.
func (g grantsOf) text() string {
	if !g.keyed {
		return ""
	}
	return fmt.Sprintf(" for key %q", g.key)
}

// ClaimGrants stores what holders may use.
func (m *MemStore) ClaimGrants(_ context.Context, agent string, now core.Instant, mine []core.Grant) ([]core.ClaimedGrant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.limits[agent]
	if !ok {
		return nil, fmt.Errorf("limit of agent %s: %w", agent, core.ErrNotFound)
	}
	if m.grants == nil {
		m.grants = map[grantsOf][]core.Grant{}
	}
	all := make([]core.ClaimedGrant, len(mine))
	holders := core.Holders(m.counting())
	for i := range mine {
		of := grantsOf{agent, mine[i].Keyed, mine[i].Key}
		m.grants[of] = slices.Clone(m.grants[of])
		core.EndGrants(m.grants[of], mine[i:i+1], holders)
		all[i] = l.Claim(now, mine[i], m.grants[of])
		m.grants[of] = slices.DeleteFunc(m.grants[of], func(g core.Grant) bool { return g.Holder == mine[i].Holder || g.Until < now })
		if got := &all[i].Grant; !got.Keyed || !got.Idle() {
			m.grants[of] = append(m.grants[of], *got)
		}
	}
	return all, nil
}

// CountPlaces notes in whose grants partitions are counted.
func (m *MemStore) CountPlaces(_ context.Context, holder string, all []core.Counting) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range all {
		if m.partition(c.Partition).Epoch == c.Epoch {
			m.counted[c.Partition] = core.Counting{Counted: c.Epoch, Holder: holder}
		}
	}
	return nil
}

// Counted returns in whose grants partitions are counted.
func (m *MemStore) Counted(context.Context) ([]core.Counting, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counting(), nil
}

// counting is the same. The store is locked.
func (m *MemStore) counting() (all []core.Counting) {
	for _, p := range slices.Sorted(maps.Keys(m.partitions)) {
		if is, st := m.counted[p], m.partitions[p]; st.Epoch > 0 {
			all = append(all, core.Counting{Partition: p, Epoch: st.Epoch, Counted: is.Counted, Holder: is.Holder})
		}
	}
	return all
}

// CountPlaces may have happened though the caller hears of a failure.
func (s nodeStore) CountPlaces(ctx context.Context, holder string, all []core.Counting) error {
	_, err := read(s, func() (bool, error) { return true, s.MemStore.CountPlaces(ctx, holder, all) })
	if err == nil && s.n.w.fault(CommitAnswerLost) {
		err = errFault
	}
	return err
}

// Counted may not be to be read.
func (s nodeStore) Counted(ctx context.Context) ([]core.Counting, error) {
	return read(s, func() ([]core.Counting, error) { return s.MemStore.Counted(ctx) })
}

// Limits may not be to be read.
func (s nodeStore) Limits(ctx context.Context) ([]core.Limit, error) {
	return read(s, func() ([]core.Limit, error) { return s.MemStore.Limits(ctx) })
}

// ClaimGrants may have happened though the caller hears of a failure.
func (s nodeStore) ClaimGrants(ctx context.Context, agent string, now core.Instant, mine []core.Grant) ([]core.ClaimedGrant, error) {
	all, err := read(s, func() ([]core.ClaimedGrant, error) { return s.MemStore.ClaimGrants(ctx, agent, now, mine) })
	for i := range all {
		got := &all[i]
		s.n.w.tell("", -1, "%s may use %d places and %d mHz of %s%s, its fair share is %d and %d", got.Grant.Holder, got.Grant.Places, got.Grant.RateMilli, agent,
			grantsOf{agent, got.Grant.Keyed, got.Grant.Key}.text(), got.Fair.Places, got.Fair.RateMilli)
	}
	if err == nil && s.n.w.fault(CommitAnswerLost) {
		err = errFault
	}
	return all, err
}

// drawLimits gives one or two agents limits.
func (w *World) drawLimits() {
	if !w.fault(Limited) {
		return
	}
	w.Store.limits = map[string]core.Limit{}
	for range 1 + w.rand.IntN(2) {
		p := w.plans[w.rand.IntN(len(w.plans))]
		s := p.Steps[w.rand.IntN(len(p.Steps))]
		if s.Kind != core.CallStep {
			continue
		}
		l := core.Limit{Agent: s.Agent, Revision: 1}
		if l.Concurrent = w.rand.IntN(4); l.Concurrent == 0 || w.rand.IntN(3) == 0 {
			l.RateMilli = 3000 + w.rand.Int64N(20_000)
		}
		if w.fault(Keyed) {
			l.Key = keyExpressions[w.rand.IntN(len(keyExpressions))]
			if l.KeyConcurrent = w.rand.IntN(3); l.KeyConcurrent == 0 || w.rand.IntN(3) == 0 {
				l.KeyRateMilli = 2000 + w.rand.Int64N(10_000)
			}
			if w.rand.IntN(2) == 0 {
				l.Concurrent, l.RateMilli = 0, 0
			}
		}
		w.Store.limits[s.Agent] = l
	}
}

// keyExpressions are what KeyOf knows.
var keyExpressions = []string{"few", "many", "fails for some"}

// KeyOf is the key of a task: few tasks have the same, or many.
func KeyOf(expression string, t *core.Task) (string, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.ID))
	switch n := h.Sum32() >> 8; {
	case expression == "many":
		return fmt.Sprint(n % 2), nil
	case expression == "few":
		return fmt.Sprint(n % 40), nil
	case n%2 == 0:
		return "", errors.New("it has none")
	}
	return "odd", nil
}

// watchLimits lets the node look after limits in this life, first before it takes anything over.
func (n *node) watchLimits() {
	turn := func(ctx context.Context) error {
		err := n.sched.LimitTurn(ctx)
		n.limitsRead = n.limitsRead || err == nil
		return err
	}
	n.takeTurns(&n.claim, scheduler.TroubleLimits, turn, 0, func() time.Duration {
		return min(n.sched.LimitPause(), 50*time.Millisecond+n.w.upTo(250*time.Millisecond))
	})
}

// outAt is a do command that may be at work.
type outAt struct {
	partition int
	number    int64
	step      int
}

// limitBook is what the world knows of commands at limited agents.
type limitBook struct {
	out   map[grantsOf]map[outAt]core.Instant // until when each may be at work
	times map[grantsOf][]core.Instant         // when the last ones left
}

// checkLimit holds the commands that are committed to the limits.
func (w *World) checkLimit(t *core.Task, j *core.Record) {
	if len(w.Store.limits) == 0 || w.backs > 0 || slices.ContainsFunc(w.nodes, func(n *node) bool { return n.twin }) {
		return
	}
	plan := planBook{w}.Plan(t.Type, t.PlanVersion)
	if plan == nil {
		return
	}
	if w.limited.out == nil {
		w.limited = limitBook{map[grantsOf]map[outAt]core.Instant{}, map[grantsOf][]core.Instant{}}
	}
	if j.Step >= 0 && j.Step < len(plan.Steps) && !j.Evidence() && j.Kind != core.KindLate && j.Kind != core.KindUndoUnserved {
		for _, b := range w.boundsOf(t, plan.Steps[j.Step].Agent) {
			delete(w.limited.out[b.of], outAt{t.Partition, t.Number, j.Step})
		}
	}
	if j.Next < 0 || j.Undo || plan.Steps[j.Next].Kind != core.CallStep {
		return
	}
	if w.unsettled(plan.Steps[j.Next].Agent) {
		return
	}
	for _, b := range w.boundsOf(t, plan.Steps[j.Next].Agent) {
		w.checkBound(t, j, b)
	}
}

// unsettled reports whether the limit of an agent has changed: nodes may not have heard of it, and what left before may be at
// work. Where it has, what may be at work is not known from the beginning either.
func (w *World) unsettled(agent string) bool { return w.gates.changed[agent] != 0 }

// bound is what bounds a task's commands at an agent.
type bound struct {
	of    grantsOf
	limit core.Limit
}

// boundsOf are those of an agent's limit, in all and of its keys.
func (w *World) boundsOf(t *core.Task, agent string) (all []bound) {
	l, ok := w.Store.limits[agent]
	if ok && l.InAll() {
		all = append(all, bound{grantsOf{agent: agent}, l})
	}
	if ok && l.Key != "" {
		key, _ := KeyOf(l.Key, t)
		all = append(all, bound{grantsOf{agent, true, key}, l.OfKey()})
	}
	return all
}

// checkBound holds a do command that is committed to a bound.
func (w *World) checkBound(t *core.Task, j *core.Record, b bound) {
	out := w.limited.out[b.of]
	if out == nil {
		out = map[outAt]core.Instant{}
		w.limited.out[b.of] = out
	}
	out[outAt{t.Partition, t.Number, j.Next}] = j.Due
	w.after(0, func() { w.checkPlaces(b, t.Partition, t.ID) }) // when the whole batch is known
	heardRetry := j.Kind == core.KindStarted && j.Step == j.Next
	if b.limit.RateMilli == 0 || heardRetry {
		return
	}
	times := append(w.limited.times[b.of], w.now)
	if len(times) > 200 {
		times = times[1:]
	}
	w.limited.times[b.of] = times
	holders := int64(2 * len(w.nodes))
	for i, from := range times {
		passed := int64(w.now.Sub(from)/time.Microsecond) + (4 * skewMax).Microseconds()
		if most := b.limit.RateMilli*passed/1_000_000_000 + holders*(2+b.limit.RateMilli/10_000) + 1; int64(len(times)-i) > most {
			w.wrong(t.Partition, t.ID, "row %d is the do number %d at agent %s%s in %d µs, its rate allows %d", j.Seq, len(times)-i, b.of.agent, b.of.text(), passed, most)
		}
	}
}

// checkPlaces holds the do commands that may be at work under a bound to its places.
func (w *World) checkPlaces(b bound, partition int, task string) {
	n, out := 0, w.limited.out[b.of]
	for _, until := range out {
		if until > w.now {
			n++
		}
	}
	if b.limit.Concurrent > 0 && n > b.limit.Concurrent {
		w.wrong(partition, task, "%d do commands may be at work at agent %s%s, the limit is %d: %v", n, b.of.agent, b.of.text(), b.limit.Concurrent, out)
	}
	if b.limit.Concurrent > 0 && n == b.limit.Concurrent {
		w.note(LimitReached)
		if b.of.keyed {
			w.note(KeyReached)
		}
	}
}

// SetLimits replaces the limits.
func (m *MemStore) SetLimits(all ...core.Limit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.limits
	m.limits = map[string]core.Limit{}
	for _, l := range all {
		m.limits[l.Agent] = l
	}
	for _, l := range was {
		m.dropGrants(&l, m.limits)
	}
}

// dropGrants forgets the grants of a limit that is gone by now, or of what it did not bound before, as in SQL: others stay until they
// end. The store is locked.
func (m *MemStore) dropGrants(was *core.Limit, now map[string]core.Limit) {
	l, there := now[was.Agent]
	inAll, keys := l.StartsOver(was)
	maps.DeleteFunc(m.grants, func(of grantsOf, _ []core.Grant) bool {
		return of.agent == was.Agent && (!there || inAll && !of.keyed || keys && of.keyed)
	})
}

// GrantsOf returns what holders may use of the limit of an agent.
func (m *MemStore) GrantsOf(agent string) []core.Grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.grants[grantsOf{agent: agent}])
}

// GrantsOfKey returns what holders may use of one key at an agent.
func (m *MemStore) GrantsOfKey(agent, key string) []core.Grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.grants[grantsOf{agent, true, key}])
}

// KeysGranted returns the keys of an agent of which holders may use something.
func (m *MemStore) KeysGranted(agent string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	for of, grants := range m.grants {
		if of.agent == agent && of.keyed && slices.ContainsFunc(grants, func(g core.Grant) bool { return !g.Idle() }) {
			keys = append(keys, of.key)
		}
	}
	slices.Sort(keys)
	return keys
}
