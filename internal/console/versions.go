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

// deprecated are the versions of plans that take no submission.
func (c *console) deprecated(ctx context.Context) (core.Deprecations, error) {
	if c.Versions == nil {
		return nil, nil
	}
	return c.Versions.Deprecated(ctx)
}

// deprecateDialog is the dialog of a version; undo is from its path.
func (c *console) deprecateDialog(r *http.Request) (d confirmData, version int64, undo bool, err error) {
	if c.Versions == nil {
		return d, 0, false, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("console.absent", "what", "versions of plans")}
	}
	name, change := r.PathValue("name"), r.PathValue("change")
	version, err = strconv.ParseInt(r.PathValue("version"), 10, 64)
	if undo = change == "allow"; err != nil || !undo && change != "deprecate" {
		return d, 0, false, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("problem.no-page")}
	}
	d = confirmData{Title: say.Of("version.deprecate-of", "version", version, "plan", core.ShortText(name, core.NameBytesMax)), Go: "Deprecate", ReasonIs: true,
		URL: c.url("plans", name, r.PathValue("version"), change), Back: c.url("plans", name) + "?version=" + strconv.FormatInt(version, 10),
		What: say.Of("version.deprecate")}
	if undo {
		d.Title, d.Go, d.What = strings.Replace(d.Title, "Deprecate", "Allow", 1), "Allow", say.Of("version.undeprecate")
	}
	return d, version, undo, nil
}

func (c *console) deprecateForm(w http.ResponseWriter, r *http.Request) {
	d, _, _, err := c.deprecateDialog(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.confirm(w, r, http.StatusOK, "plans", d)
}

func (c *console) deprecate(w http.ResponseWriter, r *http.Request) {
	d, version, undo, err := c.deprecateDialog(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	said := "Deprecated."
	if undo {
		said = "Allowed again."
	}
	c.carry(w, r, "plans", d, nil, said, func(ctx context.Context) error {
		_, err := c.Versions.Deprecate(ctx, actorOf(r), r.PathValue("name"), version, undo, strings.TrimSpace(r.PostForm.Get("reason")))
		return err
	})
}
