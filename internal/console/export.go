package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/sheet"
)

// exportPage is how many rows one read of an export takes.
const exportPage = operate.ListMax

// rows writes an export row by row, as NDJSON or CSV by the path's end.
type rows struct {
	c      *console
	w      http.ResponseWriter
	r      *http.Request
	out    *http.ResponseController
	csv    *sheet.Writer
	json   *json.Encoder
	header []string
	begun  bool
}

func (c *console) newRows(w http.ResponseWriter, r *http.Request, name string, header ...string) *rows {
	e := &rows{c: c, w: w, r: r, out: http.NewResponseController(w), header: header}
	kind, ending := "application/x-ndjson", ".ndjson"
	if strings.HasSuffix(r.URL.Path, ".csv") {
		kind, ending = "text/csv; charset=utf-8", ".csv"
		e.csv = sheet.NewWriter(w)
	} else {
		e.json = json.NewEncoder(w)
		e.json.SetEscapeHTML(false)
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+ending+`"`)
	return e
}

// row writes one row: the value as JSON, or its cells.
func (e *rows) row(value any, cells ...string) error {
	if e.json != nil {
		e.begun = true
		return e.json.Encode(value)
	}
	if !e.begun {
		e.begun = true
		if err := e.csv.Write(e.header); err != nil {
			return err
		}
	}
	return e.csv.Write(cells)
}

// flush sends what a read gave, and allows for the next read as much time again.
func (e *rows) flush() error {
	if e.csv != nil {
		if !e.begun {
			e.begun = true
			if err := e.csv.Write(e.header); err != nil {
				return err
			}
		}
		if err := e.csv.Flush(); err != nil {
			return err
		}
	}
	if err := e.out.SetWriteDeadline(time.Now().Add(readMax + writeMax)); err != nil && !isUnsupported(err) {
		return err
	}
	return e.out.Flush()
}

// end closes an export that failed so that it does not look complete: the connection breaks.
func (e *rows) end(err error) {
	if err == nil {
		return
	}
	if !e.begun {
		e.w.Header().Del("Content-Disposition")
		e.c.fail(e.w, e.r, err)
		return
	}
	e.c.Log.Warn("console: an export broke off", "path", e.r.URL.Path, "error", err)
	panic(http.ErrAbortHandler)
}

