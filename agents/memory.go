package agents

import (
	"cmp"
	"context"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
)

// Bounds of a [MemoryLedger] where its maker names none.
const (
	LedgerAgeDefault  = 10 * time.Minute
	LedgerKeysDefault = 1 << 20
)

// MemoryLedger is a [Ledger] in the memory of one process, for tests and for
// agents that run as one process and have no store of their own. It is bounded: a key
// is forgotten when it has been idle for age; when keysMax keys are remembered and none
// is old enough, a new one gets [ErrLedgerFull] rather than another being forgotten
// early. It is safe for concurrent use.
type MemoryLedger struct {
	now     func() core.Instant
	age     time.Duration
	keysMax int

	mu      sync.Mutex
	entries map[string]*entry
	idle    []idleKey // in the order of time; an entry that was used again is in it twice
}

// entry is what is known of one key.
type entry struct {
	working   bool // a do or undo is at work
	done      bool // do succeeded
	tomb      bool // undo has begun
	undone    bool // undo succeeded
	result    []byte
	idleSince core.Instant
}

// idleKey is an entry's place in the order of forgetting.
type idleKey struct {
	key   string
	since core.Instant
}

// NewMemoryLedger makes an empty ledger by the clock of now. Zero age and
// keysMax are LedgerAgeDefault and LedgerKeysDefault.
func NewMemoryLedger(now func() core.Instant, age time.Duration, keysMax int) *MemoryLedger {
	age = cmp.Or(age, LedgerAgeDefault)
	keysMax = cmp.Or(keysMax, LedgerKeysDefault)
	return &MemoryLedger{now: now, age: age, keysMax: keysMax, entries: map[string]*entry{}}
}

// Len is how many keys are remembered.
func (l *MemoryLedger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget()
	return len(l.entries)
}

// Do implements [Ledger].
func (l *MemoryLedger) Do(ctx context.Context, key string, work func(context.Context) ([]byte, error)) ([]byte, error) {
	e, result, err := l.claim(key, false)
	if err != nil || e == nil {
		return result, err
	}
	completed := false
	// Deferred, so that work that panics does not hold the key for ever.
	defer func() {
		l.release(key, e, func() {
			if completed && err == nil {
				e.done, e.result = true, result
			}
		})
	}()
	result, err = work(ctx)
	completed = true
	return result, err
}

// Undo implements [Ledger].
func (l *MemoryLedger) Undo(ctx context.Context, key string, work func(context.Context, []byte, bool) error) error {
	e, result, err := l.claim(key, true)
	if err != nil || e == nil {
		return err
	}
	completed := false
	defer func() {
		l.release(key, e, func() {
			if completed && err == nil {
				e.undone, e.result = true, nil
			}
		})
	}()
	err = work(ctx, result, e.done)
	completed = true
	return err
}

// claim takes the key for work and gives what do answered, if it did. A nil
// entry without an error means that the work was done before.
func (l *MemoryLedger) claim(key string, undo bool) (*entry, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget()
	e := l.entries[key]
	switch {
	case e == nil:
		if len(l.entries) >= l.keysMax {
			return nil, nil, ErrLedgerFull
		}
		e = &entry{}
		l.entries[key] = e
	case !undo && e.tomb:
		return nil, nil, ErrGone // also while the undo is at work: it can only end undone
	case e.working:
		return nil, nil, ErrInProgress
	case undo && e.undone, !undo && e.done:
		return nil, e.result, nil
	}
	e.working = true
	e.tomb = e.tomb || undo
	return e, e.result, nil
}

// release ends the work on the key. A key of which nothing is known is forgotten at once.
func (l *MemoryLedger) release(key string, e *entry, change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	e.working = false
	if !e.done && !e.tomb {
		delete(l.entries, key)
		return
	}
	e.idleSince = l.now()
	l.idle = append(l.idle, idleKey{key, e.idleSince})
}

// forget drops what has been idle for age. Each element of idle is looked at once, so
// the cost per key is constant.
func (l *MemoryLedger) forget() {
	limit := l.now().Add(-l.age)
	for len(l.idle) > 0 && l.idle[0].since <= limit {
		k := l.idle[0]
		l.idle[0] = idleKey{} // frees the key before append moves what is left
		l.idle = l.idle[1:]
		// An entry that was used since is further behind once more.
		if e := l.entries[k.key]; e != nil && !e.working && e.idleSince == k.since {
			delete(l.entries, k.key)
		}
	}
}
