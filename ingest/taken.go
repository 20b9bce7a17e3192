package ingest

import (
	"bytes"
	"errors"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// Taken looks ids up in the state store.
type Taken interface {
	// Look reads a task without waiting, and calls done once, from any goroutine; with nil when there is no
	// such task. Only its type, hash and state are needed. false: too many are being read already, and done
	// is not called.
	Look(partition int, id string, done func(task *core.Existing, err error)) bool
}

var errLookLate = errors.New("the store did not answer in time")

// lookups are submissions that wait until their id has been looked up in the state store: those that differ
// from what was accepted under their id a moment ago must be; while the door is quiet, others are too. A
// store that does not answer delays only the former for long.
type lookups struct {
	waiting []*lookup
	// restUntil: there are no lookups that can be spared before then.
	restUntil core.Instant
	// spent counts those in the second that began at second.
	spent  int
	second core.Instant // when it began
}

// lookup is one of them.
type lookup struct {
	req   Request
	sub   core.Submission
	where placement
	// until is when it goes on without an answer.
	until core.Instant
	// sure says that the id was accepted with something else lately, so that the lookup must be.
	sure bool
	// old says that this was long enough ago for the store to have the task.
	old bool
	// closed says that it has gone on. An answer that comes later is dropped.
	closed bool

	// refusal, if not nil, is the answer unless the store has the task.
	refusal *Refusal
}

// placement is where a submission is packed, and what its answer will say.
type placement struct {
	partition, size int
	mark            mark
	warning         string // for the answer
	// again says that the same was accepted before.
	again bool
	state core.State
}

// startLookup looks a submission's id up if that must be or is cheap now. It reports whether the submission
// is done with for now: it waits, or is refused because a lookup that must be was not possible.
func (d *Door) startLookup(now core.Instant, req *Request, sub *core.Submission, at placement) bool {
	sure := d.recent.differs(at.mark, now, d.cfg.RecentFor)
	if !sure && (req.Looked || !d.mayLook(now)) {
		return false
	}
	l := &lookup{req: *req, sub: *sub, where: at, until: now.Add(d.cfg.LookSpare), sure: sure, old: !d.recent.differs(at.mark, now, settleMax)}
	if sure {
		l.until = now.Add(d.cfg.LookMax)
	}
	looking := len(d.lookups.waiting) < d.cfg.LooksMax &&
		d.ids.Look(at.partition, sub.ID, func(task *core.Existing, err error) { d.events.put(event{lookup: l, task: task, err: err}) })
	switch {
	case looking:
		d.lookups.waiting = append(d.lookups.waiting, l)
		return true
	case sure:
		d.refuse(req, undecided(sub.ID))
		return true
	}
	return false
}

// settleMax is how long an accepted submission takes at most to become a task in a store that works. If there
// is none after that, the owner has refused it.
const settleMax = 5 * time.Second

// mayLook reports whether a lookup that can be spared is cheap now: the door is quiet, there were few in this
// second, and the store has been answering.
func (d *Door) mayLook(now core.Instant) bool {
	k := &d.lookups
	if d.items() > int64(d.cfg.LookItems) || now < k.restUntil {
		return false
	}
	if now >= k.second.Add(time.Second) || now < k.second {
		k.second, k.spent = now, 0
	}
	k.spent++
	return k.spent <= d.cfg.LookRate
}

// finishLookup goes on with a submission when the store has answered, or has not in time (err). It does
// nothing for one that has gone on before.
func (d *Door) finishLookup(now core.Instant, l *lookup, task *core.Existing, err error) {
	if l.closed {
		return
	}
	if err != nil && !l.sure && l.refusal == nil {
		d.lookups.restUntil = now.Add(d.cfg.LookRest)
	}
	d.dropLookup(l)
	switch {
	case task != nil:
		if r := Differs(l.sub.ID, l.sub.Type, task.Type, l.sub.Input, task.InputHash); r != nil {
			d.refuse(&l.req, r)
			return
		}
		l.where.again, l.where.state = true, task.State
	case l.refusal != nil:
		d.refuseLooked(l, err)
		return
	case l.sure && (err != nil || !l.old):
		d.refuse(&l.req, undecided(l.sub.ID))
		return
	}
	d.pack(now, &l.where, &l.req, &l.sub)
}

// Differs refuses a submission whose id is a task with another type or input. nil: the submission is that
// task.
func Differs(id, taskType, storedType string, input, storedHash []byte) *Refusal {
	switch {
	case storedType != taskType:
		return Refuse(409, CauseConflict, "%s", say.Of("refuse.id-other-type", "id", core.QuoteShort(id), "type", core.QuoteShort(storedType)))
	case len(storedHash) == 0:
		return Refuse(409, CauseConflict, "%s", say.Of("refuse.id-cancelled", "id", core.QuoteShort(id)))
	case !bytes.Equal(storedHash, core.HashInput(taskType, input)):
		return conflict(id)
	}
	return nil
}

// conflict refuses a submission whose id is a task with another input.
func conflict(id string) *Refusal {
	return Refuse(409, CauseConflict, "%s", say.Of("refuse.id-taken", "id", core.QuoteShort(id)))
}

// undecided refuses a submission for now. Another one was accepted under its id a moment ago, and the store
// does not yet say which of the two is the task.
func undecided(id string) *Refusal {
	return Refuse(503, CauseUndecided, "%s", say.Of("refuse.id-undecided", "id", core.QuoteShort(id))).After(RetryLog)
}

// dropLookup takes a submission off the list of those that wait.
func (d *Door) dropLookup(l *lookup) {
	l.closed = true
	all := d.lookups.waiting
	for i := range all {
		if all[i] == l {
			last := len(all) - 1
			all[i], all[last] = all[last], nil
			d.lookups.waiting = all[:last]
			return
		}
	}
}

// expire goes on with submissions whose lookup takes too long.
func (k *lookups) expire(d *Door, now core.Instant) {
	for i := 0; i < len(k.waiting); {
		if l := k.waiting[i]; l.until <= now {
			d.finishLookup(now, l, nil, errLookLate)
		} else {
			i++
		}
	}
}

// due is when the first lookup takes too long; 0: none is under way.
func (k *lookups) due() (next core.Instant) {
	for _, l := range k.waiting {
		next = earlier(next, l.until)
	}
	return next
}

// close goes on with all submissions that wait, without an answer.
func (k *lookups) close(d *Door, now core.Instant) {
	for len(k.waiting) > 0 {
		d.finishLookup(now, k.waiting[0], nil, errLookLate)
	}
}
