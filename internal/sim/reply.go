package sim

import (
	"encoding/binary"
	"slices"

	"duly.dev/duly/internal/core"
)

// commandRef names one command as one commit issued it, as its reply does.
type commandRef struct {
	partition           int
	number, seq, commit int64
}

// tokenOf is what the bus makes of the row, and the commit, that issued a command: one commit may issue several commands of
// a task.
func tokenOf(seq, commit int64, nth uint32) core.Token {
	t := core.TokenOf(nth)
	binary.BigEndian.PutUint64(t[4:], uint64(commit)^mixed(seq))
	return t
}

// mixed spreads a row's number over all bits.
func mixed(seq int64) uint64 { return uint64(seq) * 0x9E3779B97F4A7C15 }

// genuine is the owner's check of a reply's token.
func genuine(r *core.Reply, commit int64) bool {
	return r.Token == tokenOf(r.Seq, commit, r.Token.Copy())
}

func refOf(r *core.Reply) commandRef {
	return commandRef{r.Partition, r.Number, r.Seq, int64(binary.BigEndian.Uint64(r.Token[4:]) ^ mixed(r.Seq))}
}

// instance is what every agent calls itself: so the journal's actor tells a reply's row.
const instance = "sim"

// answer sends an agent's reply: late, lost, twice, or not the one it should be.
func (w *World) answer(c *core.Command, reply core.Reply) {
	w.tell(c.Task, -1, "row %d is answered: code %d %s", c.Seq, reply.Code, reply.Error)
	reply.Token, reply.From = tokenOf(c.Seq, c.Commit, c.Copy), instance
	switch {
	case w.fault(ReplyLost):
		return
	case w.fault(ReplyForeign):
		w.travel(w.foreign(reply))
	case w.fault(ReplyGarbage): // what the bus makes of bytes that are no JSON
		reply.Code, reply.Error, reply.Result = core.CodeFailed, "bad_result: not JSON", nil
	}
	if core.BusyCode(reply.Code) {
		w.retryOver(c)
	}
	at := refOf(&reply)
	if !slices.Contains(w.spoken[at], reply.Code) {
		w.spoken[at] = append(w.spoken[at], reply.Code)
	}
	w.travel(reply)
	if w.fault(ReplyDoubled) {
		w.travel(reply)
	}
}

// foreign is a reply under a number that no command has, or that of another
// command, which its token keeps out.
func (w *World) foreign(r core.Reply) core.Reply {
	switch w.rand.IntN(5) {
	case 0:
		r.Seq += 1 << 20
	case 1:
		r.Number += 1 << 20
	case 2:
		r.Partition += w.cfg.Partitions
	case 3:
		r.Seq += 1 + w.rand.Int64N(3)
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
