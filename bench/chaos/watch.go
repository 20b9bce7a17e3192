package main

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"
)

// askEvery is how often each process is asked whether it is ready.
const askEvery = 100 * time.Millisecond

// watch asks every process all the time whether it is ready, and keeps when that changed.
type watch struct {
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex
	seen map[string][]standing // by process, oldest first
}

// standing is what a process said from a moment on.
type standing struct {
	at      time.Time
	answers bool     // the process answered
	failing []string // conditions that keep it from being ready; none: it is
}

func (s *standing) ready() bool { return s.answers && len(s.failing) == 0 }

func (s *standing) same(o *standing) bool {
	return s.answers == o.answers && slices.Equal(s.failing, o.failing)
}

// newWatch begins to watch.
func newWatch(list []*process) *watch {
	ctx, stop := context.WithCancel(context.Background())
	w := &watch{stop: stop, seen: map[string][]standing{}}
	for _, p := range list {
		w.wg.Go(func() {
			for {
				w.note(p.name, p.standing(ctx))
				if pause(ctx, askEvery) != nil {
					return
				}
			}
		})
	}
	return w
}

func (w *watch) close() {
	w.stop()
	w.wg.Wait()
}

func (w *watch) note(name string, s standing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.seen[name]
	if n := len(all); n == 0 || !all[n-1].same(&s) {
		w.seen[name] = append(all, s)
	}
}

// forget drops what was before a moment, except how it stood then.
func (w *watch) forget(before time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, all := range w.seen {
		keep := 0
		for keep+1 < len(all) && all[keep+1].at.Before(before) {
			keep++
		}
		w.seen[name] = slices.Clone(all[keep:])
	}
}

// unready is how long after a moment the first process said that it is not ready because
// of one of these conditions (none given: of any), and how long until all said that they are
// ready again. False: none said so.
func (w *watch) unready(since time.Time, names []string) (after, again time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, all := range w.seen {
		was := false
		for i := range all {
			s := &all[i]
			if s.at.Before(since) {
				continue
			}
			if is := s.because(names); is {
				if d := s.at.Sub(since); !ok || d < after {
					after, ok = d, true
				}
				was = true
			} else if was && s.ready() {
				again, was = max(again, s.at.Sub(since)), false
			}
		}
	}
	return after, again, ok
}

// waiting is a process that has not said yet that it is ready; empty: there is none.
func (w *watch) waiting() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, all := range w.seen {
		if n := len(all); n > 0 && !all[n-1].ready() {
			return name
		}
	}
	return ""
}

// because reports whether it was not ready for one of these reasons.
func (s *standing) because(names []string) bool {
	if len(names) == 0 {
		return len(s.failing) > 0
	}
	return slices.ContainsFunc(s.failing, func(f string) bool { return slices.Contains(names, f) })
}

// standing asks once.
func (p *process) standing(ctx context.Context) standing {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.ready, nil)
	if err != nil {
		return standing{at: time.Now()}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return standing{at: time.Now()}
	}
	defer resp.Body.Close()
	var said struct {
		Failing []struct {
			Name string `json:"name"`
		} `json:"failing"`
	}
	s := standing{at: time.Now(), answers: true}
	if resp.StatusCode == http.StatusOK {
		return s
	}
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil || len(said.Failing) == 0 {
		s.failing = []string{"unnamed"}
		return s
	}
	for _, f := range said.Failing {
		s.failing = append(s.failing, f.Name)
	}
	slices.Sort(s.failing)
	s.failing = slices.Compact(s.failing)
	return s
}
