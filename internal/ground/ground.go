package ground

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/internal/pause"
)

// errUnknown is the reason of a condition that has not been probed yet.
var errUnknown = errors.New("not looked at yet")

// Trouble is a condition that is not well now.
type Trouble struct {
	Name        string
	Key         string // the resource, where the condition has several
	Text        string
	Reason      error
	Since       time.Time
	Times       int
	Consequence Consequence
}

// Ground is the supervisor of what a node stands on. Its methods may be called from any goroutine.
type Ground struct {
	sink Sink
	hide Secrets
	wake chan struct{} // signalled when a state changed that may have to be told

	mu         sync.Mutex
	conditions []*condition
	running    bool
	events     map[string]*event
}

// event is a kind of event without an end: when it was last told, and the newest that was held back since.
type event struct {
	last time.Time
	held Alert // Times of it is how many it stands for; 0: nothing is held
}

// condition is one condition and the troubles of its resources.
type condition struct {
	Condition
	known  bool // it has been probed or reported
	proven bool // it has been well once
	states map[string]*state
}

// state is a trouble of one resource, kept until it is over and its last line is lineGap old.
type state struct {
	bad   bool
	err   error
	fatal bool
	since time.Time // when the trouble began
	well  time.Time // when it was last seen to be well; only while not bad
	times int       // how often it became bad
	told  bool
	line  time.Time // of the last line
}

// New makes a ground that knows nothing yet.
func New(sink Sink) *Ground {
	return &Ground{sink: sink, hide: open{}, wake: make(chan struct{}, 1), events: map[string]*event{}}
}

// Secrets hides what must not be told.
type Secrets interface {
	Text(string) string
	Error(error) error
	Attr(slog.Attr) slog.Attr
}

// open hides nothing.
type open struct{}

func (open) Text(s string) string       { return s }
func (open) Error(err error) error      { return err }
func (open) Attr(a slog.Attr) slog.Attr { return a }

// Hide keeps secrets out of all that the ground tells, by alerts and by Ready, Live and Troubles. It is called before Run.
func (g *Ground) Hide(secrets Secrets) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hide = secrets
}

// Clean is an alert without secrets.
func (g *Ground) Clean(a Alert) Alert {
	g.mu.Lock()
	hide := g.hide
	g.mu.Unlock()
	a.Text, a.Error = hide.Text(a.Text), hide.Text(a.Error)
	attrs := make([]slog.Attr, len(a.Attrs))
	for i := range a.Attrs {
		attrs[i] = hide.Attr(a.Attrs[i])
	}
	a.Attrs = attrs
	return a
}

// Reporter reports one condition.
type Reporter struct {
	g *Ground
	c *condition
}

// Add makes a condition known. Conditions with a probe are added before Run. It panics on two conditions of one name:
// that is a slip in the code.
func (g *Ground) Add(c Condition) Reporter {
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.ContainsFunc(g.conditions, func(have *condition) bool { return have.Name == c.Name }) {
		panic("ground: two conditions " + c.Name)
	}
	if g.running && c.probed() {
		panic("ground: condition " + c.Name + " has a probe and came after Run")
	}
	added := &condition{Condition: c.withDefaults(), states: map[string]*state{}}
	g.conditions = append(g.conditions, added)
	return Reporter{g, added}
}

// Report says how the condition is now; nil: well.
func (r Reporter) Report(err error) { r.Found(Found{Err: err}) }

// Found says how one resource of the condition is now.
func (r Reporter) Found(f Found) {
	r.g.mu.Lock()
	r.c.found(f, time.Now())
	r.g.mu.Unlock()
	r.g.changed()
}

func (g *Ground) changed() {
	select {
	case g.wake <- struct{}{}:
	default: // signalled already
	}
}

// found takes in how one resource is. The ground is locked.
func (c *condition) found(f Found, now time.Time) {
	c.known = true
	if f.Err == nil {
		c.proven = true
	}
	s := c.states[f.Key]
	if s == nil {
		if f.Err == nil {
			return
		}
		if len(c.states) >= keysMax && f.Key != keyOthers {
			f.Key = keyOthers
			c.found(f, now)
			return
		}
		s = &state{}
		c.states[f.Key] = s
	}
	if f.Err == nil {
		if s.bad {
			s.bad, s.well = false, now
		}
		return
	}
	s.err, s.fatal = f.Err, f.Fatal
	if s.bad {
		return
	}
	if f.Since.IsZero() || f.Since.After(now) {
		f.Since = now
	}
	if s.over(now) && !s.told {
		*s = state{err: s.err, fatal: s.fatal, line: s.line}
	}
	if s.since.IsZero() {
		s.since = f.Since
	}
	s.bad = true
	s.times++
}

