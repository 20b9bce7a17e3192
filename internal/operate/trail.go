package operate

import (
	"context"
	"strings"
)

// Discreet is a trail as the actor of a request may read it: of things that only admins may read, others learn who
// changed them, when and why, and whether it was done.
type Discreet struct{ TrailReader }

// ofAdmins begin the targets of what only admins read elsewhere.
var ofAdmins = []string{"channel/", "token/"}

// Audit implements TrailReader.
func (d Discreet) Audit(ctx context.Context, f AuditFilter) (AuditPage, error) {
	page, err := d.TrailReader.Audit(ctx, f)
	if by, _ := ActorFrom(ctx); by.Role.May(RoleAdmin) {
		return page, err
	}
	for i := range page.Entries {
		e := &page.Entries[i]
		for _, begin := range ofAdmins {
			if strings.HasPrefix(e.Target, begin) {
				e.Before, e.After = nil, nil
				e.Outcome, _, _ = strings.Cut(e.Outcome, ":") // an error names where a channel leads
			}
		}
	}
	return page, err
}
