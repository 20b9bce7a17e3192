package main

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// kind is one kind of fault. Each has its name, where it fits, how long it holds,
// and what it does; run returns when the fault is over.
type kind struct {
	name        string
	fits        topology
	weight      int // of its turns against the others'; 1 as a rule
	least, most time.Duration
	older       bool // it runs the older binary
	operators   bool // it hits what operators do
	copies      bool // it copies the whole database, beside which there must be room for it
	due         *due // what must be told of it; nil: nothing
	run         func(ctx context.Context, w *world, in *injection) error
}

// injection is one fault of a plan.
type injection struct {
	kind  *kind
	pause time.Duration // before it
	hold  time.Duration // how long it lasts
	pick  uint64        // which of several it hits
	on    string        // what it hit, in words

	at     time.Time // when it began, by its run where something has to be prepared
	due    *due
	missed []string // what was not told as it should be, as far as its run has seen
	wrong  []string // what became of operators' work that must not
}

// begins notes that all is prepared and the fault begins.
func (in *injection) begins() { in.at = time.Now() }

// Between two faults the system works undisturbed for a moment.
const (
	pauseLeast = 100 * time.Millisecond
	pauseMost  = 1500 * time.Millisecond
)

// plan draws faults from a seed: first each kind once, in any order but those that copy the database before it has grown, then
// at random by weight. The same seed and kinds draw the same faults.
type plan struct {
	kinds  []*kind
	random *rand.Rand
	first  []int // the kinds that have not had a turn
}

// newPlan needs at least one kind.
func newPlan(kinds []*kind, seed uint64) *plan {
	p := &plan{kinds: kinds, random: rand.New(rand.NewPCG(seed, 0x6368616f73))}
	p.first = p.random.Perm(len(kinds))
	slices.SortStableFunc(p.first, func(a, b int) int { return cmp.Compare(p.turn(a), p.turn(b)) })
	return p
}

// turn is when a kind has its first turn.
func (p *plan) turn(kind int) int {
	if p.kinds[kind].copies {
		return 0
	}
	return 1
}

// all reports whether every kind has had its turn.
func (p *plan) all() bool { return len(p.first) == 0 }

// next draws one fault.
func (p *plan) next() *injection {
	k := p.draw()
	return &injection{
		kind: k, due: k.due, pause: p.between(pauseLeast, pauseMost), hold: p.between(k.least, k.most), pick: p.random.Uint64(),
	}
}

func (p *plan) draw() *kind {
	if len(p.first) > 0 {
		k := p.kinds[p.first[0]]
		p.first = p.first[1:]
		return k
	}
	sum := 0
	for _, k := range p.kinds {
		sum += k.weight
	}
	at := p.random.IntN(sum)
	for _, k := range p.kinds {
		if at -= k.weight; at < 0 {
			return k
		}
	}
	return p.kinds[0] // not reached: the weights add up
}

func (p *plan) between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(p.random.Int64N(int64(most-least)))
}

// one picks one of several by the injection's draw.
func one[T any](in *injection, of []T) T { return of[in.pick%uint64(len(of))] }

// onlyOperators stands in a list of names for all kinds that hit what operators do.
const onlyOperators = "operators"

// fitting are the kinds for a topology; only, where set, names those that count.
func fitting(t topology, only string) []*kind {
	var list []*kind
	names := strings.Split(only, ",")
	for i := range kinds {
		if k := &kinds[i]; k.fits&t != 0 && (only == "" || slices.Contains(names, k.name) || k.operators && slices.Contains(names, onlyOperators)) {
			list = append(list, k)
		}
	}
	return list
}
