package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// Bounds of settings.
const (
	viewPrefix  = "view."
	viewsMax    = 500
	tokenForMax = 10 * 365 * 24 * time.Hour
)

// refused notes a change that the role of who asks does not allow.
func (a *api) refused(r *http.Request, operation, why string) {
	_ = a.ports.Desk.Note(r.Context(), &operate.Act{Action: operation, Target: strings.TrimPrefix(r.URL.Path, "/v1/")}, &operate.Refusal{Code: 403, Detail: why})
}

type (
	auditIn struct {
		Actor  string `query:"actor" maxLength:"200"`
		Action string `query:"action" maxLength:"64"`
		Target string `query:"target" maxLength:"200" doc:"what it begins with: task/order, operation/…"`
		From   string `query:"from" format:"date-time" doc:"at or after"`
		To     string `query:"to" format:"date-time" doc:"before"`
		PageIn
	}
	tokensJSON struct {
		Tokens []operate.Token `json:"tokens"`
	}
	tokenIn struct {
		Body struct {
			Name    string       `json:"name" minLength:"1" maxLength:"64"`
			Role    operate.Role `json:"role" enum:"client,viewer,operator,admin"`
			Expires *time.Time   `json:"expires,omitempty" doc:"absent: never"`
			Labels  string       `json:"labels,omitempty" maxLength:"2000" doc:"key=value, joined by commas: what it submits has these, and no other values of their keys; of a client, it knows of no other tasks; duly-ids=… says what its ids begin with"`
		}
	}
	tokenAnswer struct {
		Token  operate.Token `json:"token"`
		Secret string        `json:"secret" doc:"what the holder sends; it is shown here only"`
	}
	revokeIn struct {
		ID     string `path:"token" maxLength:"128"`
		Reason string `query:"reason" maxLength:"1000"`
	}
	// ViewIn is a view in a path.
	ViewIn struct {
		Name string `path:"name" maxLength:"64"`
	}
	putViewIn struct {
		ViewIn
		Body ViewBody
	}
	// ViewBody is a saved view.
	ViewBody struct {
		Query string `json:"query" maxLength:"4000" doc:"of the page's address"`
		Page  string `json:"page,omitempty" maxLength:"200" doc:"the page that it is of"`
		Title string `json:"title,omitempty" maxLength:"200"`
	}
	viewJSONOut struct {
		Name string `json:"name"`
		ViewBody
	}
	viewsJSON struct {
		Views []viewJSONOut `json:"views"`
	}
)

// adminRoutes are who did what, who may, and what is kept for pages.
func (a *api) adminRoutes() {
	const tag = "admin"
	listing(a, route{method: "GET", path: "/v1/audit", id: "listAudit", tag: tag, needs: operate.RoleViewer,
		summary: "The audit trail, newest first", about: "Every change, carried out or refused: who, when, from where, what, why."},
		func(ctx context.Context, in *auditIn, after string, limit int) (page operate.AuditPage, rows []operate.AuditEntry, next string, err error) {
			from, bad := timeIn(inQuery("from"), in.From)
			if bad != nil {
				return page, nil, "", bad
			}
			to, bad := timeIn(inQuery("to"), in.To)
			if bad != nil {
				return page, nil, "", bad
			}
			if !core.PlainText(in.Actor + in.Action + in.Target) {
				return page, nil, "", ingest.Refuse(400, ingest.CauseQuery, "%s", say.Of("refuse.audit-filter"))
			}
			f := operate.AuditFilter{Actor: in.Actor, Action: in.Action, Target: in.Target, Limit: limit, After: after}
			if from != 0 {
				f.From = from.Time()
			}
			if to != 0 {
				f.To = to.Time()
			}
			page, err = a.ports.Trail.Audit(ctx, f)
			page.Entries = some(page.Entries)
			return page, page.Entries, page.Next, err
		})
	a.tokenRoutes()
	whole(a, route{method: "GET", path: "/v1/settings/views", id: "listViews", tag: tag, needs: operate.RoleViewer, summary: "Saved views"},
		func(rows []viewJSONOut) viewsJSON { return viewsJSON{rows} }, func(ctx context.Context) (rows []viewJSONOut, err error) {
			all, err := a.ports.Settings.Settings(ctx, viewPrefix)
			for _, name := range slices.Sorted(maps.Keys(all)) {
				view := viewJSONOut{Name: strings.TrimPrefix(name, viewPrefix)}
				if err := json.Unmarshal(all[name], &view.ViewBody); err != nil {
					return nil, fmt.Errorf("setting %s: %w", name, err)
				}
				rows = append(rows, view)
			}
			return rows, err
		})
	changing(a, route{method: http.MethodPut, path: "/v1/settings/views/{name}", id: "putView", tag: tag, needs: operate.RoleOperator, summary: "Save a view for all"},
		func(ctx context.Context, in *putViewIn) error {
			if bad := a.checkView(in.Name); bad != nil {
				return bad
			}
			if !core.PlainText(in.Body.Query + in.Body.Page + in.Body.Title) {
				return ingest.Refuse(400, ingest.CauseBody, "%s", say.Of("refuse.view-fields"))
			}
			document, err := encode(in.Body)
			if err != nil {
				return err
			}
			all, err := a.ports.Settings.Settings(ctx, viewPrefix)
			if err != nil {
				return err
			}
			before, there := all[viewPrefix+in.Name]
			if !there && len(all) >= viewsMax {
				return ingest.Refuse(409, ingest.CauseFull, "%s", say.Of("refuse.views-full", "n", len(all)))
			}
			put := operate.Act{Action: "view.put", Target: "view/" + in.Name, After: in.Body}
			if there {
				put.Before = json.RawMessage(before)
			}
			return a.ports.Desk.Change(ctx, &put, func(ctx context.Context) error {
				return a.ports.Settings.PutSetting(ctx, viewPrefix+in.Name, bytes.TrimSpace(document))
			})
		})
	changing(a, route{method: http.MethodDelete, path: "/v1/settings/views/{name}", id: "deleteView", tag: tag, needs: operate.RoleOperator, summary: "Forget a view"},
		func(ctx context.Context, in *ViewIn) error {
			if bad := a.checkView(in.Name); bad != nil {
				return bad
			}
			before, err := a.ports.Settings.Setting(ctx, viewPrefix+in.Name)
			if errors.Is(err, core.ErrNotFound) {
				return ingest.Refuse(404, ingest.CauseNotFound, "no view %s", core.QuoteShort(in.Name))
			}
			if err != nil {
				return err
			}
			return a.ports.Desk.Change(ctx, &operate.Act{Action: "view.delete", Target: "view/" + in.Name, Before: json.RawMessage(before)}, func(ctx context.Context) error {
				return a.ports.Settings.DeleteSetting(ctx, viewPrefix+in.Name)
			})
		})
}

