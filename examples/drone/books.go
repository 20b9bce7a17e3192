package drone

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/examples/keep"
)

// Step is one of the five steps of a delivery, in their order.
type Step uint8

// The steps.
const (
	StepAccount Step = iota
	StepPackage
	StepTransport
	StepDrone
	StepDelivery

	StepCount = 5
)

var stepNames = [StepCount]string{"account", "package", "transport", "drone", "delivery"}

// String is the step's name in the plan.
func (s Step) String() string { return stepNames[s] }

// Undoable is false for the two checks, which leave nothing behind.
func (s Step) Undoable() bool { return s != StepAccount && s != StepTransport }

// Books are the ledgers of all five services: what every key was asked, and
// what of it is in effect. One row per task holds all five, because a million
// tasks must fit; each service touches its own entry alone.
type Books struct {
	shards [shardCount]shard
	keep   bool // the full log too
	file   *keep.File
}

// shardCount spreads the locks; a power of two.
const shardCount = 256

// shard holds its rows without a pointer among them: a million tasks must not be
// work for the garbage collector, which would look at each of them every time.
type shard struct {
	mu     sync.Mutex
	rows   map[uint64]place // round 0 of a task, by the hash of its id
	last   [lastRows]found  // of them, those that were found last: a task's calls come close together
	chunks [][]row          // they never move: a call keeps its entry
	ids    []byte           // of the tasks, one after the other
	log    []LogLine
}

// found is what rows holds for a hash.
type found struct {
	hash uint64
	at   place // 0: nothing is remembered here
}

const lastRows = 64 // a power of two

// first gives the first row for a hash; 0: there is none.
func (sh *shard) first(hash uint64) place {
	last := &sh.last[(hash>>32)%lastRows]
	if last.hash != hash || last.at == 0 {
		*last = found{hash, sh.rows[hash]}
	}
	return last.at
}

// chunkRows is how many rows are made at a time.
const chunkRows = 64

// place is that of a row among a shard's, from 1; 0 is none.
type place uint32

// row is one round of one task.
type row struct {
	id      uint32 // where it begins in ids
	length  uint32 // of the id
	entries [StepCount]entry
	round   int32
	next    place // a later round, made by a resubmission after an undo
	other   place // round 0 of another task whose id has the same hash
}

// entry is what one service knows of one key.
type entry struct {
	serial  uint32 // what the first effect made: the drone's number, …
	calls   uint16 // do and undo together, as they arrived
	applied uint8  // effects that do ever made; of a check, its successes
	live    uint8  // effects that stand
	ghosts  uint8  // effects made although the tombstone stood
	flags   uint8
	last    uint8 // attempt of the newest call, with lastUndo
	repeat  uint8 // how often that attempt was made before
	closed  uint8 // a probe found no effect of these attempts: those still on their way, also after the grace, make none
}

const (
	flagBusy      = 1 << iota // a call for the key is in progress
	flagDone                  // a do has answered well, or would have
	flagTombstone             // undo came: no do may ever take effect again

	lastUndo = 1 << 7
)

// LogLine is one call in the full log.
type LogLine struct {
	Step    Step
	Task    string
	Key     string
	Attempt int
	Undo    bool
	Began   time.Time
	Ended   time.Time
	Late    bool  // the effect of a call that was given up; Began is when it was
	Applied bool  // this call changed what is in effect
	Live    bool  // an effect of the key stands after it
	Code    int   // of the failure; 0 for success, 408 for silence
	Err     error // nil for success
}

// ErrKey is returned for a key that does not read <task>/<step>/<round>.
var ErrKey = errors.New("key refused")

// splitKey takes a key apart without allocating; task and step come from the
// call itself, so the key must agree with them.
func splitKey(key, task string, step Step) (round int, err error) {
	rest, ok := strings.CutPrefix(key, task)
	if ok {
		rest, ok = strings.CutPrefix(rest, "/")
	}
	if ok {
		rest, ok = strings.CutPrefix(rest, stepNames[step])
	}
	if ok {
		rest, ok = strings.CutPrefix(rest, "/")
	}
	if ok && len(rest) > 0 && len(rest) < 9 {
		for i := 0; i < len(rest) && ok; i++ {
			ok = rest[i] >= '0' && rest[i] <= '9'
			round = round*10 + int(rest[i]-'0')
		}
		if ok {
			return round, nil
		}
	}
	return 0, fmt.Errorf("%w: %q, want %s/%s/<round>", ErrKey, key, task, step)
}

