package console

import (
	"fmt"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// journalRow is a journal row for people.
type journalRow struct {
	Seq     int64       `json:"seq"`
	At      time.Time   `json:"at"`
	Kind    string      `json:"kind"`
	State   string      `json:"state"`
	Step    string      `json:"step,omitempty"`
	Words   string      `json:"words"`
	Actor   string      `json:"actor,omitempty"`
	Reason  string      `json:"reason,omitempty"`
	Code    int         `json:"code,omitempty"`
	Error   string      `json:"error,omitempty"`
	Round   int         `json:"round"`
	Backs   string      `json:"clock_went_back,omitempty"` // by how much this row is before the one before it
	Class   string      `json:"-"`
	What    string      `json:"-"` // Words without what follows
	Then    []wordsTime `json:"-"` // what follows, with times that a page shows in the zone that was chosen
	Anomaly bool        `json:"-"`
}

// wordsTime are words that end with a time.
type wordsTime struct {
	Words string
	At    time.Time
}

// kinds says what each kind of row records, with the step's name in front where it has one.
var kinds = map[core.Kind]struct{ words, class string }{
	core.KindSubmitted:    {"submitted", "calm"},
	core.KindStarted:      {"the next try left", "calm"},
	core.KindDone:         {"done", "good"},
	core.KindRefused:      {"refused for good", "bad"},
	core.KindFailed:       {"failed", "bad"},
	core.KindOverdue:      {"no answer by its complete-by; it may have taken effect", "warn"},
	core.KindUnserved:     {"no agent takes it now; it waits", "warn"},
	core.KindUndone:       {"undone", "calm"},
	core.KindUndoRefused:  {"its undo was refused for good", "bad"},
	core.KindUndoFailed:   {"its undo failed", "bad"},
	core.KindUndoOverdue:  {"its undo did not answer by its complete-by", "warn"},
	core.KindUndoUnserved: {"no agent takes its undo now; it waits", "warn"},
	core.KindUndoGaveUp:   {"its undo gave up", "bad"},
	core.KindExpired:      {"the deadline of the task passed", "bad"},
	core.KindCancelled:    {"cancelled", "warn"},
	core.KindUndoAsked:    {"an undo was asked for", "warn"},
	core.KindResubmitted:  {"resubmitted", "calm"},
	core.KindAccepted:     {"accepted as done by hand", "calm"},
	core.KindResolved:     {"settled by hand", "calm"},
	core.KindExtended:     {"the deadline was extended", "calm"},
	core.KindPoisoned:     {"the database refused what was to be stored", "bad"},
	core.KindAsked:        {"the supervisor asked, and nothing was due yet", "calm"},
	core.KindSkipped:      {"not wanted: its condition is false", "calm"},
	core.KindSignalled:    {"answered before it began; the answer is kept", "calm"},
	core.KindResult:       {"the task's own result", "good"},
	core.KindMigrated:     {"moved to another version of its plan", "calm"},
	core.KindLate:         {"answered after its complete-by; what it did is known now", "calm"},
	core.KindUndoLate:     {"its undo answered after its complete-by: undone", "calm"},
	core.KindProbed:       {"its agent was asked what became of it", "calm"},
	core.KindWentBack:     {"the database went back; steps may have run that are not here", "warn"},
}

// stepName is the name of step i of a plan that may be unknown.
func stepName(p *core.Plan, i int) string {
	if i < 0 {
		return ""
	}
	if p == nil || i >= len(p.Steps) {
		return fmt.Sprintf("step %d", i+1)
	}
	return p.Steps[i].Name
}

// journalRows turns records, newest first, into rows for people.
func journalOf(p *core.Plan, records []core.Record) []journalRow {
	all := make([]journalRow, len(records))
	for i := range records {
		r := &records[i]
		k, ok := kinds[r.Kind]
		if !ok {
			k.words, k.class = string(r.Kind), "calm"
		}
		if r.Kind == core.KindExpired && r.StepStatus == core.StepFailed {
			k.words = "its key is too old to be used again"
		}
		if r.Kind == core.KindUnserved && r.Code == core.CodeTooEarly {
			k.words = "a try is still at work; it waits"
		}
		row := journalRow{Seq: r.Seq, At: timeOf(r.At), Kind: string(r.Kind), State: string(r.State), Step: stepName(p, r.Step), Actor: r.Actor, Reason: r.Reason,
			Code: r.Code, Error: r.Error, Round: r.Round, Class: k.class}
		var b strings.Builder
		b.WriteString(k.words)
		if r.Step >= 0 && r.Attempt > 0 && r.Kind != core.KindResubmitted {
			fmt.Fprintf(&b, " (try %d)", r.Attempt)
		}
		row.What, row.Words = b.String(), b.String()
		then := func(words string, at core.Instant) { row.Then = append(row.Then, wordsTime{words, timeOf(at)}) }
		switch {
		case r.Next >= 0 && r.Undo:
			then(fmt.Sprintf("; undo of %s left, try %d, complete by", stepName(p, r.Next), r.NextAttempt), r.Due)
		case r.Next >= 0:
			then(fmt.Sprintf("; %s left, try %d, complete by", stepName(p, r.Next), r.NextAttempt), r.Due)
		case r.Due != 0 && r.Step >= 0 && !r.State.Ended():
			then("; again at", r.Due)
		}
		if r.Deadline != 0 && r.Kind != core.KindSubmitted {
			then("; new deadline", r.Deadline)
		}
		for _, t := range row.Then {
			row.Words += t.Words + " " + t.At.UTC().Format(exactLayout+".000") + "Z"
		}
		if i+1 < len(records) && records[i+1].At > r.At {
			row.Backs, row.Anomaly = duration(records[i+1].At.Sub(r.At)), true
		}
		all[i] = row
	}
	return all
}