func (a *api) checkView(name string) error {
	if err := core.CheckName("name", name); err != nil {
		return ingest.Refuse(400, ingest.CauseQuery, "path %v", err)
	}
	return nil
}

// tokenRoutes are the tokens, for admins.
func (a *api) tokenRoutes() {
	const tag = "admin"
	whole(a, route{method: "GET", path: "/v1/tokens", id: "listTokens", tag: tag, needs: operate.RoleAdmin, summary: "Tokens, without their secrets"},
		func(rows []operate.Token) tokensJSON { return tokensJSON{rows} },
		func(ctx context.Context) ([]operate.Token, error) { return a.ports.Tokens.Tokens(ctx) })
	register(a, route{method: http.MethodPost, path: "/v1/tokens", id: "createToken", tag: tag, needs: operate.RoleAdmin, status: 201, summary: "Make a token"},
		func(ctx context.Context, in *tokenIn) (out tokenAnswer, err error) {
			now, expires := a.cfg.Now().UTC(), time.Time{}
			if in.Body.Expires != nil {
				if expires = in.Body.Expires.UTC(); expires.Sub(now) > tokenForMax {
					return out, ingest.Refuse(400, ingest.CauseBody, "field expires is %s, want at most %v from now", expires.Format(time.RFC3339), tokenForMax)
				}
			}
			labels, err := core.ParseLabels(in.Body.Labels)
			if err != nil {
				return out, ingest.Refuse(400, ingest.CauseBody, "field labels: %v", err)
			}
			made, secret, err := auth.NewToken(in.Body.Name, in.Body.Role, by(ctx).Name, now, expires, labels...)
			if err != nil {
				return out, ingest.Refuse(400, ingest.CauseBody, "field %v", err)
			}
			return tokenAnswer{made, secret}, a.ports.Desk.Change(ctx, &operate.Act{Action: "token.create", Target: "token/" + made.ID, After: made}, func(ctx context.Context) error { return a.ports.Tokens.PutToken(ctx, made) })
		})
	changing(a, route{method: http.MethodDelete, path: "/v1/tokens/{token}", id: "revokeToken", tag: tag, needs: operate.RoleAdmin, summary: "Revoke a token", about: "Every node sees it within seconds."},
		func(ctx context.Context, in *revokeIn) error {
			if bad := checkID("token", in.ID); bad != nil {
				return bad
			}
			if bad := operate.CheckReason(in.Reason); bad != nil {
				return bad
			}
			before, err := a.ports.Tokens.TokenByID(ctx, in.ID)
			if errors.Is(err, core.ErrNotFound) {
				return ingest.Refuse(404, ingest.CauseNotFound, "no token %s", core.QuoteShort(in.ID))
			}
			if err != nil {
				return err
			}
			return a.ports.Desk.Change(ctx, &operate.Act{Action: "token.revoke", Target: "token/" + in.ID, Reason: in.Reason, Before: before}, func(ctx context.Context) error {
				return a.ports.Tokens.RevokeToken(ctx, in.ID, a.cfg.Now().UTC())
			})
		})
}