// rounds are the rows of one task, from one on. Their shard is held while they
// are looked at; the zero value is a task that no service has heard of.
type rounds struct {
	shard *shard
	first *row
}

func (sh *shard) at(p place) *row {
	if p == 0 {
		return nil
	}
	return &sh.chunks[(p-1)/chunkRows][(p-1)%chunkRows]
}

// tasks are round 0 of each, in no order.
func (sh *shard) tasks() iter.Seq[*row] {
	return func(yield func(*row) bool) {
		for _, at := range sh.rows {
			for r := sh.at(at); r != nil; r = sh.at(r.other) {
				if !yield(r) {
					return
				}
			}
		}
	}
}

func (sh *shard) task(r *row) []byte { return sh.ids[r.id : r.id+r.length] }

// add makes a row.
func (sh *shard) add(r row) (place, *row) {
	n := len(sh.chunks)
	if n == 0 || len(sh.chunks[n-1]) == chunkRows {
		sh.chunks = append(sh.chunks, make([]row, 0, chunkRows))
		n++
	}
	last := &sh.chunks[n-1]
	*last = append(*last, r)
	return place((n-1)*chunkRows + len(*last)), &(*last)[len(*last)-1]
}

// find returns round 0 of a task, or nil. The caller holds the shard. A map by
// hash spares a look at every id it passes: at a million tasks each is a cache
// miss.
func (sh *shard) find(hash uint64, task string) *row {
	r := sh.at(sh.first(hash))
	for r != nil && string(sh.task(r)) != task {
		r = sh.at(r.other)
	}
	return r
}

// open finds or makes the row of a task's round. The caller holds the shard.
func (sh *shard) open(hash uint64, task string, round int) *row {
	r := sh.find(hash, task)
	if r == nil {
		if sh.rows == nil {
			sh.rows = make(map[uint64]place)
		}
		id := uint32(len(sh.ids))
		sh.ids = append(sh.ids, task...)
		at, r := sh.add(row{id: id, length: uint32(len(task)), round: int32(round), other: sh.rows[hash]})
		sh.rows[hash] = at
		sh.last[(hash>>32)%lastRows] = found{hash, at}
		return r
	}
	for r.round != int32(round) {
		if r.next == 0 {
			r.next, _ = sh.add(row{id: r.id, length: r.length, round: int32(round)})
		}
		r = sh.at(r.next)
	}
	return r
}

func (b *Books) shard(hash uint64) *shard { return &b.shards[mix(hash)%shardCount] }

// Tasks is how many tasks any service has heard of.
func (b *Books) Tasks() int {
	n := 0
	for i := range b.shards {
		sh := &b.shards[i]
		sh.mu.Lock()
		for range sh.tasks() {
			n++
		}
		sh.mu.Unlock()
	}
	return n
}

// Log returns the full log of one task, in the order in which the calls ended.
// It is empty unless ServiceOptions.Log was set.
func (b *Books) Log(task string) []LogLine {
	sh := b.shard(hashText(task))
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var lines []LogLine
	for _, line := range sh.log {
		if line.Task == task {
			lines = append(lines, line)
		}
	}
	return lines
}

// Entry is what one service's book says of a task, all rounds together.
type Entry struct {
	Calls      int    // do and undo together
	Applied    int    // effects ever made; of a check, its successes
	Live       int    // effects that stand
	Ghosts     int    // effects made although the tombstone stood
	Tombstones int    // rounds that an undo has closed
	Busy       bool   // a call is in progress
	Serial     uint32 // what the newest round's effect made; 0: nothing yet
}

// Entry reads one service's book about a task.
func (b *Books) Entry(task string, step Step) Entry {
	hash := hashText(task)
	sh := b.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return rounds{sh, sh.find(hash, task)}.sum(step)
}

// sum adds the rounds up.
func (all rounds) sum(step Step) Entry {
	var s Entry
	for r := all.first; r != nil; r = all.shard.at(r.next) {
		e := &r.entries[step]
		s.Calls += int(e.calls)
		s.Applied += int(e.applied)
		s.Live += int(e.live)
		s.Ghosts += int(e.ghosts)
		s.Busy = s.Busy || e.flags&flagBusy != 0
		if e.flags&flagTombstone != 0 {
			s.Tombstones++
		}
		if e.serial != 0 {
			s.Serial = e.serial
		}
	}
	return s
}
