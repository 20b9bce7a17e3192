package api

import (
	"context"
	"net/http"
	"strconv"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// The defaults and limits of an operation.
const (
	brakeDefault = 20
)

type (
	// selectionJSON is operate.Selection as it is sent: exactly one of the three.
	selectionJSON struct {
		Group  string            `json:"group,omitempty" maxLength:"128" doc:"id of a failure group"`
		Filter *FilterWords      `json:"filter,omitempty" doc:"all that match"`
		IDs    []operate.TaskRef `json:"ids,omitempty" maxItems:"1000"`
	}
	previewIn struct {
		Body struct {
			Selection selectionJSON  `json:"selection"`
			Action    operate.Action `json:"action" enum:"undo,resubmit,edit,accept,resolve,migrate"`
			Request   actionJSON     `json:"request,omitempty" doc:"what is asked of each, as of one task"`
		}
	}
	startIn struct {
		Body struct {
			Token   string `json:"token" minLength:"1" maxLength:"128" doc:"of the preview"`
			Rate    int    `json:"rate,omitempty" minimum:"0" maximum:"10000" doc:"tasks a second at most; 0: no limit but the waves"`
			Brake   *int   `json:"brake,omitempty" minimum:"1" maximum:"100" doc:"a wave stops the operation when more than this percentage fails alike; 20 without it"`
			Reason  string `json:"reason" minLength:"1" maxLength:"1000"`
			Confirm int64  `json:"confirm,omitempty" minimum:"0" doc:"the number of tasks: required above 100"`
		}
	}
	// OperationIn is an operation in a path.
	OperationIn struct {
		Operation string `path:"operation" maxLength:"128"`
	}
	operationsIn struct {
		State string `query:"state" enum:"preview,running,paused,braked,stopped,done"`
		PageIn
	}
	operationsJSON struct {
		Operations []operate.Operation `json:"operations"`
		Next       string              `json:"next,omitempty"`
	}
	membersIn struct {
		OperationIn
		Outcome string `query:"outcome" enum:"waiting,asked,done,failed_again,skipped"`
		PageIn
	}
	membersJSON struct {
		Members []operate.Member `json:"members"`
		Next    string           `json:"next,omitempty"`
	}
	changeIn struct {
		OperationIn
		Body struct {
			State  operate.OperationState `json:"state,omitempty" enum:"running,paused,stopped"`
			Rate   *int                   `json:"rate,omitempty" minimum:"0" maximum:"10000"`
			Reason string                 `json:"reason" minLength:"1" maxLength:"1000"`
		}
	}
)

// selection checks what a body selects.
func (s *selectionJSON) selection() (operate.Selection, *ingest.Refusal) {
	out := operate.Selection{Group: s.Group, IDs: s.IDs}
	given := 0
	for _, said := range []bool{s.Group != "", s.Filter != nil, len(s.IDs) > 0} {
		if said {
			given++
		}
	}
	if given != 1 {
		return out, ingest.Refuse(400, ingest.CauseBody, "field selection: %d of group, filter and ids are given, want one", given)
	}
	if s.Group != "" {
		return out, checkID("group", s.Group)
	}
	for _, ref := range s.IDs {
		if bad := ingest.CheckTask(ref.Type, ref.ID); bad != nil {
			return out, bad
		}
	}
	if s.Filter != nil {
		filter, bad := s.Filter.filter(func(name string) string { return "field selection.filter." + name })
		if bad != nil {
			return out, bad
		}
		if filter == (core.Filter{}) {
			return out, ingest.Refuse(400, ingest.CauseBody, "%s", say.Of("refuse.selection-empty"))
		}
		out.Filter = &filter
	}
	return out, nil
}

// operationRoutes are one action over many tasks.
func (a *api) operationRoutes() {
	const tag = "operations"
	register(a, route{method: http.MethodPost, path: "/v1/operations/preview", id: "previewOperation", tag: tag, needs: operate.RoleOperator, status: 201,
		summary: "Freeze what an operation would be about", about: "Nothing is asked of any task. The token starts the operation, for 15 minutes."},
		func(ctx context.Context, in *previewIn) (out operate.Preview, err error) {
			sel, bad := in.Body.Selection.selection()
			if bad != nil {
				return out, bad
			}
			if asked := in.Body.Request.Action; asked != "" && asked != in.Body.Action {
				return out, ingest.Refuse(400, ingest.CauseBody, "%s", say.Of("refuse.action-differs", "asked", core.QuoteShort(string(asked)), "action", in.Body.Action))
			}
			r := in.Body.Request.request(in.Body.Action, "")
			out, err = a.ports.Operations.Preview(ctx, by(ctx), sel, r)
			out.Sample = some(out.Sample)
			return out, err
		})
	register(a, route{method: http.MethodPost, path: "/v1/operations", id: "startOperation", tag: tag, needs: operate.RoleOperator, status: 201,
		summary: "Start a preview", about: "It runs in waves of 1, 5, 25, 125 … tasks, and stops itself by its brake."},
		func(ctx context.Context, in *startIn) (out operate.Operation, err error) {
			b := &in.Body
			if bad := operate.CheckReason(b.Reason); bad != nil {
				return out, bad
			}
			brake := brakeDefault
			if b.Brake != nil {
				brake = *b.Brake
			}
			return a.ports.Operations.Start(ctx, by(ctx), b.Token, b.Rate, brake, b.Reason, b.Confirm)
		})
	listing(a, route{method: "GET", path: "/v1/operations", id: "listOperations", tag: tag, needs: operate.RoleViewer, summary: "Operations, newest first; previews by their state alone"},
		func(ctx context.Context, in *operationsIn, after string, limit int) (page operationsJSON, rows []operate.Operation, next string, err error) {
			wanted := operate.StartedOperations()
			if in.State != "" {
				wanted = []operate.OperationState{operate.OperationState(in.State)}
			}
			rows, next, err = a.ports.OperationStore.Operations(ctx, wanted, limit, after)
			page = operationsJSON{some(rows), next}
			return page, page.Operations, next, err
		})
	register(a, route{method: "GET", path: "/v1/operations/{operation}", id: "getOperation", tag: tag, needs: operate.RoleViewer,
		summary: "An operation", about: "Its tally always adds up to tasks."},
		func(ctx context.Context, in *OperationIn) (out operate.Operation, err error) {
			return a.operation(ctx, in.Operation)
		})
	listing(a, route{method: "GET", path: "/v1/operations/{operation}/members", id: "listMembers", tag: tag, needs: operate.RoleViewer, summary: "The tasks of an operation, with what became of each"},
		func(ctx context.Context, in *membersIn, after string, limit int) (page membersJSON, rows []operate.Member, next string, err error) {
			ordinal := int64(0)
			if after != "" {
				if ordinal, err = strconv.ParseInt(after, 10, 64); err != nil || ordinal < 0 {
					return page, nil, "", ingest.Refuse(400, ingest.CauseQuery, "query parameter after is %s, want the next of a page", core.QuoteShort(after))
				}
			}
			if _, err := a.operation(ctx, in.Operation); err != nil {
				return page, nil, "", err
			}
			rows, err = a.ports.OperationStore.Members(ctx, in.Operation, operate.Outcome(in.Outcome), ordinal, limit)
			page.Members = some(rows)
			if n := len(rows); n == limit && n > 0 {
				page.Next = strconv.FormatInt(rows[n-1].Ordinal, 10)
			}
			return page, page.Members, page.Next, err
		})
	register(a, route{method: http.MethodPatch, path: "/v1/operations/{operation}", id: "changeOperation", tag: tag, needs: operate.RoleOperator, summary: "Pause, resume or stop an operation, or set its rate"},
		func(ctx context.Context, in *changeIn) (out operate.Operation, err error) {
			if bad := checkID("operation", in.Operation); bad != nil {
				return out, bad
			}
			b := &in.Body
			if bad := operate.CheckReason(b.Reason); bad != nil {
				return out, bad
			}
			if b.State == "" && b.Rate == nil {
				return out, ingest.Refuse(400, ingest.CauseBody, "fields state and rate: neither is given, want one at least")
			}
			return a.ports.Operations.Change(ctx, by(ctx), in.Operation, operate.Change{State: b.State, Rate: b.Rate, Reason: b.Reason})
		})
}

func (a *api) operation(ctx context.Context, id string) (operate.Operation, error) {
	if bad := checkID("operation", id); bad != nil {
		return operate.Operation{}, bad
	}
	return a.ports.Operations.Show(ctx, id)
}
