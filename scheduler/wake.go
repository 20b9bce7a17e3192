package scheduler

import "duly.dev/duly/internal/core"

// wake is one backoff or grace that ends.
type wake struct {
	at        core.Instant
	partition int
	number    int64
	served    bool // its agent is there again
}

// wakeHeap is a binary heap by time.
type wakeHeap []wake

func (h *wakeHeap) push(w wake) {
	*h = append(*h, w)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if s[up].at <= s[i].at {
			return
		}
		s[up], s[i] = s[i], s[up]
		i = up
	}
}

func (h *wakeHeap) pop() wake {
	s := *h
	w := s[0]
	last := len(s) - 1
	s[0] = s[last]
	*h = s[:last]
	h.down(0)
	return w
}

func (h *wakeHeap) down(i int) {
	s := *h
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(s); c++ {
			if s[c].at < s[least].at {
				least = c
			}
		}
		if least == i {
			return
		}
		s[least], s[i] = s[i], s[least]
		i = least
	}
}

// forget removes the wakes of a partition.
func (h *wakeHeap) forget(partition int) {
	kept := (*h)[:0]
	for _, w := range *h {
		if w.partition != partition {
			kept = append(kept, w)
		}
	}
	*h = kept
	for i := len(kept)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}