// taskRow is a task of an export, by the words of the API.
type taskRow struct {
	ID          string            `json:"id"`
	Type        string            `json:"type"`
	PlanVersion int64             `json:"plan_version"`
	Partition   int               `json:"partition"`
	Number      int64             `json:"number"`
	State       core.State        `json:"state"`
	Reason      string            `json:"reason,omitempty"`
	FailedStep  string            `json:"failed_step,omitempty"`
	Fingerprint string            `json:"fingerprint,omitempty"`
	Round       int               `json:"round"`
	Failures    int               `json:"failures"`
	CreatedAt   time.Time         `json:"created_at"`
	CompleteBy  time.Time         `json:"complete_by"`
	EndedAt     time.Time         `json:"ended_at,omitzero"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// exportTasks writes every task that the filter selects.
func (c *console) exportTasks(w http.ResponseWriter, r *http.Request) {
	if bad := known(r, filterNames...); bad != nil {
		c.fail(w, r, bad)
		return
	}
	f, bad := filterOf(r.URL.Query())
	if bad != nil {
		c.fail(w, r, bad)
		return
	}
	f.Limit, f.After = exportPage, ""
	e := c.newRows(w, r, "tasks", "type", "id", "state", "reason", "failed_step", "fingerprint", "failures", "created_at", "complete_by", "ended_at", "partition", "number", "labels")
	e.end(e.pages(func(ctx context.Context) (string, error) {
		page, err := c.Reader.List(ctx, f)
		if err != nil {
			return "", err
		}
		for i := range page.Tasks {
			v := &page.Tasks[i]
			row := taskRow{v.ID, v.Type, v.PlanVersion, v.Partition, v.Number, v.State, v.Reason, v.FailedStep, v.Fingerprint, v.Round, v.Failures, v.CreatedAt.Time(), v.CompleteBy.Time(), timeOf(v.EndedAt), nil}
			var labels []string
			for _, l := range v.Labels {
				if row.Labels == nil {
					row.Labels = map[string]string{}
				}
				row.Labels[l.Key] = l.Value
				labels = append(labels, l.Key+"="+l.Value)
			}
			if err := e.row(row, v.Type, v.ID, string(v.State), v.Reason, v.FailedStep, v.Fingerprint, strconv.Itoa(v.Failures), rfc(row.CreatedAt), rfc(row.CompleteBy), rfc(row.EndedAt), strconv.Itoa(v.Partition), strconv.FormatInt(v.Number, 10), strings.Join(labels, " ")); err != nil {
				return "", err
			}
		}
		f.After = page.Next
		return page.Next, nil
	}))
}

// pages reads until there is no next page. Each read has a bound of its own; the whole has none but the reader's patience.
func (e *rows) pages(read func(context.Context) (next string, err error)) error {
	for {
		ctx, cancel := reading(e.r)
		next, err := read(ctx)
		cancel()
		if err != nil {
			return err
		}
		if err := e.flush(); err != nil {
			return err
		}
		if next == "" {
			return nil
		}
	}
}

func rfc(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// exportJournal writes a task's whole journal, the newest row first.
func (c *console) exportJournal(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := reading(r)
	defer cancel()
	view, err := c.view(ctx, r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	plan, err := c.planOf(ctx, view.Type, view.PlanVersion)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	before := int64(0)
	e := c.newRows(w, r, view.ID+"-journal")
	e.end(e.pages(func(ctx context.Context) (string, error) {
		records, err := c.Reader.JournalPage(ctx, view.Partition, view.Number, before, exportPage)
		if err != nil {
			return "", err
		}
		for _, row := range journalOf(plan, records) {
			before = row.Seq
			if err := e.row(row); err != nil {
				return "", err
			}
		}
		if len(records) < exportPage || before <= 1 {
			return "", nil
		}
		return strconv.FormatInt(before, 10), nil
	}))
}

// exportMembers writes what became of each member of an operation.
func (c *console) exportMembers(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := reading(r)
	defer cancel()
	op, err := c.Operations.Operation(ctx, r.PathValue("id"))
	if err != nil {
		c.fail(w, r, err)
		return
	}
	after := int64(0)
	e := c.newRows(w, r, "operation-"+core.NameOf(op.ID, core.NameBytesMax), "ordinal", "type", "id", "step", "wave", "outcome", "text")
	e.end(e.pages(func(ctx context.Context) (string, error) {
		members, err := c.Operations.Members(ctx, op.ID, "", after, exportPage)
		if err != nil {
			return "", err
		}
		for i := range members {
			m := &members[i]
			after = m.Ordinal
			if err := e.row(m, strconv.FormatInt(m.Ordinal, 10), m.Type, m.ID, m.Step, strconv.Itoa(m.Wave), string(m.Outcome), m.Text); err != nil {
				return "", err
			}
		}
		if len(members) < exportPage {
			return "", nil
		}
		return strconv.FormatInt(after, 10), nil
	}))
}

// exportAudit writes the audit trail that the filter selects.
func (c *console) exportAudit(w http.ResponseWriter, r *http.Request) {
	bad := known(r, auditNames...)
	var f operate.AuditFilter
	if bad == nil {
		f, bad = auditFilterOf(r)
	}
	if bad != nil {
		c.fail(w, r, bad)
		return
	}
	f.Limit, f.After = exportPage, ""
	e := c.newRows(w, r, "audit", "number", "at", "actor", "role", "from", "via", "action", "target", "reason", "outcome", "before", "after")
	e.end(e.pages(func(ctx context.Context) (string, error) {
		page, err := c.Trail.Audit(ctx, f)
		if err != nil {
			return "", err
		}
		for i := range page.Entries {
			a := &page.Entries[i]
			if err := e.row(a, strconv.FormatInt(a.Number, 10), rfc(a.At), a.Actor, string(a.Role), a.From, a.Via, a.Action, a.Target, a.Reason, a.Outcome, string(a.Before), string(a.After)); err != nil {
				return "", err
			}
		}
		f.After = page.Next
		return page.Next, nil
	}))
}

// isUnsupported: the server has no deadlines to set; its own hold.
func isUnsupported(err error) bool { return errors.Is(err, http.ErrNotSupported) }
