package api

import (
	"context"
	"net/http"

	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/operate"
)

type (
	limitsJSON struct {
		Limits []operate.Limit `json:"limits"`
	}
	limitIn struct {
		Agent string `path:"agent" maxLength:"259"`
		Body  struct {
			Concurrent    int     `json:"concurrent,omitempty" minimum:"1" maximum:"1000000" doc:"do commands at a time, over all nodes; absent: any number"`
			Rate          float64 `json:"rate,omitempty" minimum:"0.001" maximum:"1000000" doc:"do commands a second, over all nodes, rounded down to thousandths; absent: any number"`
			Key           string  `json:"key,omitempty" maxLength:"1024" doc:"an expression (CEL) over input, type and labels of a task, such as input.customer: the commands of tasks of which it is the same are bounded together, by key_concurrent and key_rate. It gives text, a number, or true or false; tasks for which it fails share the empty key. Absent: there are no keys. All nodes are to be of a version that knows keys"`
			KeyConcurrent int     `json:"key_concurrent,omitempty" minimum:"1" maximum:"1000000" doc:"do commands of one key at a time, over all nodes; absent: any number"`
			KeyRate       float64 `json:"key_rate,omitempty" minimum:"0.001" maximum:"1000000" doc:"do commands of one key a second, over all nodes, rounded down to thousandths; absent: any number"`
			Reason        string  `json:"reason" minLength:"1" maxLength:"1000"`
			InsistIn
		}
	}
	unlimitedIn struct {
		Agent  string `path:"agent" maxLength:"259"`
		Reason string `query:"reason" maxLength:"1000"`
	}
)

// limitRoutes are what bounds agents over all nodes.
func (a *api) limitRoutes() {
	const tag = "engine"
	whole(a, route{method: "GET", path: "/v1/limits", id: "listLimits", tag: tag, needs: operate.RoleViewer, summary: "Limits of agents, and what of them is granted"},
		func(rows []operate.Limit) limitsJSON { return limitsJSON{rows} },
		func(ctx context.Context) ([]operate.Limit, error) { return a.ports.Limits.Limits(ctx) })
	register(a, route{method: http.MethodPut, path: "/v1/limits/{agent}", id: "setLimit", tag: tag, needs: operate.RoleOperator, summary: "Bound what an agent gets, over all nodes",
		about: "It takes the place of the limit that there is: what is absent is not bounded. Tasks that find no place park and spend no attempt; one that waits for a place of its key lets others go first. Undo commands take places, and never wait for one."},
		func(ctx context.Context, in *limitIn) (out operate.Limit, err error) {
			l := operate.SetLimit{
				Agent: in.Agent, Concurrent: in.Body.Concurrent, Rate: in.Body.Rate,
				Key: in.Body.Key, KeyConcurrent: in.Body.KeyConcurrent, KeyRate: in.Body.KeyRate, Reason: in.Body.Reason, EvenIfUnknown: in.Body.EvenIfUnknown,
			}
			if bad := checkLimit(&l); bad != nil {
				return out, bad
			}
			return a.ports.Limits.SetLimit(ctx, by(ctx), l)
		})
	changing(a, route{method: http.MethodDelete, path: "/v1/limits/{agent}", id: "removeLimit", tag: tag, needs: operate.RoleOperator, summary: "Let an agent have any number again"},
		func(ctx context.Context, in *unlimitedIn) error {
			if bad := operate.CheckReason(in.Reason); bad != nil {
				return bad
			}
			return a.ports.Limits.RemoveLimit(ctx, by(ctx), in.Agent, in.Reason)
		})
}

// checkLimit refuses a limit that cannot be, or whose key is no expression.
func checkLimit(l *operate.SetLimit) *operate.Refusal {
	if bad := l.Check(); bad != nil || l.Key == "" {
		return bad
	}
	if _, err := expr.NewKey(l.Key); err != nil {
		return &operate.Refusal{Code: 400, Field: "key", Detail: "key: " + err.Error()}
	}
	return nil
}
