package sim

import (
	"slices"

	"duly.dev/duly/internal/core"
)

// fence names one command, as its reply does.
type fence struct {
	partition   int
	number, seq int64
}

func fenceOf(r *core.Reply) fence { return fence{r.Partition, r.Number, r.Seq} }

// answer sends an agent's reply: late, lost, twice, or not the one it should be.
func (w *World) answer(c *core.Command, reply core.Reply) {
	w.tell(c.Task, -1, "row %d is answered: code %d %s", c.Seq, reply.Code, reply.Error)
	switch {
	case w.fault(ReplyLost):
		return
	case w.fault(ReplyForeign):
		w.travel(w.foreign(reply))
	case w.fault(ReplyGarbage): // what the bus makes of bytes that are no JSON
		reply.Code, reply.Error, reply.Result = core.CodeBadResult, "bad_result: not JSON", nil
	}
	at := fenceOf(&reply)
	if !slices.Contains(w.spoken[at], reply.Code) {
		w.spoken[at] = append(w.spoken[at], reply.Code)
	}
	w.travel(reply)
	if w.fault(ReplyDoubled) {
		w.travel(reply)
	}
}

// foreign is a reply under a number that no command has, or that of an older
// command of the task. One that hits another command is kept out by the keyed
// token of the reply's subject, which is the bus's part.
func (w *World) foreign(r core.Reply) core.Reply {
	switch w.rand.IntN(4) {
	case 0:
		r.Seq += 1 << 20
	case 1:
		r.Number += 1 << 20
	case 2:
		r.Partition += w.cfg.Partitions
	default:
		r.Seq = max(0, r.Seq-1-w.rand.Int64N(3))
	}
	return r
}

func (w *World) travel(r core.Reply) {
	era := w.era
	w.after(w.delay(), func() {
		if w.era == era {
			w.hear(r)
		}
	})
}
