package sim

import (
	"fmt"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// client submits one task until it has a definite answer.
type client struct {
	w     *World
	sub   core.Submission
	plain bool // published to the stream, which checks nothing
	tries int
	done  bool
}

// submitAll lets clients submit their tasks over the storm, some of them twice,
// and people meddle with them.
func (w *World) submitAll() {
	for i := range w.cfg.Tasks {
		id := fmt.Sprintf("t%d", i+1)
		at := w.upTo(w.cfg.Storm)
		w.after(at, w.newClient(id).submit)
		if w.rand.IntN(5) == 0 {
			w.after(at+w.delay(), w.newClient(id).submit)
		}
		if w.fault(OtherInput) {
			other := w.newClient(id)
			other.sub.Input = []byte(`{"id":"` + id + `","other":true}`)
			w.after(at+w.upTo(time.Second), other.submit)
		}
		meddlers := w.more(3)
		if w.rand.IntN(4) == 0 {
			meddlers++
		}
		for range meddlers {
			w.after(w.upTo(w.cfg.Storm), func() { w.trouble(id) })
		}
	}
}

func (w *World) newClient(id string) *client {
	c := &client{w: w, sub: core.Submission{Type: w.planOf(id).Name, ID: id, Input: []byte(`{"id":"` + id + `"}`), Labels: w.labelsOf(id)}}
	if c.plain = w.fault(PastIngest); c.plain && w.fault(UnknownPlan) {
		c.sub.Type = "nosuch"
	}
	w.clients = append(w.clients, c)
	return c
}

// submit asks once, and again when no answer comes.
func (c *client) submit() {
	c.tries++
	try := c.tries
	c.w.after(800*time.Millisecond, func() {
		if !c.done && c.tries == try {
			c.submit()
		}
	})
	if c.plain {
		c.publish()
		return
	}
	life := c.w.ingest.life
	c.w.ingest.submit(ingest.Request{Form: submit.Form{Type: c.sub.Type, ID: c.sub.ID, Input: c.sub.Input, Labels: core.FormatLabels(c.sub.Labels)}, Answer: func(a ingest.Answer) {
		if c.w.ingest.life == life { // else its connection is gone
			c.w.ingest.point()
			c.answered(a)
		}
	}})
}

// publish goes past ingest: the stream takes what comes.
func (c *client) publish() {
	w := c.w
	sub := c.sub
	sub.At = w.now
	m := message{partition: w.partitionOf(sub.ID), subs: []core.Submission{sub}}
	switch {
	case w.during(w.others) || w.during(w.full) || w.fault(StreamDown):
	case w.fault(StreamAnswerLost):
		w.append(&w.stream, m)
	default:
		w.after(w.delay(), func() {
			w.append(&w.stream, m)
			c.accepted()
		})
	}
}

func (c *client) answered(a ingest.Answer) {
	w := c.w
	switch {
	case a.Err == nil:
		c.accepted()
	case a.Err.Retryable():
		switch a.Err.ErrCode {
		case ingest.CauseFull:
			w.note(IngestFull)
		case ingest.CauseBacklog:
			w.note(BacklogFull)
		}
		w.after(50*time.Millisecond+w.upTo(20*time.Millisecond), func() {
			if !c.done {
				c.submit()
			}
		})
	default:
		w.wrong(w.partitionOf(c.sub.ID), c.sub.ID, "ingest refused a good submission: %s", a.Err.Description)
	}
}

// accepted is a positive answer: the stream must hold the submission.
func (c *client) accepted() {
	w := c.w
	w.tell(c.sub.ID, -1, "accepted")
	if !w.stored[subKey(&c.sub)] {
		w.wrong(w.partitionOf(c.sub.ID), c.sub.ID, "a submission is accepted that the stream has not stored")
	}
	if !c.done {
		c.done = true
		w.accepted[c.sub.ID] = true
	}
}

// subKey tells submissions apart that are told apart by their hash.
func subKey(s *core.Submission) string { return s.ID + "\x00" + s.Type + "\x00" + string(s.Input) }

// trouble is a person who meddles with a task in every way there is.
func (w *World) trouble(id string) {
	c := core.Control{
		ID: id, Type: w.planOf(id).Name, Actor: "olga", Reason: "because",
		Kind: []core.EventKind{core.EventCancel, core.EventUndo, core.EventResubmit, core.EventExtend, core.EventEdit, core.EventAccept, core.EventResolve}[w.rand.IntN(7)],
	}
	w.fill(&c)
	if r := w.Store.ids[idKey{w.partitionOf(id), id}]; r != nil && !r.purged && w.rand.IntN(2) == 0 {
		c.Actor = fmt.Sprintf("olga-%d", w.asks.n)
		c.IfSeq = w.guard(&c, r)
		w.lookAtService(&c, r)
	}
	w.ask(message{partition: w.partitionOf(id), control: c})
	if w.rand.IntN(2) == 0 || w.rand.IntN(4) < w.more(1) {
		w.after(w.upTo(time.Second), func() { w.trouble(id) })
	}
}
