package sim_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
)

// stageBegan is when every script begins: a round instant, so that what names an
// absolute time can be read.
var stageBegan = core.InstantOf(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))

const partitionsMax = 32

type planOf = core.Plan

// stage is the world of one script: the real roles, one after the other, by a
// clock that the script moves.
type stage struct {
	t       *testing.T
	b       strings.Builder
	quiet   bool // count what happens instead of telling it
	counted bool // it was so once: no operator has read the event stream
	counts  map[string]int

	now    core.Instant
	events []stageEvent // what is to happen, in order
	co     *coroutine   // the handler at work
	asleep map[*coroutine]bool

	fresh      func() stageStore
	store      *watchedStore
	plan       core.Plan // being written
	plans      map[string]map[int64]*core.Plan
	partitions int

	door     *ingest.Door
	tasks    stageStream
	controls stageStream
	nodes    map[string]*stageNode
	agents   map[string]*stageAgent
	supers   map[string]*stageSupervisor
	leader   stageLease
	alerts   *stageAlerts
	ended    map[string][]core.State // endings in the event stream, by id
	eventsUp bool
	refused  []core.Status
	dead     int
	accepted map[string]bool
	lives    int
	limits   stageLimits

	evidence, former map[int]core.Evidence // what owners recorded outside the store
}

type stageEvent struct {
	at core.Instant
	do func()
}

func newStage(t *testing.T, fresh func() stageStore) *stage {
	s := &stage{
		t: t, counts: map[string]int{}, now: stageBegan, asleep: map[*coroutine]bool{}, fresh: fresh, partitions: 1,
		plans: map[string]map[int64]*core.Plan{}, nodes: map[string]*stageNode{}, agents: map[string]*stageAgent{},
		supers: map[string]*stageSupervisor{}, ended: map[string][]core.State{}, accepted: map[string]bool{}, eventsUp: true,
		tasks: stageStream{name: "tasks", identity: "stream-1"}, controls: stageStream{name: "controls"},
		evidence: map[int]core.Evidence{}, former: map[int]core.Evidence{}, limits: stageLimits{out: map[string]map[issuedKey]core.Instant{}},
	}
	s.store = newWatchedStore(s)
	s.alerts = newStageAlerts(s)
	return s
}

// verbs are the commands of a script.
func (s *stage) verbs() map[string]func(string, args) {
	return map[string]func(string, args){
		"partitions": func(n string, _ args) { s.partitions = s.number(n) },
		"plan":       s.beginPlan, "step": s.addStep, "put": s.putPlan,
		"agent": s.addAgent, "next": s.nextCall, "wire": s.nextMessage,
		"node": s.addNode, "take": s.take, "crash": s.crash, "start": s.start,
		"freeze": s.freeze, "thaw": s.thaw, "release": s.release,
		"fail-commit": s.failCommit, "poison": s.poison,
		"backup": func(string, args) { s.store.backup() }, "restore": func(string, args) { s.store.restore() },
		"lose-streams": s.loseStreams, "lose-evidence": s.loseEvidence, "events": s.switchEvents,
		"submit": s.submit, "submit-many": s.submitMany, "plain": s.plain,
		"cancel":   s.ask(core.EventCancel),
		"undo":     s.ask(core.EventUndo),
		"resubmit": s.ask(core.EventResubmit),
		"resolve":  s.ask(core.EventResolve),
		"extend":   s.ask(core.EventExtend),
		"accept":   s.ask(core.EventAccept),
		"edit":     s.ask(core.EventEdit),
		"signal":   s.ask(core.EventSignal),
		"hand":     s.hand,
		"tick":     s.tick, "show": s.show,
		"quiet":  func(string, args) { s.quiet, s.counted = true, true },
		"counts": func(string, args) { s.tellCounts() },
		"limit":  s.bound,
		"end":    func(string, args) { s.end() },
	}
}

// say tells what a party did: what is counted instead when the stage is quiet.
func (s *stage) say(who, what, format string, details ...any) {
	if s.quiet {
		s.counts[who+" "+what]++
		return
	}
	s.line("%-8s %-10s %s", s.at(s.now), who, strings.TrimRight(what+" "+fmt.Sprintf(format, details...), " "))
}

func (s *stage) line(format string, details ...any) {
	s.b.WriteString("    " + fmt.Sprintf(format, details...) + "\n")
}

func (s *stage) tellCounts() {
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		s.line("%-40s %d", what, s.counts[what])
	}
	clear(s.counts)
}

// wrong reports what must not be. It also stands in the script's output.
func (s *stage) wrong(format string, details ...any) {
	s.t.Helper()
	text := fmt.Sprintf(format, details...)
	s.line("WRONG: %s", text)
	s.t.Errorf("at %s: %s", s.at(s.now), text)
}

// at shows an instant as time since the script began.
func (s *stage) at(i core.Instant) string { return i.Sub(stageBegan).String() }

// after makes something happen in d, behind what happens then already.
func (s *stage) after(d time.Duration, do func()) {
	e := stageEvent{s.now.Add(max(0, d)), do}
	i := len(s.events)
	for i > 0 && s.events[i-1].at > e.at {
		i--
	}
	s.events = slices.Insert(s.events, i, e)
}

// pass lets d pass, and all that happens in it.
func (s *stage) pass(d time.Duration) {
	until := s.now.Add(d)
	for len(s.events) > 0 && s.events[0].at <= until {
		e := s.events[0]
		s.events[0] = stageEvent{}
		s.events = s.events[1:]
		s.now = max(s.now, e.at)
		e.do()
	}
	s.now = until
}

// coroutine is a handler at work: it hands back how long it sleeps.
type coroutine struct {
	next  func() (time.Duration, bool)
	stop  func()
	yield func(time.Duration) bool
	dead  bool // its process died: nothing of it is ever seen again
}

// spawn begins work that may sleep.
func (s *stage) spawn(work func(co *coroutine)) *coroutine {
	co := &coroutine{}
	co.next, co.stop = iter.Pull(func(yield func(time.Duration) bool) {
		co.yield = yield
		work(co)
	})
	s.resume(co)
	return co
}

func (s *stage) resume(co *coroutine) {
	if co.dead {
		return
	}
	was := s.co
	s.co = co
	d, more := co.next()
	s.co = was
	if more {
		s.asleep[co] = true
		s.after(d, func() { s.resume(co) })
	} else {
		delete(s.asleep, co)
	}
}

// sleep is called by the work of a coroutine; false: it shall end.
func (s *stage) sleep(d time.Duration) bool { return s.co.yield(d) }

func (s *stage) close() {
	for co := range s.asleep {
		co.dead = true
		s.co = co
		co.stop()
	}
}

// stageLog tells what a role logs.
type stageLog struct {
	slog.Handler
	s   *stage
	who string
}

func (s *stage) logOf(who string) *slog.Logger {
	return slog.New(stageLog{slog.DiscardHandler, s, who})
}

// Enabled implements slog.Handler.
func (l stageLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler. Stacks are left out: they name lines of code.
func (l stageLog) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "stack" {
			text += fmt.Sprintf(", %s %v", a.Key, a.Value)
		}
		return true
	})
	l.s.say(l.who, "logs:", "%s", text)
	return nil
}
