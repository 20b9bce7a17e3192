package schema

import (
	"strings"

	"duly.dev/duly/internal/core"
)

// JournalFormat is the format of journal rows; rows of a later one are not read.
const JournalFormat int16 = 1

// KindWord is what plan_steps says of the kind of a step.
func KindWord(k core.StepKind) string {
	if k == core.CallStep {
		return "call"
	}
	return string(k)
}

// StatusWord is the status of the row's step; without a step, of the zero
// status nothing is kept.
func StatusWord(r *core.Record) string {
	if r.Step < 0 && r.StepStatus == core.StepWaiting {
		return ""
	}
	return r.StepStatus.String()
}

// words makes a name that comes from outside fit for a column of text, so that no
// name can keep a task from being written.
func words(s string) string {
	if core.IsText(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
