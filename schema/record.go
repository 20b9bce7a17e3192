package schema

import "duly.dev/duly/internal/core"

// journalFormat is the format of journal rows; rows of a later one are not read.
const journalFormat int16 = 1

// kindWord is what plan_steps says of the kind of a step.
func kindWord(k core.StepKind) string {
	if k == core.CallStep {
		return "call"
	}
	return string(k)
}

// statusWord is the status of the row's step; without a step, of the zero
// status nothing is kept.
func statusWord(r *core.Record) string {
	if r.Step < 0 && r.StepStatus == core.StepWaiting {
		return ""
	}
	return r.StepStatus.String()
}
