package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
)

// Faults that hit nodes while a limit or a breaker keeps calls back from an agent. It is the agent of
// the bounded tasks, whose service is looked at by a gauge.

const (
	limitKills    = 4
	limitedTasks  = 12          // before each kill, and before the limit is removed
	limitedOwners = 6           // whose tasks share a key
	limitedTakes  = time.Second // a call: so long that those of a node outlast it
)

// limited is the limit, and what the gauge allows.
var limited = atWork{all: 4, key: 1}

// limitKill bounds the agent, and one key at it, and kills what owns partitions while tasks wait for
// places: never are calls of more tasks at work than the limit allows, also when a new owner sends
// again what was out; all tasks end behind the limit, and the more that wait when it is removed.
func limitKill(ctx context.Context, w *world, in *injection) error {
	ctx, cancel := context.WithTimeout(ctx, operatorMax)
	defer cancel()
	const target, path = "agent/" + boundedAgent, "/v1/limits/" + boundedAgent
	before, err := w.auditOf(ctx, target)
	if err != nil {
		return err
	}
	requests := w.load.bounded((limitKills+1)*limitedTasks, limitedOwners)
	first, rest := requests[:limitKills*limitedTasks], requests[limitKills*limitedTasks:]
	w.gauge.watch(requests, limitedTakes, limited)
	in.begins()
	body := map[string]any{"concurrent": limited.all, "key": "input.ownerId", "key_concurrent": limited.key, "reason": "chaos"}
	err = w.demand(ctx, http.MethodPut, path, "", body, nil)
	if err == nil {
		err = pause(ctx, pauseSeen) // as a pause, a limit of which a node is not told is read every five seconds
	}
	for part := range slices.Chunk(first, limitedTasks) {
		if err == nil {
			err = w.killAtWork(ctx, in, part)
		}
	}
	if err == nil {
		_, err = w.endedAll(ctx, idsOf(first))
	}
	if err == nil {
		err = w.atWork(ctx, rest)
	}
	over, seen := w.gauge.release()
	for _, why := range over {
		in.wrong = append(in.wrong, "agent "+boundedAgent+" at "+why)
	}
	in.on = fmt.Sprintf("%d of %d at a time, %d of %d of a key", seen.all, limited.all, seen.key, limited.key)
	if removed := w.remove(ctx, path); err == nil {
		err = removed
	}
	if err != nil {
		return err
	}
	wrong, err := w.passedAgent(ctx, idsOf(requests))
	in.wrong = append(in.wrong, wrong...)
	if err != nil {
		return err
	}
	wrong, err = w.added(ctx, target, len(before), map[string]int{"limit.set": 1, "limit.remove": 1})
	in.wrong = append(in.wrong, wrong...)
	return err
}

// killAtWork kills an owner while calls are at work and more tasks wait.
func (w *world) killAtWork(ctx context.Context, in *injection, more []drone.Request) error {
	if err := w.atWork(ctx, more); err != nil {
		return err
	}
	err := w.kill(ctx, in, one(in, w.owners()))
	in.pick++
	return err
}

// atWork submits more tasks, and waits until another call has begun at the agent's service and one is at work.
func (w *world) atWork(ctx context.Context, more []drone.Request) error {
	before, _ := w.gauge.count()
	if err := w.submitBounded(ctx, more); err != nil {
		return err
	}
	return w.await(ctx, "agent "+boundedAgent+" is not called", func(context.Context) (bool, error) {
		began, working := w.gauge.count()
		return began > before && working > 0, nil
	})
}

// passedAgent waits until bounded tasks have ended, and says which of them the agent, or the time that they waited for
// it, has failed: services refuse some at other steps.
func (w *world) passedAgent(ctx context.Context, ids []string) (wrong []string, err error) {
	is, err := w.endedAll(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if v := is[id]; heldBack(&v) {
			wrong = append(wrong, fmt.Sprintf("task %s has ended as %s, failed at step %q: its agent was to be waited for", id, v.State, v.FailedStep))
		}
	}
	return wrong, nil
}

// heldBack reports whether a task that has ended failed at the bounded step, or at none.
func heldBack(v *core.View) bool {
	return v.State != core.StateProcessed && (v.FailedStep == "" || v.FailedStep == boundedStep.String())
}

const (
	brokenTasks   = 160 // more than the calls that open a breaker, and than those of its trials
	breakerKills  = 3
	breakerSpans  = 2               // times that it is open at least until the service is back
	breakerNews   = time.Second     // until all nodes know that it is open
	breakerLeft   = 2 * time.Second // that it is to be open still when an owner is killed
	shards        = 2               // committers of a node: the default of --shards
	triesEach     = 16              // of a committer, one after the other, until it is stored that a trial has failed: some 7 on a busy machine
	closingTasks  = 256             // at a time, until the breaker is closed
	breakerReason = "the carrier is away"
)

