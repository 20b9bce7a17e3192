package ingest

import (
	"bytes"
	"errors"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// Taken is where a door looks whether an id is a task already.
type Taken interface {
	// Look reads the task of that id, without waiting, and calls done once, from any
	// goroutine; nil: there is no such task. Of the task its type and hash count. It
	// reports false, and never calls done, when it has no room for a further reading.
	Look(partition int, id string, done func(task *core.Existing, err error)) bool
}

var errLookLate = errors.New("the store did not answer in time")

// lookups are submissions that wait for a look at the state store: those that differ from
// what was accepted under their id a moment ago, and, while the door is quiet, others.
// No other request waits for them, and a store that does not answer delays only the first.
type lookups struct {
	waiting   []*lookup
	restUntil core.Instant // no look that can be spared before then
	spent     int          // of this second's
	second    core.Instant // when it began
}

// lookup is one submission that waits.
type lookup struct {
	req    Request
	sub    core.Submission
	where  placement
	until  core.Instant // it goes on then without an answer
	sure   bool         // the id was accepted with something else a moment ago
	old    bool         // but long enough ago for the store to have it
	closed bool

	refusal *Refusal // not nil: it is refused, unless the store has the task
}

// placement is where a submission is packed.
type placement struct {
	partition, size int
	mark            mark
	warning         string // for the answer
	again           bool   // for the answer: the same was accepted before
	state           core.State
}

// startLookup has the store looked at for a submission, if it has to be or that is cheap, and
// reports whether the submission waits for it.
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

// settleMax is how long an accepted submission may take to be a task in the store, while
// the store works. After it, one that is not there was refused by its owner.
const settleMax = 5 * time.Second

// mayLook reports whether a look that can be spared is cheap now: the door is quiet,
// there were few in this second, and the store has answered the last ones.
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

// finishLookup goes on with a submission when the store has answered. One that has gone on
// before is left.
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
		d.refuseUnlessTask(l, err)
		return
	case l.sure && (err != nil || !l.old):
		d.refuse(&l.req, undecided(l.sub.ID))
		return
	}
	d.pack(now, &l.where, &l.req, &l.sub)
}

// Differs refuses a submission whose id is a task of another type or with another input;
// nil: it is the same task.
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

func conflict(id string) *Refusal {
	return Refuse(409, CauseConflict, "%s", say.Of("refuse.id-taken", "id", core.QuoteShort(id)))
}

// undecided refuses a submission for now: another was accepted under its id a moment ago, and which of the two is the task,
// or whether both are the same as a third, the store does not say yet.
func undecided(id string) *Refusal {
	return Refuse(503, CauseUndecided, "%s", say.Of("refuse.id-undecided", "id", core.QuoteShort(id))).After(RetryLog)
}

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

// expire goes on with those whose look takes too long.
func (k *lookups) expire(d *Door, now core.Instant) {
	for i := 0; i < len(k.waiting); {
		if l := k.waiting[i]; l.until <= now {
			d.finishLookup(now, l, nil, errLookLate)
		} else {
			i++
		}
	}
}

func (k *lookups) due() (next core.Instant) {
	for _, l := range k.waiting {
		next = earlier(next, l.until)
	}
	return next
}

// close goes on with everybody who waits, without an answer of the store.
func (k *lookups) close(d *Door, now core.Instant) {
	for len(k.waiting) > 0 {
		d.finishLookup(now, k.waiting[0], nil, errLookLate)
	}
}
