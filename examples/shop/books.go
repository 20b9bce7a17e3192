package shop

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/examples/keep"
)

// keptFor is how long a service remembers an effect for its books: longer than anyone compares.
const keptFor = 25 * time.Hour

// ledger is what one service has done, by the keys of its effects. It is duly.Books, for comparing with Duly's journal.
type ledger struct {
	mu      sync.Mutex
	first   int64 // place of entries[0]
	entries []effect
	places  map[string]int64 // of what stands
	file    *keep.File       // nil: it is forgotten with the process
}

// open has the ledger kept in a file, and reads what is there.
func (l *ledger) open(path string) error {
	file, effects, err := keep.Open(path)
	if err != nil {
		return err
	}
	for _, e := range effects {
		if e.Times > 0 && time.Since(e.At) <= keptFor {
			_ = l.do(e.Key, e.At) // it is there already
		}
	}
	l.file = file
	return nil
}

type effect struct {
	key   string
	at    time.Time
	gone  bool
	asked int // how often an undo was asked for
}

// do notes an effect, once.
func (l *ledger) do(key string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.places == nil {
		l.places = map[string]int64{}
	}
	if _, there := l.places[key]; there {
		return nil
	}
	if err := l.file.Add(keep.Effect{Key: key, At: now, Times: 1}); err != nil {
		return err
	}
	l.places[key] = l.first + int64(len(l.entries))
	l.entries = append(l.entries, effect{key: key, at: now})
	for len(l.entries) > 0 && (l.entries[0].gone || now.Sub(l.entries[0].at) > keptFor) {
		if !l.entries[0].gone {
			delete(l.places, l.entries[0].key)
		}
		l.entries, l.first = l.entries[1:], l.first+1
	}
	return nil
}

// undo takes an effect back. A service that forgets does so the first time that it is asked.
func (l *ledger) undo(key string, forgets bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	place, there := l.places[key]
	if !there {
		return nil
	}
	e := &l.entries[place-l.first]
	if e.asked++; forgets && e.asked == 1 {
		return nil
	}
	if err := l.file.Add(keep.Effect{Key: key, At: e.at}); err != nil {
		return err
	}
	e.gone = true
	delete(l.places, key)
	return nil
}

// Since implements duly.Books.
func (l *ledger) Since(_ context.Context, since time.Time, after string, limit int) (effects []duly.Effect, next string, err error) {
	from := int64(0)
	if after != "" {
		if from, err = strconv.ParseInt(after, 10, 64); err != nil {
			return nil, "", fmt.Errorf("page after %q: want the next of a page", after)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	begin, _ := slices.BinarySearchFunc(l.entries, since, func(e effect, t time.Time) int { return e.at.Compare(t) })
	for i := max(begin, int(from-l.first)); i < len(l.entries); i++ {
		e := &l.entries[i]
		if e.gone {
			continue
		}
		if len(effects) == limit {
			return effects, strconv.FormatInt(l.first+int64(i), 10), nil
		}
		effects = append(effects, duly.Effect{Key: e.key, Times: 1, At: e.at})
	}
	return effects, "", nil
}

// Find implements duly.Books.
func (l *ledger) Find(_ context.Context, keys []string) (effects []duly.Effect, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if place, there := l.places[key]; there {
			effects = append(effects, duly.Effect{Key: key, Times: 1, At: l.entries[place-l.first].at})
		}
	}
	return effects, nil
}
