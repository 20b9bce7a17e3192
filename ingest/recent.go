package ingest

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"time"
	"unsafe"

	"duly.dev/duly/internal/core"
)

// recent remembers in a fixed amount of memory which ids this door accepted last, and with what. It keeps
// hashes. Two recent ids with the same hash are too unlikely to matter, and even then the partition's owner
// judges by the ids themselves.
type recent struct {
	seed maphash.Seed
	// mu guards the sets, because any goroutine may call has. The door's goroutine alone changes them, and
	// reads without it.
	mu   sync.Mutex
	sets [][recentWays]seen // a power of two of them
}

// recentWays is how many ids share a set. A further one replaces the oldest.
const recentWays = 4

// recentSetsMax bounds the memory whatever the configuration says: 96 MiB.
const recentSetsMax = 1 << 20

// seen is an accepted id.
type seen struct {
	mark
	at core.Instant // 0: nothing is here
}

// mark stands for a submission: a hash of its id, and one of its type and input.
type mark struct{ id, content uint64 }

func newRecent(bytes int64) *recent {
	n := bytes / int64(unsafe.Sizeof([recentWays]seen{}))
	n = min(max(n, 1), recentSetsMax)
	return &recent{seed: maphash.MakeSeed(), sets: make([][recentWays]seen, 1<<(bits.Len64(uint64(n))-1))}
}

// markOf computes the mark of a submission. JSON that differs in spaces alone has the same.
func (r *recent) markOf(sub *core.Submission) mark {
	kind := maphash.String(r.seed, sub.Type)
	var input maphash.Hash
	input.SetSeed(r.seed)
	core.Compact(sub.Input, func(part []byte) { _, _ = input.Write(part) })
	return mark{maphash.String(r.seed, sub.ID), bits.RotateLeft64(kind, 1) ^ input.Sum64()}
}

// set is where an id is, if anywhere.
func (r *recent) set(id uint64) *[recentWays]seen { return &r.sets[id&uint64(len(r.sets)-1)] }

// differs reports whether the id was accepted with another type or input, less than within ago.
func (r *recent) differs(m mark, now core.Instant, within time.Duration) bool {
	set := r.set(m.id)
	for i := range set {
		if s := &set[i]; s.id == m.id && s.at != 0 {
			return s.content != m.content && s.at.Add(within) > now
		}
	}
	return false
}

// has reports whether the id was accepted lately. It is safe for concurrent use.
func (r *recent) has(id string) bool {
	hash := maphash.String(r.seed, id)
	r.mu.Lock()
	defer r.mu.Unlock()
	set := r.set(hash)
	for i := range set {
		if set[i].id == hash && set[i].at != 0 {
			return true
		}
	}
	return false
}

// same reports whether the same submission was accepted lately.
func (r *recent) same(m mark) bool {
	set := r.set(m.id)
	for i := range set {
		if set[i].mark == m && set[i].at != 0 {
			return true
		}
	}
	return false
}

// add remembers an accepted submission. It replaces an earlier one of the same id, whose answer is older.
func (r *recent) add(m mark, now core.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	set := r.set(m.id)
	oldest := 0
	for i := range set {
		if set[i].id == m.id {
			oldest = i
			break
		}
		if set[i].at < set[oldest].at {
			oldest = i
		}
	}
	set[oldest] = seen{m, now}
}
