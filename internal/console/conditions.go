package console

import (
	"context"
	"regexp"
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/say"
)

// conditions reads the journal of a task whose plan has conditions. Where it cannot be played the texts are shown alone.
func (c *console) conditions(ctx context.Context, plan *core.Plan, v *core.View) []expr.Decision {
	if plan == nil {
		return nil
	}
	var texts []expr.Decision
	for i := range plan.Steps {
		if plan.Steps[i].When != "" {
			texts = append(texts, expr.Decision{Step: plan.Steps[i].Name, Text: plan.Steps[i].When, Failed: say.Of("condition.unplayed")})
		}
	}
	if len(texts) == 0 || len(v.Steps) == 0 || v.Seq > replayRowsMax {
		return texts
	}
	rec, err := c.recording(ctx, v.Type, v.ID)
	if err != nil || rec.plan == nil {
		return texts
	}
	all, err := c.programs.Decisions(rec.plan, rec.saved)
	if err != nil {
		for i := range texts {
			texts[i].Failed = say.Of("condition.failed", "error", err)
		}
		return texts
	}
	for i := range all {
		hideSecrets(all[i].Terms)
	}
	return all
}

// nameIn are names of members in an expression.
var nameIn = regexp.MustCompile(`[\w-]+`)

// hideSecrets hides the values of terms that are, or have, what is hidden in the task's data.
func hideSecrets(terms []expr.Term) {
	for i := range terms {
		t := &terms[i]
		text, hidden, cut := layOut([]byte(t.Value)) // one that is cut is no JSON any more
		own := t.Value != "true" && t.Value != "false" && slices.ContainsFunc(nameIn.FindAllString(t.Text, -1), secretKey.MatchString)
		if t.Value != "" && (own || hidden > 0 || cut != "" && (text != t.Value || secretKey.MatchString(t.Value))) {
			t.Value = masked
		}
	}
}
