package core

// ProbeOutcome is what an agent says of a key when it is asked whether its do took effect.
type ProbeOutcome string

// The outcomes.
const (
	// ProbeDone: the effect is there, with the result that the do would have answered.
	ProbeDone ProbeOutcome = "done"
	// ProbeAbsent: there is no effect, and no do that was sent before the question makes one any more.
	ProbeAbsent ProbeOutcome = "absent"
	// ProbeInProgress: a do is at work, or the effect is being taken back.
	ProbeInProgress ProbeOutcome = "in_progress"
)

// Probe is an agent's answer to such a question.
type Probe struct {
	Outcome ProbeOutcome
	Result  []byte // JSON, of ProbeDone alone
}
