package scheduler

import (
	"duly.dev/duly/internal/core"
)

// turn is the scratch memory of one turn, kept between turns.
type turn struct {
	now   core.Instant
	leave core.Instant // when what is committed leaves
	mail  *Mail
	flush bool
	parts int // shards whose batches are one commit
	bytes int // of the batch, by TaskWrite.Size
	pos   struct{ told, control, reply, unserved, task, sub int }

	turned  Turned
	out     core.Outcome
	batch   core.Batch
	records []core.Record // arena of the batch's records
	owned   []*partition  // partitions of the batch, as batch.Partitions
	touched []touch       // tasks used in this round
	effects []pending
	endings []core.Ending // to be stored in the event stream
	refused []notice      // to be stored in the event stream
	notices []notice      // to be sent to submitters
	cmds    []core.Command
	results []core.StepResult // arena of the commands' results
}

// touch is a task used in the round.
type touch struct {
	p *partition
	e *entry
}

// pending is an effect that waits for its commit.
type pending struct {
	p      *partition
	e      *entry
	effect core.Effect
	end    int64 // of an ending: the number it was given
}

// notice is a status about a submission that waits for the commit: what it says
// may rest on a task that is not committed yet.
type notice struct {
	p       *partition
	subject string // of the submitter
	status  core.Status
}

func (t *turn) begin(now core.Instant, mail *Mail, flush bool) {
	t.now, t.mail, t.flush = now, mail, flush
	t.pos.told, t.pos.control, t.pos.reply, t.pos.unserved, t.pos.task, t.pos.sub = 0, 0, 0, 0, 0, 0
	t.turned.Lost = nil
}

// write adds the records of the outcome to the task's one write of the batch.
func (t *turn) write(e *entry, birth bool) {
	from := len(t.records)
	if e.write != 0 {
		t.bytes -= t.batch.Writes[e.write-1].Size()
	}
	if e.write == 0 {
		t.batch.Writes = append(t.batch.Writes, core.TaskWrite{Task: e.task, Birth: birth})
		e.write = len(t.batch.Writes)
	} else {
		t.records = append(t.records, t.batch.Writes[e.write-1].Records...)
	}
	t.records = append(t.records, t.out.Records...)
	w := &t.batch.Writes[e.write-1]
	w.Records = t.records[from:len(t.records):len(t.records)]
	w.Row = w.Row || (t.out.Row && !w.Birth)
	t.bytes += w.Size()
}

// endRound forgets the round and keeps its memory.
func (t *turn) endRound() {
	t.bytes = 0
	clear(t.batch.Writes)
	clear(t.records)
	clear(t.effects)
	clear(t.endings)
	clear(t.cmds)
	clear(t.touched)
	clear(t.results)
	clear(t.refused)
	clear(t.notices)
	t.batch.Writes, t.batch.Partitions = t.batch.Writes[:0], t.batch.Partitions[:0]
	t.records, t.owned, t.touched = t.records[:0], t.owned[:0], t.touched[:0]
	t.endings = t.endings[:0]
	t.effects, t.cmds, t.results = t.effects[:0], t.cmds[:0], t.results[:0]
	t.refused, t.notices = t.refused[:0], t.notices[:0]
}

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
