package pgfault

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
)

// Kind is one way to fail.
type Kind int

// What a proxy does instead of passing a request on and its answer back.
const (
	none              Kind = iota
	RetryAtStatement       // 40001 at a statement, or one that is a transaction by itself
	RetryAtCommit          // 40001 at the end of a transaction
	UnknownCommitted       // 40003 after a commit that happened
	UnknownRolledBack      // 40003 after one that did not
	LostBefore             // the connection, before the request was run
	LostAfter              // the connection, after a commit that happened, or with CutAfter any request
	Slow                   // the answer comes late
)

// Kinds are all ways to fail.
var Kinds = []Kind{RetryAtStatement, RetryAtCommit, UnknownCommitted, UnknownRolledBack, LostBefore, LostAfter, Slow}

// String implements fmt.Stringer.
func (k Kind) String() string {
	switch k {
	case RetryAtStatement:
		return "40001 at a statement"
	case RetryAtCommit:
		return "40001 at commit"
	case UnknownCommitted:
		return "40003, committed"
	case UnknownRolledBack:
		return "40003, rolled back"
	case LostBefore:
		return "connection lost before"
	case LostAfter:
		return "connection lost after commit"
	case Slow:
		return "slow answer"
	}
	return fmt.Sprintf("kind %d", int(k))
}

// Faults say what a proxy does.
type Faults struct {
	Seed      uint64
	Rate      float64 // share of the requests that fail, 0 to 1
	Only      []Kind  // none: all
	Cockroach bool    // look like a CockroachDB
	// Faults begin with the first request that holds From and end with the first
	// one after it that holds Until; "" is at once, and never.
	From, Until string
	// CutAt loses the connection before the request of that number, counted from 1
	// over all connections, and is the only fault then. 0: none.
	CutAt int
	// CutAtWrite is CutAt counted over those requests alone that may change what is stored:
	// what writes outside of a transaction, and the end of one.
	CutAtWrite int
	// CutAfter is CutAt once the server has run the request: its answer is lost.
	CutAfter int
	// Watch is told of each request, by its number from 1 and the texts that it runs, before the server gets it and, with ran,
	// before the client gets the answer. The request waits for it; where it says so, the connection is lost there.
	Watch func(number int, texts []string, ran bool) (cut bool)
}

func (f *Faults) check() error {
	if !(f.Rate >= 0 && f.Rate <= 1) { // NaN is neither
		return fmt.Errorf("faults: rate %v, want 0 to 1", f.Rate)
	}
	if f.CutAt < 0 {
		return fmt.Errorf("faults: cut at request %d, want 0 or more", f.CutAt)
	}
	if f.CutAtWrite < 0 {
		return fmt.Errorf("faults: cut at write %d, want 0 or more", f.CutAtWrite)
	}
	if f.CutAfter < 0 {
		return fmt.Errorf("faults: cut after request %d, want 0 or more", f.CutAfter)
	}
	return nil
}

// dice draws faults and counts what came of them.
type dice struct {
	Faults

	mu       sync.Mutex
	rng      *rand.Rand
	begun    bool
	ended    bool
	requests int
	writes   int
	drawn    map[Kind]int
	counts   map[Kind]int // of those that happened
}

func newDice(f Faults) *dice {
	return &dice{Faults: f, rng: rand.New(rand.NewPCG(f.Seed, 0)), begun: f.From == "", drawn: map[Kind]int{}, counts: map[Kind]int{}}
}

// draw is what happens to a request with those texts at that point, and its number.
func (d *dice) draw(at point, texts []string) (Kind, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests++
	return d.kind(at, texts), d.requests
}

func (d *dice) kind(at point, texts []string) Kind {
	changes := at == write || at == commit
	if changes {
		d.writes++
	}
	if d.CutAt > 0 || d.CutAtWrite > 0 || d.CutAfter > 0 {
		if d.requests == d.CutAt || changes && d.writes == d.CutAtWrite {
			return LostBefore
		}
		return none
	}
	holds := func(part string) bool {
		return part != "" && slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(t, part) })
	}
	switch {
	case !d.begun:
		d.begun = holds(d.From)
	case !d.ended:
		d.ended = holds(d.Until)
	}
	if !d.begun || d.ended || d.rng.Float64() >= d.Rate {
		return none
	}
	kinds := at.kinds()
	if len(d.Only) > 0 {
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool { return !slices.Contains(d.Only, k) })
	}
	if len(kinds) == 0 {
		return none
	}
	// Of the kinds drawn least: each comes up before any does twice, also in a short run.
	least := d.drawn[slices.MinFunc(kinds, func(a, b Kind) int { return d.drawn[a] - d.drawn[b] })]
	kinds = slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool { return d.drawn[k] > least })
	k := kinds[d.rng.IntN(len(kinds))]
	d.drawn[k]++
	return k
}

// cuts reports whether the connection is lost at a request by what Watch or CutAfter says.
func (d *dice) cuts(number int, texts []string, ran bool) bool {
	cut := d.Watch != nil && d.Watch(number, texts, ran)
	if !cut && !(ran && number == d.CutAfter) {
		return false
	}
	if ran {
		d.count(LostAfter)
	} else {
		d.count(LostBefore)
	}
	return true
}

// wait is how long a slow answer takes, in milliseconds.
func (d *dice) wait() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return 1 + d.rng.IntN(5)
}

func (d *dice) count(k Kind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[k]++
}
