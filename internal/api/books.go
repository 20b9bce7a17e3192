package api

import (
	"context"
	"net/http"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

type (
	booksIn struct {
		Status string `query:"status" enum:"open,asked,accepted" doc:"of the ghosts; absent: open and asked"`
		PageIn
	}
	booksPage struct {
		operate.BooksView
		Ghosts []operate.Ghost `json:"ghosts"`
		Next   string          `json:"next,omitempty"`
	}
	compareIn struct {
		Body *struct {
			Reason string `json:"reason,omitempty" maxLength:"1000"`
		}
	}
	repairIn struct {
		KeyIn
		Body struct {
			Agent  string         `json:"agent" minLength:"1" maxLength:"259"`
			Effect string         `json:"effect" minLength:"1" maxLength:"150" doc:"key of the ghost"`
			Repair operate.Repair `json:"repair" enum:"undo,accept"`
			Reason string         `json:"reason" minLength:"1" maxLength:"1000"`
		}
	}
)

// booksRoutes are the books of the services, compared with the journal.
func (a *api) booksRoutes() {
	const tag = "books"
	listing(a, route{method: "GET", path: "/v1/books", id: "getBooks", tag: tag, needs: operate.RoleViewer,
		summary: "The newest comparison of journal and services, with what does not agree",
		about:   "A ghost that was accepted is shown by status=accepted alone."},
		func(ctx context.Context, in *booksIn, after string, limit int) (page booksPage, rows []operate.Ghost, next string, err error) {
			statuses := []operate.GhostStatus{operate.GhostOpen, operate.GhostAsked}
			if in.Status != "" {
				statuses = []operate.GhostStatus{operate.GhostStatus(in.Status)}
			}
			if page.BooksView, err = a.ports.Books.Books(ctx); err != nil {
				return page, nil, "", err
			}
			rows, page.Next, err = a.ports.Books.Ghosts(ctx, statuses, limit, after)
			page.Ghosts = some(rows)
			return page, page.Ghosts, page.Next, err
		})
	register(a, route{method: http.MethodPost, path: "/v1/books/compare", id: "compareBooks", tag: tag, needs: operate.RoleOperator, status: 202,
		summary: "Compare now", about: "The leader begins within seconds; answers in the result has the id of the request when it has ended."},
		func(ctx context.Context, in *compareIn) (out operate.BooksView, err error) {
			reason := ""
			if in.Body != nil {
				reason = in.Body.Reason
			}
			if bad := operate.CheckReason(reason); bad != nil {
				return out, bad
			}
			return a.ports.Books.Compare(ctx, by(ctx), reason)
		})
	register(a, route{method: http.MethodPost, path: "/v1/books/repair", id: "repairBooks", tag: tag, needs: operate.RoleOperator, status: 202,
		summary: "Repair what does not agree",
		about:   "undo: the task's owner undoes the step of an undone task once more, or a processed task. accept: it is explained, and counts no more. Which of them a ghost has stands in its repairs."},
		func(ctx context.Context, in *repairIn) (out operate.Answer, err error) {
			b := &in.Body
			if err := core.CheckAgent(b.Agent); err != nil {
				return out, ingest.Refuse(400, ingest.CauseBody, "field agent: %v", err)
			}
			if !core.PlainText(b.Effect) {
				return out, ingest.Refuse(400, ingest.CauseBody, "field effect is %s, want text without control characters", core.QuoteShort(b.Effect))
			}
			if bad := operate.CheckReason(b.Reason); bad != nil {
				return out, bad
			}
			return a.ports.Books.Repair(ctx, by(ctx), operate.RepairRequest{Agent: b.Agent, Effect: b.Effect, Repair: b.Repair, Reason: b.Reason, Key: in.Key})
		})
}
