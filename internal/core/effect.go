package core

// EffectKind says what the owner does once a row is committed. Most are messages; EffectWake, EffectChildren and
// EffectUndoChildren stay in the process.
type EffectKind uint8

// The effects.
const (
	EffectDo           EffectKind = iota + 1 // send the do command of Step
	EffectUndo                               // send the undo command of Step
	EffectWake                               // raise EventWake at At; lost with the process, rebuilt by Resume
	EffectReceived                           // tell the submitter that the task is stored
	EffectEnded                              // publish that the task ended
	EffectAlert                              // tell an operator that the undo of Step is in trouble and goes on
	EffectChildren                           // bear the children of Step, in this and, beyond the first, in later commits
	EffectUndoChildren                       // undo the children of Step
	EffectProbe                              // ask the agent of Step until At what became of the do numbered Seq
)

// Effect is one thing to do once the records of its outcome are committed.
type Effect struct {
	Kind    EffectKind
	Step    int
	Attempt int
	Seq     int64   // number of the journal row that issued the command
	Copy    uint32  // of a command: see StepState
	At      Instant // of a command: its complete-by; of Wake: when
	// Again marks a command that leaves under a number the journal has already: a retry
	// of a step that waits for its agent. No commit has just proven that the task is
	// still its owner's, so the owner makes sure before it lets the command leave.
	Again bool
}

// Outcome is what one event led to. It is reused between calls.
type Outcome struct {
	Records []Record // in order; empty when nothing changed in the journal
	Effects []Effect
	Row     bool // the task's own row must be written too
}

// Reset empties the outcome and keeps its memory.
func (o *Outcome) Reset() {
	o.Records = o.Records[:0]
	o.Effects = o.Effects[:0]
	o.Row = false
}
