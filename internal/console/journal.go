package console

import (
	"fmt"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
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

// kinds is how a row of a kind looks, if not calm; its words are in the table of sentences.
var kinds = map[core.Kind]string{
	core.KindDone:         "good",
	core.KindRefused:      "bad",
	core.KindFailed:       "bad",
	core.KindOverdue:      "warn",
	core.KindUnserved:     "warn",
	core.KindUndoRefused:  "bad",
	core.KindUndoFailed:   "bad",
	core.KindUndoOverdue:  "warn",
	core.KindUndoUnserved: "warn",
	core.KindUndoGaveUp:   "bad",
	core.KindExpired:      "bad",
	core.KindCancelled:    "warn",
	core.KindUndoAsked:    "warn",
	core.KindPoisoned:     "bad",
	core.KindResult:       "good",
	core.KindWentBack:     "warn",
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
		id := "journal." + string(r.Kind)
		switch {
		case r.Kind == core.KindExpired && r.StepStatus == core.StepFailed:
			id = "journal.old-key"
		case r.Kind == core.KindUnserved && r.Code == core.CodeTooEarly:
			id = "journal.unserved-running"
		}
		row := journalRow{Seq: r.Seq, At: timeOf(r.At), Kind: string(r.Kind), State: string(r.State), Step: stepName(p, r.Step), Actor: r.Actor, Reason: r.Reason,
			Code: r.Code, Error: r.Error, Round: r.Round, Class: classOf(r.Kind)}
		var b strings.Builder
		b.WriteString(say.Of(id, "by", core.AskedBy(r.Actor)))
		if r.Step >= 0 && r.Attempt > 0 && r.Kind != core.KindResubmitted {
			fmt.Fprintf(&b, " (attempt %d)", r.Attempt)
		}
		row.What, row.Words = b.String(), b.String()
		then := func(words string, at core.Instant) { row.Then = append(row.Then, wordsTime{words, timeOf(at)}) }
		switch {
		case r.Next >= 0 && r.Undo:
			then(say.Of("journal.next-undo", "step", stepName(p, r.Next), "n", r.NextAttempt), r.Due)
		case r.Next >= 0:
			then(say.Of("journal.next", "step", stepName(p, r.Next), "n", r.NextAttempt), r.Due)
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
