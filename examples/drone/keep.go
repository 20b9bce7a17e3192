package drone

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/examples/keep"
)

// The agents of the steps that leave effects.
const (
	agentPackage  = "package.create"
	agentDrone    = "drone.schedule"
	agentDelivery = "delivery.create"
)

// ByAgent are the books of the services whose effects can be undone, by the agent that answers for them: see
// duly.WithBooks.
func (b *Books) ByAgent() map[string]duly.Books {
	return map[string]duly.Books{agentPackage: kept{b, StepPackage}, agentDrone: kept{b, StepDrone}, agentDelivery: kept{b, StepDelivery}}
}

// Keep has the books kept in a file, and reads what is there. Close ends that.
func (s *Services) Keep(path string) error {
	file, effects, err := keep.Open(path)
	if err != nil {
		return err
	}
	for _, e := range effects {
		task, _, _ := strings.Cut(e.Key, "/")
		for i := range s.each {
			round, err := splitKey(e.Key, task, Step(i))
			if err != nil {
				continue // another step's
			}
			hash := hashText(task)
			sh := s.books.shard(hash)
			sh.mu.Lock()
			at := &sh.open(hash, task, round).entries[i]
			at.live, at.applied, at.flags = uint8(e.Times), uint8(e.Times), flagDone
			if at.serial = s.each[i].serial(&call{Call: Call{Task: task, Key: e.Key}, step: Step(i), round: round, hash: hash}); e.Times == 0 {
				at.flags |= flagTombstone
			}
			sh.mu.Unlock()
		}
	}
	s.books.file = file
	return nil
}

// Close closes the file of Keep, after the agent has ended.
func (s *Services) Close() error { return s.books.file.Close() }

// kept are the books of one service.
type kept struct {
	books *Books
	step  Step
}

// Since implements duly.Books, whatever the time: these books keep none. The place of a page is a shard and a row of it.
func (k kept) Since(_ context.Context, _ time.Time, after string, limit int) (effects []duly.Effect, next string, err error) {
	shard, at := 0, 0
	if after != "" {
		if _, err := fmt.Sscanf(after, "%d.%d", &shard, &at); err != nil || shard < 0 || at < 0 {
			return nil, "", fmt.Errorf("page after %q: want the next of a page", after)
		}
	}
	for ; shard < shardCount; shard, at = shard+1, 0 {
		if next = k.page(shard, at, limit, &effects); next != "" {
			return effects, next, nil
		}
	}
	return effects, "", nil
}

// page adds effects from a row of a shard on, and says where the next page begins if there is no room for all.
func (k kept) page(shard, from, limit int, effects *[]duly.Effect) (next string) {
	sh := &k.books.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for at := from; at/chunkRows < len(sh.chunks) && at%chunkRows < len(sh.chunks[at/chunkRows]); at++ {
		r := &sh.chunks[at/chunkRows][at%chunkRows]
		live := r.entries[k.step].live
		if live == 0 {
			continue
		}
		if len(*effects) == limit {
			return strconv.Itoa(shard) + "." + strconv.Itoa(at)
		}
		*effects = append(*effects, duly.Effect{Key: fmt.Sprintf("%s/%s/%d", sh.task(r), k.step, r.round), Times: int(live)})
	}
	return ""
}

// Find implements duly.Books.
func (k kept) Find(_ context.Context, keys []string) (effects []duly.Effect, err error) {
	for _, key := range keys {
		task, _, _ := strings.Cut(key, "/")
		round, err := splitKey(key, task, k.step)
		if err != nil {
			return nil, err
		}
		hash := hashText(task)
		sh := k.books.shard(hash)
		sh.mu.Lock()
		r := sh.find(hash, task)
		for r != nil && r.round != int32(round) {
			r = sh.at(r.next)
		}
		if r != nil && r.entries[k.step].live > 0 {
			effects = append(effects, duly.Effect{Key: key, Times: int(r.entries[k.step].live)})
		}
		sh.mu.Unlock()
	}
	return effects, nil
}

// Ghost adds to a report what a comparison of the journal with these books found about a task: an effect that was made
// more than once, or one that stands or is missing where it should not.
func (r *Report) Ghost(doubled bool, task, why string) {
	f := FoundHalfDone
	if doubled {
		f = FoundDoubled
	}
	r.found(f, task, why)
}
