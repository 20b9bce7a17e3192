package schema

import "duly.dev/duly/internal/core"

// journalFormat is the format in which rows of the journal are written. Rows of a later one are refused when
// they are read.
const journalFormat int16 = 1

// kindWord is a step's kind as plan_steps stores it.
func kindWord(k core.StepKind) string {
	if k == core.CallStep {
		return "call"
	}
	return string(k)
}

// statusWord is the status of a record's step as it is stored; "" for a record without a step.
func statusWord(r *core.Record) string {
	if r.Step < 0 && r.StepStatus == core.StepWaiting {
		return ""
	}
	return r.StepStatus.String()
}
