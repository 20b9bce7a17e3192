package scheduler

import "duly.dev/duly/internal/core"

// Mail is what arrived for the partitions of a shard.
type Mail struct {
	Controls  []ControlMail // served first
	Replies   []ReplyMail
	Unserved  []ReplyMail // only Partition, Number, Seq and Token are set
	Probed    []ProbedMail
	Published []PublishedMail
	Tasks     []TaskMail
	// PlansChanged makes the shard read the plans again before new work.
	PlansChanged bool
	// Pauses are all pauses, when they have changed; nil: they have not.
	Pauses *[]core.Pause
	// Breakers are all that are not closed, when they have changed; nil: they have not.
	Breakers *[]core.Breaker
	// Limits are all limits, when they have changed; nil: they have not.
	Limits *[]core.Limit
	Grants []GrantMail // of what the shard may use of limits
	// Counted says who counts what partitions have out, where the shard has left something behind; nil: nothing is new.
	Counted []core.Counting

	bytes int64 // of Tasks, held until the mail is given back
	tasks int   // the submissions in Tasks, likewise

	replies int64 // bytes of Replies
	lost    int   // replies that there was no room for
}

// TaskMail is one message of the task stream.
type TaskMail struct {
	Partition   int
	Pos         uint64       // position in the stream
	Stored      core.Instant // when the stream took it
	At          core.Instant // when it was read
	Submissions []core.Submission
	Refused     []core.Status // items that ingest let through and that cannot be tasks
	Ack         func()
}

// ControlMail is one message of the control stream.
type ControlMail struct {
	Partition int
	Pos       uint64
	Stored    core.Instant
	At        core.Instant
	Control   core.Control // Kind 0: it could not be decoded and is a dead letter by now
	Ack       func()
}

// seenAt is when the sender of a request had looked at what it is about. A copy that was sent later knows no more.
func (m *ControlMail) seenAt() core.Instant {
	if m.Control.Asked != 0 {
		return min(m.Control.Asked, m.Stored)
	}
	return m.Stored
}

// assertedAt is when a request says what was found. One about many tasks is of an operation, which the database has forgotten if it
// is older than what was lost: it is sent until each task has an outcome, and counts as said then.
func (m *ControlMail) assertedAt() core.Instant {
	if len(m.Control.Numbers) > 0 {
		return m.Stored
	}
	return m.seenAt()
}

// ReplyMail is one agent's answer.
type ReplyMail struct {
	At    core.Instant
	Reply core.Reply
}

// ProbedMail is what an agent says of a do that was silent.
type ProbedMail struct {
	Partition int
	Epoch     int64
	Number    int64
	Seq       int64 // of the do
	At        core.Instant
	Probe     core.Probe
}

// PublishedMail says that the event stream has stored endings, or why not.
type PublishedMail struct {
	Partition int
	Epoch     int64
	Again     bool // they were read from the store to be published again
	Endings   []core.Ending
	Err       error
}

// GrantMail is a grant for a shard. The first of a rate, of which no other holder has any, lets a call leave at once.
type GrantMail struct {
	core.ClaimedGrant
	Seq  int64 // rises with each grant that a shard is sent
	Term int64 // of the shard that has claimed it
}

// Empty reports whether there is nothing in it.
func (m *Mail) Empty() bool {
	return len(m.Controls)+len(m.Replies)+len(m.Unserved)+len(m.Probed)+len(m.Published)+len(m.Tasks) == 0 && !m.PlansChanged && m.Pauses == nil && m.Breakers == nil && m.Limits == nil && len(m.Grants) == 0 && m.Counted == nil
}

// reset empties the mail and keeps its memory.
func (m *Mail) reset() {
	clear(m.Controls)
	clear(m.Replies)
	clear(m.Probed)
	clear(m.Published)
	clear(m.Tasks)
	m.Controls, m.Replies, m.Unserved = m.Controls[:0], m.Replies[:0], m.Unserved[:0]
	m.Probed = m.Probed[:0]
	m.Published, m.Tasks, m.PlansChanged = m.Published[:0], m.Tasks[:0], false
	m.replies, m.lost = 0, 0
	m.Pauses, m.Breakers, m.Limits, m.Grants, m.Counted = nil, nil, nil, m.Grants[:0], nil
}