// over reports whether the trouble is over: well for settle.
func (s *state) over(now time.Time) bool { return !s.bad && now.Sub(s.well) >= settle }

// Run probes and tells until ctx ends. It returns when the last probe has.
func (g *Ground) Run(ctx context.Context) {
	g.mu.Lock()
	g.running = true
	conditions := slices.Clone(g.conditions)
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range conditions {
		if c.probed() {
			wg.Go(func() { g.probe(ctx, c) })
		}
	}
	g.tell(ctx)
	wg.Wait()
}

// probe looks at one condition again and again. A probe that does not return in time is a trouble, and no second one is
// begun before it has returned.
func (g *Ground) probe(ctx context.Context, c *condition) {
	for {
		began := time.Now()
		got := make(chan []Found, 1)
		bounded, cancel := context.WithTimeout(ctx, c.Timeout)
		go func() { got <- c.look(bounded) }()
		var found []Found
		late := time.NewTimer(c.Timeout + c.Timeout/4) // one that minds its context says more than this does
		select {
		case found = <-got:
		case <-late.C:
			if ctx.Err() == nil {
				Reporter{g, c}.Found(Found{Err: fmt.Errorf("no answer for %v", c.Timeout), Since: began})
			}
			found = <-got
		}
		late.Stop()
		cancel()
		g.take(ctx, c, began, found)
		if pause.For(ctx, c.Every) != nil {
			return
		}
	}
}

// look calls the probe once; a panic of it is a trouble.
func (c *condition) look(ctx context.Context) (found []Found) {
	defer func() {
		if v := recover(); v != nil {
			found = []Found{{Err: fmt.Errorf("the probe panicked: %v", v)}}
		}
	}()
	if c.Each != nil {
		return c.Each(ctx)
	}
	return []Found{{Err: c.Probe(ctx)}}
}

// take takes in the outcome of a probe: what it does not name is well. What failed because ctx ended says nothing, and neither
// does one that could not look.
func (g *Ground) take(ctx context.Context, c *condition, began time.Time, found []Found) {
	unknown := func(f Found) bool { return errors.Is(f.Err, ErrUnknown) }
	if ctx.Err() != nil || slices.ContainsFunc(found, unknown) {
		return
	}
	g.mu.Lock()
	now := time.Now()
	named := map[string]bool{}
	for _, f := range found {
		named[f.Key] = true
		if f.Err != nil && f.Since.IsZero() {
			f.Since = began
		}
		c.found(f, now)
	}
	for key := range c.states {
		if !named[key] && (key != keyOthers || len(found) < keysMax) {
			c.found(Found{Key: key}, now)
		}
	}
	if len(found) == 0 {
		c.known, c.proven = true, true
	}
	g.mu.Unlock()
	g.changed()
}

// tell tells what is due until ctx ends.
func (g *Ground) tell(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
		case <-timer.C:
		}
		alerts, next := g.due(time.Now())
		for _, a := range alerts {
			g.sink.Alert(g.Clean(a))
			g.said(&a)
		}
		timer.Reset(next)
	}
}

// due takes what is to be told now, and says how long until it should be asked again.
func (g *Ground) due(now time.Time) (alerts []Alert, next time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := now.Add(time.Hour)
	for _, c := range g.conditions {
		for key, s := range c.states {
			when, phase := c.next(s)
			if when.After(now) {
				at = earlier(at, when)
				continue
			}
			switch phase {
			case Begins:
				alerts = append(alerts, c.alert(key, s, Begins, now.Sub(s.since)))
				s.told, s.line = true, now
			case Ends:
				alerts = append(alerts, c.alert(key, s, Ends, s.well.Sub(s.since)))
				*s = state{line: now, well: s.well}
				at = earlier(at, now.Add(lineGap))
			default:
				delete(c.states, key)
			}
		}
	}
	for name, e := range g.events {
		switch when := e.last.Add(lineGap); {
		case when.After(now):
			at = earlier(at, when)
		case e.held.Times > 0:
			alerts = append(alerts, e.held)
			*e = event{last: now}
			at = earlier(at, now.Add(lineGap))
		default:
			delete(g.events, name)
		}
	}
	slices.SortStableFunc(alerts, func(a, b Alert) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key)) })
	return alerts, max(0, at.Sub(now))
}

