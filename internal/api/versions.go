package api

import (
	"context"
	"net/http"

	"duly.dev/duly/internal/operate"
)

// versionRoutes are about versions of plans.
func (a *api) versionRoutes() {
	register(a, route{method: http.MethodPost, path: "/v1/plans/{name}/{version}/deprecate", id: "deprecatePlan", tag: "engine", needs: operate.RoleOperator,
		summary: "Keep new submissions from a version of a plan", about: "Tasks in flight keep it, and a submission that names it is taken."},
		func(ctx context.Context, in *deprecateIn) (*deprecateOut, error) {
			if a.ports.Versions == nil {
				return nil, notServed("versions of plans")
			}
			if bad := operate.CheckReason(in.Body.Reason); bad != nil {
				return nil, bad
			}
			actor, _ := operate.ActorFrom(ctx)
			left, err := a.ports.Versions.Deprecate(ctx, actor, in.Name, in.Version, in.Body.Undo, in.Body.Reason)
			return &deprecateOut{deprecateJSON{in.Name, in.Version, !in.Body.Undo, left}}, err
		})
}
