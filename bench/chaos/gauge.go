package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/examples/drone"
)

// gauge is at the service of the bounded tasks: it counts the tasks whose calls are at work at one
// time, and makes calls last. A task counts once however many of its calls are at work, because a
// new owner of a partition may send a command again.
type gauge struct {
	mu    sync.Mutex
	keys  map[string]string // the key of each task that is watched
	takes time.Duration     // a call, before the service
	most  atWork            // that is allowed; 0: any number
	calls map[string]int    // at work, by task
	seen  atWork            // the most that there was
	over  []string          // what was more than is allowed, overMax at most
	began []time.Time       // each call
}

// atWork is how many tasks have a call at work: in all, and of one key.
type atWork struct{ all, key int }

// overMax is how often it is told that more was at work than is allowed.
const overMax = 5

// watch begins to count the calls for tasks, from nothing.
func (g *gauge) watch(requests []drone.Request, takes time.Duration, most atWork) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys, g.calls = make(map[string]string, len(requests)), map[string]int{}
	for i := range requests {
		g.keys[requests[i].DeliveryID] = requests[i].OwnerID
	}
	g.takes, g.most, g.seen, g.over, g.began = takes, most, atWork{}, nil, nil
}

// release ends the bounds, and returns what was more than they allow, and the most that there was.
func (g *gauge) release() (over []string, seen atWork) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most = atWork{}
	return g.over, g.seen
}

// enter counts a call, until leave, and says how long it is to take. Calls for tasks that are not
// watched are none of its.
func (g *gauge) enter(ask *Ask) (takes time.Duration, leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := ask.Call.Task
	key, watched := g.keys[id]
	if !watched || ask.Step != boundedStep || ask.Undo {
		return 0, func() {}
	}
	now := time.Now()
	g.began = append(g.began, now)
	calls := g.calls
	if calls[id]++; calls[id] == 1 {
		g.measure(now, key)
	}
	return g.takes, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if calls[id]--; calls[id] == 0 {
			delete(calls, id)
		}
	}
}

// measure holds what is at work against what is allowed, when a task of a key is one more. g is locked.
func (g *gauge) measure(now time.Time, key string) {
	is := atWork{all: len(g.calls)}
	var same []string
	for id := range g.calls {
		if g.keys[id] == key {
			same = append(same, id)
		}
	}
	is.key = len(same)
	g.seen = atWork{max(g.seen.all, is.all), max(g.seen.key, is.key)}
	tell := func(what string, n, most int, ids []string) {
		if most > 0 && n > most && len(g.over) < overMax {
			slices.Sort(ids)
			g.over = append(g.over, fmt.Sprintf("%s: %d tasks%s are at work at one time, the limit is %d: %s", now.UTC().Format("15:04:05.000"), n, what, most, strings.Join(ids, " ")))
		}
	}
	tell("", is.all, g.most.all, slices.Collect(maps.Keys(g.calls)))
	tell(" of key "+key, is.key, g.most.key, same)
}

// count is how many calls have begun, and how many tasks have one at work.
func (g *gauge) count() (began, working int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.began), len(g.calls)
}

// within is how many calls began from one time on and before another.
func (g *gauge) within(from, to time.Time) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, at := range g.began {
		if !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// take lets a call's time pass, or ends early with the context.
func take(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	return pause(ctx, d)
}