// forever is later than anything is due.
const forever = 100 * 365 * 24 * time.Hour

// next says what comes next of a trouble and when: a line, or (no phase) that it is forgotten.
func (c *condition) next(s *state) (time.Time, Phase) {
	switch {
	case s.bad && s.told:
		return s.line.Add(forever), ""
	case s.bad:
		return later(s.since.Add(c.Grace), s.line.Add(lineGap)), Begins
	case s.told:
		return later(s.well.Add(settle), s.line.Add(lineGap)), Ends
	}
	return later(s.well.Add(settle), s.line.Add(lineGap)), ""
}

func (c *condition) alert(key string, s *state, phase Phase, lasted time.Duration) Alert {
	a := Alert{Name: c.Name, Key: key, Text: c.Begin, Phase: phase, Since: s.since, For: lasted, Times: s.times,
		Error: s.err.Error(), Consequence: c.consequence(s), Shared: c.Shared}
	if phase == Ends {
		a.Text = c.End
	}
	return a
}

func (c *condition) consequence(s *state) Consequence {
	if s.fatal {
		return Fatal
	}
	return c.Consequence
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Once raises an alert about an event that has no end. Those of one name that come within lineGap of each other are
// told together, as the last of them and how many there were.
func (g *Ground) Once(a Alert) {
	a.Phase = Once
	g.mu.Lock()
	e := g.events[a.Name]
	if e != nil && g.running {
		a.Times = e.held.Times + 1
		e.held = a
		g.mu.Unlock()
		return
	}
	g.events[a.Name] = &event{last: time.Now()}
	g.mu.Unlock()
	g.sink.Alert(g.Clean(a))
	g.said(&a)
	g.changed()
}

// said takes note that an alert has been told: the gap to the next one begins now. On a busy machine that is later than when
// it was decided.
func (g *Ground) said(a *Alert) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if a.Phase == Once {
		if e := g.events[a.Name]; e != nil {
			e.last = now
		}
		return
	}
	for _, c := range g.conditions {
		if s := c.states[a.Key]; c.Name == a.Name && s != nil {
			s.line = now
		}
	}
}

// Ready lists why the node is not ready, in the order of the conditions and their keys; empty: it is ready.
func (g *Ground) Ready() []Trouble { return g.list(NotReady) }

// Live lists what only a restart helps against; empty: the node lives.
func (g *Ground) Live() []Trouble { return g.list(Fatal) }

// Troubles lists all that is not well now, whether it has consequences yet or not.
func (g *Ground) Troubles() []Trouble {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pick(func(*condition, *state) bool { return true })
}

// list lists the troubles that have lasted until their consequence, which is least or more.
func (g *Ground) list(least Consequence) []Trouble {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	all := g.pick(func(c *condition, s *state) bool {
		after := c.ReadyAfter
		if c.Proven && !c.proven || s.fatal {
			after = 0
		}
		return c.consequence(s) >= least && now.Sub(s.since) >= after
	})
	if least == Fatal {
		return all
	}
	for _, c := range g.conditions {
		if c.Proven && !c.known {
			all = append(all, Trouble{Name: c.Name, Text: c.Begin, Reason: errUnknown, Since: now, Times: 1, Consequence: c.Consequence})
		}
	}
	return all
}

// pick lists the present troubles that want is true of. The ground is locked.
func (g *Ground) pick(want func(*condition, *state) bool) []Trouble {
	var all []Trouble
	for _, c := range g.conditions {
		begin := len(all)
		for key, s := range c.states {
			if s.bad && want(c, s) {
				all = append(all, Trouble{Name: c.Name, Key: key, Text: c.Begin, Reason: g.hide.Error(s.err), Since: s.since, Times: s.times, Consequence: c.consequence(s)})
			}
		}
		slices.SortFunc(all[begin:], func(a, b Trouble) int { return cmp.Compare(a.Key, b.Key) })
	}
	return all
}

// Conditions lists all conditions, for documentation and diagnosis.
func (g *Ground) Conditions() []Condition {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]Condition, len(g.conditions))
	for i, c := range g.conditions {
		all[i] = c.Condition
	}
	return all
}
