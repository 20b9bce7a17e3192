package scheduler

import "duly.dev/duly/internal/core"

// Mail is what arrived for the partitions of a shard.
type Mail struct {
	// Controls are applied before everything else.
	Controls []ControlMail
	// Replies are agents' answers.
	Replies []ReplyMail
	// Unserved names commands for which NATS found no subscriber. Only Partition, Number, Seq and Token of
	// the reply are set.
	Unserved  []ReplyMail
	Probed    []ProbedMail
	Published []PublishedMail
	Tasks     []TaskMail
	// PlansChanged makes the shard read the plans again before new work.
	PlansChanged bool
	// Pauses, Breakers and Limits each replace what the shard knows; nil: nothing has changed. Breakers
	// leaves out those that are closed.
	Pauses   *[]core.Pause
	Breakers *[]core.Breaker
	Limits   *[]core.Limit
	// Grants say how much of each limit the shard may use.
	Grants []GrantMail
	// Counted says which scheduler counts the commands that each partition has out. It is sent only to a
	// shard that left commands behind with a partition; nil: nothing new.
	Counted []core.Counting

	// bytes and tasks are what Tasks holds of the node's memory and window; both are given back with the
	// mail.
	bytes int64
	tasks int

	// replies is how many bytes Replies holds; lost counts replies that were dropped because there was no
	// room for them.
	replies int64
	lost    int
}

// TaskMail is one message of the task stream.
type TaskMail struct {
	Partition   int
	Pos         uint64       // position in the stream
	Stored      core.Instant // when the stream took it
	At          core.Instant // when it was read
	Submissions []core.Submission
	// Refused are items of the message that ingest let through and that cannot become tasks.
	Refused []core.Status
	Ack     func()
}

// ControlMail is one message of the control stream.
type ControlMail struct {
	Partition int
	Pos       uint64
	Stored    core.Instant
	At        core.Instant
	// Control has Kind 0 if the message could not be decoded; it is a dead letter by then.
	Control core.Control
	Ack     func()
}

// seenAt is until when the sender of a request can have seen the task. It is when the sender says it looked,
// or else when the stream stored the message: a message that was sent again later carries no newer knowledge.
func (m *ControlMail) seenAt() core.Instant {
	if m.Control.Asked != 0 {
		return min(m.Control.Asked, m.Stored)
	}
	return m.Stored
}

// assertedAt is when the sender asserted what the request says was found at the service, to be compared with
// when the database went back. A request with task numbers belongs to an operation. An operation made in the
// time that the database lost is forgotten with it and nothing sends its requests any more; so one that is
// still sent counts as asserted when the stream stored it.
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

// ProbedMail is an agent's answer to the question what became of a silent do.
type ProbedMail struct {
	Partition int
	Epoch     int64
	Number    int64
	Seq       int64 // of the do
	At        core.Instant
	Probe     core.Probe
}

// PublishedMail confirms that the event stream has stored endings, or says why it has not.
type PublishedMail struct {
	Partition int
	Epoch     int64
	// Again marks endings that were read from the store to be published again; the next page may follow them.
	Again   bool
	Endings []core.Ending
	Err     error
}

// GrantMail tells a shard its new grant of one limit. The first grant of a rate that no other holder shares
// lets one call leave at once instead of waiting for the rate to accrue.
type GrantMail struct {
	core.ClaimedGrant
	// Seq rises with each grant that a shard is sent, so that the shard can say which it has heard of.
	Seq int64
	// Term is the shard's term in which the grant was claimed: the shard ignores grants from before its
	// newest takeover.
	Term int64
}

// Empty reports whether the mail holds nothing.
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
