package operate

import (
	"context"
	"encoding/json"
	"testing"
)

// oneTrail has one entry of each kind.
type oneTrail struct{ Trail }

func (oneTrail) Audit(context.Context, AuditFilter) (AuditPage, error) {
	words := json.RawMessage(`{"url":"https://hooks.example.org/T0KEN"}`)
	page := AuditPage{}
	for _, target := range []string{"channel/ops", "token/x", "pause/1", "task/order/o-1"} {
		page.Entries = append(page.Entries, AuditEntry{Target: target, Before: words, After: words, Outcome: "failed: dial hooks.example.org/T0KEN: refused"})
	}
	return page, nil
}

// TestTrailShowsWhatItsReaderMaySee: what an entry says of a thing that only admins read, only admins read there.
//
// covers: P10
func TestTrailShowsWhatItsReaderMaySee(t *testing.T) {
	trail := Discreet{oneTrail{}}
	for _, role := range []Role{"", RoleClient, RoleViewer, RoleOperator, RoleAdmin} {
		page, err := trail.Audit(WithActor(t.Context(), Actor{Name: "a", Role: role}), AuditFilter{})
		if err != nil || len(page.Entries) != 4 {
			t.Fatal(err, page)
		}
		for _, e := range page.Entries {
			seen := len(e.Before)+len(e.After) > 0
			open := role == RoleAdmin || e.Target == "pause/1" || e.Target == "task/order/o-1"
			if seen != open || open != (e.Outcome != "failed") {
				t.Errorf("%s of %s: %+v", role, e.Target, e)
			}
		}
	}
}