// breakerKill fails all calls of the agent until its breaker opens, and kills what owns partitions while it is open: the
// service hears of nothing but trials, no try is used up, and all is done when it is back.
func breakerKill(ctx context.Context, w *world, in *injection) error {
	ctx, cancel := context.WithTimeout(ctx, operatorMax)
	defer cancel()
	requests := w.load.bounded(brokenTasks, brokenTasks)
	ids := idsOf(requests)
	w.gauge.watch(requests, 0, atWork{})
	w.outage.close(boundedStep, breakerReason, ids...)
	in.begins()
	spans, err := w.whileBroken(ctx, in, func() error { return w.submitBounded(ctx, requests) })
	back := time.Now()
	w.outage.open(ids...)
	if err != nil {
		return err
	}
	wrong, err := w.passedAgent(ctx, ids)
	in.wrong = append(in.wrong, wrong...)
	if err != nil {
		return err
	}
	done := time.Since(back)
	open, trial := spans.calls(&w.gauge, back)
	committers := shards * len(w.owners())
	if most := breakerKills * committers; open > most {
		in.wrong = append(in.wrong, fmt.Sprintf("agent %s was called %d times while its breaker was open, want at most %d: what was out when an owner was killed", boundedAgent, open, most))
	}
	if most := spans.trials(back) * committers * triesEach; trial > most {
		in.wrong = append(in.wrong, fmt.Sprintf("agent %s was called %d times in %d trials, want at most %d", boundedAgent, trial, spans.trials(back), most))
	}
	in.on = fmt.Sprintf("open %d times, %d calls, %d in trials; done in %.1f s", len(spans), open, trial, done.Seconds())
	return w.closed(ctx)
}

// whileBroken submits what fails and kills owners while the breaker is open. It gives the spans in which it was.
func (w *world) whileBroken(ctx context.Context, in *injection, submit func() error) (openSpans, error) {
	looking, stop := context.WithCancel(ctx)
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		spans openSpans
	)
	wg.Go(func() {
		for pause(looking, lookEvery) == nil {
			if b, err := w.breaker(looking); err == nil {
				mu.Lock()
				spans.note(&b)
				mu.Unlock()
			}
		}
	})
	err := submit()
	open := func(so func(span openSpan, n int, now time.Time) bool) error {
		return w.await(ctx, "the breaker of agent "+boundedAgent+" is not open", func(context.Context) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			return len(spans) > 0 && so(spans[len(spans)-1], len(spans), time.Now()), nil
		})
	}
	for range breakerKills {
		if err == nil {
			err = open(func(s openSpan, _ int, now time.Time) bool {
				return now.After(s.since.Add(breakerNews)) && now.Before(s.until.Add(-breakerLeft))
			})
		}
		if err == nil {
			err = w.kill(ctx, in, one(in, w.owners()))
			in.pick++
		}
	}
	if err == nil {
		err = w.takenOver(ctx)
	}
	if err == nil {
		err = open(func(_ openSpan, n int, _ time.Time) bool { return n >= breakerSpans })
	}
	stop()
	wg.Wait()
	return spans, err
}

// breaker is the agent's, as it is stored.
func (w *world) breaker(ctx context.Context) (b core.Breaker, err error) {
	store, err := w.store()
	if err != nil {
		return b, err
	}
	all, err := store.Breakers(ctx)
	if i := slices.IndexFunc(all, func(b core.Breaker) bool { return b.Agent == boundedAgent }); i >= 0 {
		b = all[i]
	}
	return b, err
}

// openSpan is a time in which a breaker is open.
type openSpan struct{ since, until time.Time }

type openSpans []openSpan

// note adds the span of a breaker that is open, once.
func (s *openSpans) note(b *core.Breaker) {
	if b.State != core.BreakerOpen || len(*s) > 0 && (*s)[len(*s)-1].since.Equal(b.Since.Time()) {
		return
	}
	*s = append(*s, openSpan{b.Since.Time(), b.Until.Time()})
}

// calls are those that began in the spans, when all nodes knew of each, and those between them, up to a time.
func (s openSpans) calls(g *gauge, to time.Time) (open, trial int) {
	for i, span := range s {
		end := to
		if i+1 < len(s) {
			end = earlier(to, s[i+1].since.Add(breakerNews))
		}
		until := earlier(span.until, end)
		open += g.within(span.since.Add(breakerNews), until)
		trial += g.within(until, end)
	}
	return open, trial
}

// trials is how many there were up to a time.
func (s openSpans) trials(to time.Time) (n int) {
	for _, span := range s {
		if span.until.Before(to) {
			n++
		}
	}
	return n
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// closed submits more tasks until as many calls have succeeded as close the breaker.
func (w *world) closed(ctx context.Context) error {
	for {
		b, err := w.breaker(ctx)
		if err == nil && b.State == core.BreakerClosed {
			return nil
		}
		more := w.load.bounded(closingTasks, closingTasks)
		if err = w.submitBounded(ctx, more); err == nil {
			_, err = w.endedAll(ctx, idsOf(more))
		}
		if err != nil {
			return fmt.Errorf("the breaker of agent %s is %s: %w", boundedAgent, b.State, err)
		}
	}
}
