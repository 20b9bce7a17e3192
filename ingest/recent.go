package ingest

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"time"
	"unsafe"

	"duly.dev/duly/internal/core"
)

// recent remembers, in a fixed amount of memory, which ids were accepted here last and
// with what. It remembers hashes: two ids of one hash among some ten thousand do not
// happen in the life of a process, and what has one hash by chance is judged by the
// owner.
type recent struct {
	seed maphash.Seed
	mu   sync.Mutex         // of the sets: any goroutine may ask has
	sets [][recentWays]seen // a power of two of them
}

// recentWays is how many ids share a place; the oldest of them makes room.
const recentWays = 4

// recentSetsMax bounds the memory whatever the configuration says: 96 MiB.
const recentSetsMax = 1 << 20

// seen is one id that was accepted.
type seen struct {
	mark
	at core.Instant // 0: nothing is here
}

// mark is what a submission is known by.
type mark struct{ id, content uint64 }

func newRecent(bytes int64) *recent {
	n := bytes / int64(unsafe.Sizeof([recentWays]seen{}))
	n = min(max(n, 1), recentSetsMax)
	return &recent{seed: maphash.MakeSeed(), sets: make([][recentWays]seen, 1<<(bits.Len64(uint64(n))-1))}
}

// markOf of a submission: the same id, type and input have the same.
func (r *recent) markOf(sub *core.Submission) mark {
	kind := maphash.String(r.seed, sub.Type)
	var input maphash.Hash
	input.SetSeed(r.seed)
	core.Compact(sub.Input, func(part []byte) { _, _ = input.Write(part) })
	return mark{maphash.String(r.seed, sub.ID), bits.RotateLeft64(kind, 1) ^ input.Sum64()}
}

func (r *recent) set(id uint64) *[recentWays]seen { return &r.sets[id&uint64(len(r.sets)-1)] }

// differs reports whether the id was accepted with something else within that time.
func (r *recent) differs(m mark, now core.Instant, within time.Duration) bool {
	set := r.set(m.id)
	for i := range set {
		if s := &set[i]; s.id == m.id && s.at != 0 {
			return s.content != m.content && s.at.Add(within) > now
		}
	}
	return false
}

// has reports whether the id was accepted.
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

// same reports whether the id was accepted with the same.
func (r *recent) same(m mark) bool {
	set := r.set(m.id)
	for i := range set {
		if set[i].mark == m && set[i].at != 0 {
			return true
		}
	}
	return false
}

// add remembers what was accepted. Of one id the last counts: it is the one whose
// answer is the newest.
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
