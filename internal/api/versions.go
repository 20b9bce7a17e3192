package api

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/jsonschema"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/plancheck"
	"duly.dev/duly/internal/planform"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/versions"
)

type (
	checkIn struct {
		Name string `path:"name" maxLength:"64"`
		Body struct {
			Plan    anyJSON `json:"plan,omitempty" doc:"the version to check, which need not be stored; or else"`
			Version int64   `json:"version,omitempty" minimum:"0" doc:"a stored version"`
			Last    int     `json:"last,omitempty" minimum:"0" maximum:"1000000" doc:"ended tasks to play as well, the newest first"`
			All     bool    `json:"all,omitempty" doc:"have a finding for each task, also for those that come out the same"`
			After   string  `json:"after,omitempty" maxLength:"2000" doc:"cursor that the page before ended with"`
		}
	}
	// appliedJSON is a version of a plan that is stored.
	appliedJSON struct {
		Name    string `json:"name"`
		Version int64  `json:"version"`
		Newest  int64  `json:"newest" doc:"version that a submission takes when it names none; 0: all are deprecated"`
		Stored  int    `json:"stored" doc:"how many versions of the plan there are"`

		Callers []versions.Caller `json:"callers,omitempty" doc:"the steps whose next children are of the version; absent also where they could not be looked at in time"`
	}
	// checked is what a check reads.
	checked struct {
		operate.Reader
		operate.OperationStore
	}
)

// versionRoutes are about versions of plans.
func (a *api) versionRoutes() {
	register(a, route{method: http.MethodPut, path: "/v1/plans", id: "applyPlan", tag: "engine", needs: operate.RoleOperator,
		summary: "Store a version of a plan", about: "It never changes afterwards: the same again is fine, and another content under its version is 409."},
		func(ctx context.Context, in *body[anyJSON]) (out appliedJSON, err error) {
			p, err := planform.Decode(in.Body)
			if err != nil {
				return out, ingest.Refuse(400, ingest.CauseBody, "%v", err)
			}
			if err := a.ports.PutPlan(ctx, by(ctx), p); err != nil {
				return out, err
			}
			out, err = a.applied(ctx, p.Name, p.Version)
			if err == nil { // what is stored stands, whatever can be said of it
				p = p.WithDefaults()
				out.Callers, _ = NewChecker(checked{a.ports.Reader, a.ports.OperationStore}).Callers(ctx, &p)
			}
			return out, err
		})
	register(a, route{method: http.MethodPost, path: "/v1/plans/{name}/{version}/deprecate", id: "deprecatePlan", tag: "engine", needs: operate.RoleOperator,
		summary: "Keep new submissions from a version of a plan", about: "Tasks in flight keep it; a submission is refused, also one that names it. 409: it is the last of which others have children."},
		func(ctx context.Context, in *deprecateIn) (out deprecateJSON, err error) {
			if bad := operate.CheckReason(in.Body.Reason); bad != nil {
				return out, bad
			}
			left, err := a.ports.Versions.Deprecate(ctx, by(ctx), operate.Deprecate{Name: in.Name, Version: in.Version, Undo: in.Body.Undo, EvenIfCalled: in.Body.Called, Reason: in.Body.Reason})
			return deprecateJSON{in.Name, in.Version, !in.Body.Undo, left}, err
		})
	register(a, route{method: http.MethodPost, path: "/v1/plans/{name}/check", id: "checkPlan", tag: "engine", needs: operate.RoleOperator,
		summary: "Play tasks against another version of their plan", about: "A page of those in flight, then of those that have ended: which come out the same, which do not and where they part, and which may be moved."},
		func(ctx context.Context, in *checkIn) (out versions.CheckPage, err error) {
			to, err := a.planToCheck(ctx, in)
			if err != nil {
				return out, err
			}
			page, err := NewChecker(checked{a.ports.Reader, a.ports.OperationStore}).Page(ctx, to, in.Body.Last, in.Body.All, in.Body.After)
			if errors.Is(err, versions.ErrCursor) || errors.Is(err, core.ErrCursor) {
				return out, ingest.Refuse(400, ingest.CauseBody, "field after: %v", err)
			}
			return page, err
		})
}

// applied says of a version that is stored what becomes of submissions.
func (a *api) applied(ctx context.Context, name string, version int64) (out appliedJSON, err error) {
	out.Name, out.Version = name, version
	all, err := a.plans(ctx)
	for i := range all {
		if p := &all[i]; p.Name == name {
			if out.Stored++; p.Deprecated == nil {
				out.Newest = max(out.Newest, p.Version)
			}
		}
	}
	return out, err
}

// NewChecker checks a plan, whose expressions and schemas are compiled once. It is for one request: the plan in a body may
// have the name and version of one that another body has.
func NewChecker(store versions.Store) *versions.Checker {
	cache, schemas := &expr.Cache{}, &jsonschema.Cache{}
	return &versions.Checker{
		Store: store, Evaluate: func(p *core.Plan, t *core.Task) core.Asker { return cache.Bind(p, t) },
		Fits: func(p *core.Plan, input []byte) error { return schemas.Check(p.InputSchema, input) }, Children: cache.Children,
	}
}

// planToCheck is the version that a check is about: the one in the body, or a stored one.
func (a *api) planToCheck(ctx context.Context, in *checkIn) (*core.Plan, error) {
	refuse := func(format string, args ...any) error { return ingest.Refuse(400, ingest.CauseBody, format, args...) }
	if len(in.Body.Plan) > 0 {
		if in.Body.Version != 0 {
			return nil, refuse("field version is %d, and a plan is given: want one of them", in.Body.Version)
		}
		p, err := planform.Decode(in.Body.Plan)
		if err == nil {
			p = p.WithDefaults()
			err = plancheck.Check(&p, 0)
		}
		if err != nil {
			return nil, refuse("field plan: %v", err)
		}
		if p.Name != in.Name {
			return nil, refuse("field plan is of %s, and the path is about %s", core.QuoteShort(p.Name), core.QuoteShort(in.Name))
		}
		plans, err := a.storedPlans(ctx)
		if err != nil {
			return nil, err
		}
		for i := range p.Steps {
			child := p.Steps[i].Child
			if child != "" && !slices.ContainsFunc(plans, func(is core.Plan) bool { return is.Name == child }) {
				return nil, refuse("field plan: %v", p.UnknownChild(i))
			}
		}
		return &p, nil
	}
	if plan, err := a.planOf(ctx, in.Name, in.Body.Version); plan != nil || err != nil {
		return plan, err
	}
	return nil, ingest.Refuse(404, ingest.CauseNotFound, "%s", say.Of("refuse.no-version", "name", core.QuoteShort(in.Name), "version", in.Body.Version))
}
