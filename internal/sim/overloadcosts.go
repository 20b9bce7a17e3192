package sim

import "time"

// overloadCosts is what things cost the processor. Shares of T, the cost of a whole task, were measured as sums: accepting
// 0.39 and five steps 0.61 (0.23 and 0.36 ms); what is read when its time is over 0.37 to 0.47 on top of accepting it. How the
// sums are split is judgement. What a lost task costs follows: over 1.67 T was measured.
type overloadCosts struct {
	whole time.Duration // T

	// door is how much more of a processor a thread of the door has than any other, where all want one: more was accepted in
	// overload than an even share of the processors accepts.
	door float64

	// The request door: accepting costs all of these and one of a pack's.
	wire   time.Duration // a request off the wire, and whom it is from
	take   time.Duration // parsed, checked, packed or refused
	answer time.Duration // the answer, and the wire again
	stored time.Duration // a submission in the stream
	pack   time.Duration // a message of it; also of one of the stream endpoint
	read   time.Duration // a submission off the stream, at its owner

	// The scheduler.
	birth   time.Duration // a task's row
	row     time.Duration // a row of a journal
	undoing time.Duration // a row while its task is undone
	send    time.Duration // a command leaves
	reply   time.Duration // an agent's answer comes
	ending  time.Duration // is published
	undone  time.Duration // besides, of a task that was not processed: its failure indexes, its message
	refused time.Duration // a submission is refused at its birth
	load    time.Duration // a task is read from the store

	agent time.Duration // a command, of an agent

	// By the clock, and not by T: each commit, and each reading.
	commit    time.Duration
	statement time.Duration
	sync      time.Duration // of a disk, in which no processor is used
}

func newCosts(whole time.Duration) overloadCosts {
	of := func(share float64) time.Duration { return time.Duration(share * float64(whole)) }
	return overloadCosts{
		whole: whole, door: 2,
		wire: of(0.02), take: of(0.255), answer: of(0.015), stored: of(0.03), pack: of(0.02), read: of(0.05),
		birth: of(0.04), row: of(0.05), undoing: of(0.25), send: of(0.015), reply: of(0.015), agent: of(0.03),
		ending: of(0.01), undone: of(0.2), refused: of(0.05), load: of(0.05),
		commit: 100 * time.Microsecond, statement: 100 * time.Microsecond, sync: 2 * time.Millisecond,
	}
}
