package console

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// deprecate marks a version of a plan, so that no submission takes it, or takes the mark away.
func (c *console) deprecate(r *http.Request) (*dialog, error) {
	name, change := r.PathValue("name"), r.PathValue("change")
	version, err := strconv.ParseInt(r.PathValue("version"), 10, 64)
	undo := change == "allow"
	if err != nil || !undo && change != "deprecate" {
		return nil, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("problem.no-page")}
	}
	d := &dialog{Title: say.Of("version.deprecate-of", "version", version, "plan", core.ShortText(name, core.NameBytesMax)), Go: "Deprecate", ReasonIs: true,
		URL: c.url("plans", name, r.PathValue("version"), change), Back: c.url("plans", name) + "?version=" + strconv.FormatInt(version, 10),
		What: say.Of("version.deprecate"), told: "Deprecated.",
		do: func(ctx context.Context, typed form) error {
			_, err := c.Versions.Deprecate(ctx, actorOf(r), operate.Deprecate{Name: name, Version: version, Undo: undo, EvenIfCalled: typed.insists(operate.EvenIfCalled), Reason: typed("reason")})
			return err
		}}
	if undo {
		d.Title, d.Go, d.What, d.told = strings.Replace(d.Title, "Deprecate", "Allow", 1), "Allow", say.Of("version.undeprecate"), "Allowed again."
	}
	return d, nil
}
