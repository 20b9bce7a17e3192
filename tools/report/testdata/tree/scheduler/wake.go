package scheduler

import (
	"sync"
	"time"
)

type Committer struct {
	shard *Shard
	wait  sync.WaitGroup
}

func (c *Committer) Run() { c.wait.Wait() }

// wrapped has a Shard, so that its method is one of it.
type wrapped struct{ s *Shard }

func (w *wrapped) again() { wake(w.s, 0) }

func wake(s *Shard, slot int) {
	p := s.parts[0]
	p.ready[slot], p.n = true, 0
	p.looking[slot] = false
	p.looking = append(p.looking, false)
	s.now = int(time.Millisecond)
}

const limit = 1
