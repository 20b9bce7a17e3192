package api

import (
	"context"
	"net/http"
	"strings"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// groupIDMax bounds the id of a failure group, of an operation, of a pause, of a token.
const groupIDMax = 128

type (
	groupsIn struct {
		Type  string `query:"type" maxLength:"64"`
		State string `query:"state" enum:"error,undone"`
		PageIn
	}
	// GroupIn is a failure group in a path.
	GroupIn struct {
		Group string `path:"group" maxLength:"128"`
	}
	notesIn struct {
		GroupIn
		AllIn
	}
	noteIn struct {
		GroupIn
		Body struct {
			Text string `json:"text" minLength:"1" maxLength:"1000"`
		}
	}
	notesJSON struct {
		Notes []operate.Note `json:"notes"`
	}
)

// failureRoutes are the groups of tasks that failed alike.
func (a *api) failureRoutes() {
	const tag = "failures"
	listing(a, route{method: "GET", path: "/v1/failures", id: "listFailures", tag: tag, needs: operate.RoleViewer,
		summary: "Failure groups", about: "Tasks of one type that failed in one step in the same way; of a page errors first, then the largest. Counts are exact to 10,000, then at least."},
		func(ctx context.Context, in *groupsIn, after string, limit int) (operate.Groups, []operate.Group, string, error) {
			if in.Type != "" {
				if err := core.CheckName("type", in.Type); err != nil {
					return operate.Groups{}, nil, "", ingest.Refuse(400, ingest.CauseTypeName, "%v", err)
				}
			}
			page, err := a.ports.Reader.Groups(ctx, operate.GroupFilter{Type: in.Type, State: core.State(in.State), Limit: limit, After: after})
			page.Groups = some(page.Ranked())
			return page, page.Groups, page.Next, err
		})
	register(a, route{method: "GET", path: "/v1/failures/{group}", id: "getFailure", tag: tag, needs: operate.RoleViewer, summary: "One failure group"},
		func(ctx context.Context, in *GroupIn) (operate.Group, error) {
			return a.group(ctx, in.Group)
		})
	listing(a, route{method: "GET", path: "/v1/failures/{group}/notes", id: "listNotes", tag: tag, needs: operate.RoleViewer, summary: "What operators wrote about a failure group"},
		func(ctx context.Context, in *notesIn, _ string, limit int) (page notesJSON, rows []operate.Note, next string, err error) {
			if bad := checkID("group", in.Group); bad != nil {
				return page, nil, "", bad
			}
			rows, err = a.ports.Notes.Notes(ctx, "group/"+in.Group, limit)
			page.Notes = some(rows)
			return page, page.Notes, "", err
		})
	register(a, route{method: http.MethodPost, path: "/v1/failures/{group}/notes", id: "addNote", tag: tag, needs: operate.RoleOperator, status: 201, summary: "Write a note about a failure group"},
		func(ctx context.Context, in *noteIn) (out operate.Note, err error) {
			if err := core.CheckWords("text", in.Body.Text); err != nil {
				return out, ingest.Refuse(400, ingest.CauseBody, "%v", err)
			}
			if _, err := a.group(ctx, in.Group); err != nil {
				return out, err
			}
			err = a.ports.Desk.Change(ctx, &operate.Act{Action: "note.add", Target: "group/" + in.Group, After: in.Body}, func(ctx context.Context) (err error) {
				out, err = a.ports.Notes.AddNote(ctx, operate.Note{Target: "group/" + in.Group, At: a.cfg.Now().UTC(), By: by(ctx).Name, Text: in.Body.Text})
				return err
			})
			return out, err
		})
}

func (a *api) group(ctx context.Context, id string) (operate.Group, error) {
	if bad := checkID("group", id); bad != nil {
		return operate.Group{}, bad
	}
	return a.ports.Reader.Group(ctx, id)
}

// checkID refuses an id of a path that no part of Duly gave out.
func checkID(field, id string) *ingest.Refusal {
	bad := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
	}
	if id == "" || len(id) > groupIDMax || strings.ContainsFunc(id, bad) {
		return ingest.Refuse(400, ingest.CauseQuery, "path %s is %s, want 1 to %d of A–Z a–z 0–9 - _ .", field, core.QuoteShort(id), groupIDMax)
	}
	return nil
}

// some is a list that is never null.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
