package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

type (
	levelJSON struct {
		Level string `json:"level" enum:"debug,info,warn,error"`
	}
)

// noLevel is the answer of a node that was given no level to change.
var noLevel = ingest.Refuse(503, ingest.CauseNotServed, "%s", say.Of("refuse.no-level"))

func (a *api) level() levelJSON { return levelJSON{strings.ToLower(a.ports.Level.Level().String())} }

// levelRoutes are the level of this node's log.
func (a *api) levelRoutes() {
	const tag, path = "admin", "/v1/log-level"
	register(a, route{method: "GET", path: path, id: "getLogLevel", tag: tag, needs: operate.RoleAdmin, summary: "Level of the log of the node that answers"},
		func(context.Context, *struct{}) (out levelJSON, err error) {
			if a.ports.Level == nil {
				return out, noLevel
			}
			return a.level(), nil
		})
	register(a, route{method: http.MethodPut, path: path, id: "putLogLevel", tag: tag, needs: operate.RoleAdmin, summary: "Change it, until that node ends"},
		func(ctx context.Context, in *body[levelJSON]) (out levelJSON, err error) {
			if a.ports.Level == nil {
				return out, noLevel
			}
			var to slog.Level
			if err := to.UnmarshalText([]byte(in.Body.Level)); err != nil {
				return out, fmt.Errorf("level %s: %w", in.Body.Level, err) // the description allows four
			}
			err = a.ports.Desk.Change(ctx, &operate.Act{Action: "log.level", Target: "log-level", Before: a.level(), After: in.Body}, func(context.Context) error {
				a.ports.Level.Set(to)
				return nil
			})
			if err != nil {
				return out, err
			}
			return a.level(), nil
		})
}
