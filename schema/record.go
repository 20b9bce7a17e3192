package schema

import (
	"strings"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
)

// The formats of journal rows; rows of a later one are not read.
const (
	plainFormat   = 1
	inputFormat   = 2 // with the task's input, which binaries of before look for in tasks
	repairFormat  = 3 // of an edit, or of a step that was accepted: binaries of before would undo less, or by another input
	graphFormat   = 4 // of a plan that is a graph: binaries of before know one command at a time
	lateFormat    = 5 // of a late answer, which binaries of before would take for the end of a command
	probeFormat   = 6 // of a do whose agent is asked what became of it: binaries of before would let it hang, or be undone
	journalFormat = probeFormat
)

// FormatOf is the format of a row of a task that holds that input.
func FormatOf(t *core.Task, r *core.Record, input []byte) int16 {
	switch {
	case r.Kind == core.KindProbed, r.Kind == core.KindOverdue && r.StepStatus == core.StepRunning:
		return probeFormat
	case r.Kind == core.KindLate, r.Kind == core.KindUndoLate:
		return lateFormat
	case r.Kind == core.KindSkipped, r.Kind == core.KindSignalled, r.Kind == core.KindResult, r.Kind == core.KindStarted && r.Input != nil, severalOut(t):
		return graphFormat
	case r.Input != nil || r.Kind == core.KindAccepted:
		return repairFormat
	case input != nil:
		return inputFormat
	}
	return plainFormat
}

// severalOut reports whether more than one command of a task is out.
func severalOut(t *core.Task) bool {
	out := 0
	for i := range t.Steps {
		if t.Steps[i].Out != 0 {
			out++
		}
	}
	return out > 1
}

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
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
