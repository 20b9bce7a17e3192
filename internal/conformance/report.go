package conformance

import (
	"fmt"
	"strings"
	"time"
)

// State is what a finding comes to.
type State string

// The states.
const (
	Held      State = "held"
	Broken    State = "broken"
	NotJudged State = "not judged"     // it could not be seen
	Aside     State = "does not apply" // the rule is about what the agent has not
)

// By is what a finding rests on.
type By string

// What findings rest on.
const (
	byAnswers By = "its answers"
	byProbe   By = "its probe"
	byEffects By = "the effects"
)

// Finding is what one check found of one rule.
type Finding struct {
	Check    string     `json:"check"` // what was played
	Rule     string     `json:"rule"`
	State    State      `json:"state"`
	By       By         `json:"by,omitempty"`
	Why      string     `json:"why"`
	Evidence []Exchange `json:"evidence,omitempty"` // of one that is broken
}

// Exchange is one message and what came back, shortened.
type Exchange struct {
	What    string   `json:"what"`
	Subject string   `json:"subject"`
	Sent    string   `json:"sent"`
	Came    []string `json:"came"` // empty: nothing
}

// Report is what a run found.
type Report struct {
	Agent     string    `json:"agent"`
	Step      string    `json:"step"`
	Tasks     string    `json:"tasks"` // what the ids of the run's tasks begin with
	Began     time.Time `json:"began"`
	TookMS    int64     `json:"took_ms"`
	Messages  int       `json:"messages"` // sent to the agent
	Findings  []Finding `json:"findings"`
	Held      int       `json:"held"` // findings
	Broken    int       `json:"broken"`
	NotJudged int       `json:"not_judged"`
	Aside     int       `json:"does_not_apply"`
	Left      int       `json:"left"`                // keys of which an effect may stand: their undo did not succeed
	LeftKeys  []string  `json:"left_keys,omitempty"` // the first of them
}

// LeftText says of which keys an effect may stand.
func (r *Report) LeftText() string { return leftText(r.Left, r.LeftKeys) }

func leftText(n int, keys []string) string {
	return fmt.Sprintf("%d keys whose undo did not succeed, so that an effect may stand: %s …", n, strings.Join(keys, ", "))
}

// Breaks are the rules that are broken, in the order of their numbers.
func (r *Report) Breaks() []Rule {
	is := map[string]bool{}
	for i := range r.Findings {
		is[r.Findings[i].Rule] = is[r.Findings[i].Rule] || r.Findings[i].State == Broken
	}
	var all []Rule
	for _, rule := range Rules {
		if is[rule.ID] {
			all = append(all, rule)
		}
	}
	return all
}

// evidenceCalls bounds the exchanges of one finding.
const evidenceCalls = 4

// exchanges are calls as evidence.
func (d *desk) exchanges(calls []*call) []Exchange {
	var all []Exchange
	for _, c := range calls {
		if c == nil || len(all) == evidenceCalls {
			continue
		}
		answers, came, heard := d.look(c)
		e := Exchange{What: c.what, Subject: c.subject, Sent: c.payload, Came: []string{}}
		for i := range answers {
			e.Came = append(e.Came, fmt.Sprintf("after %v: %s", answers[i].at.Sub(c.began).Round(100*time.Microsecond), answers[i].words()))
		}
		if more := came - len(answers); more > 0 {
			e.Came = append(e.Came, fmt.Sprintf("and %d more", more))
		}
		if heard {
			e.Came = append(e.Came, "the command also came to another member of the queue group")
		}
		if c.err != nil {
			e.Came = append(e.Came, "it could not be sent: "+c.err.Error())
		}
		all = append(all, e)
	}
	return all
}
