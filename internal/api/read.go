package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/taskform"
)

// Limits of a list.
const (
	listDefault    = 100
	listMax        = 1000
	cursorBytesMax = 512
)

// waitsSignal is the word of the filter for tasks that wait for an answer.
const waitsSignal = "signal"

// get reads one task. With the position that the 202 told, a task that its owner
// has yet to read is pending; without it, it is not found.
func (a *api) get(w http.ResponseWriter, r *http.Request) {
	taskType, id, bad := names(r)
	if bad != nil {
		problem(w, bad)
		return
	}
	after, bad := a.position(r, id)
	if bad != nil {
		problem(w, bad)
		return
	}
	view, err := a.find(r, taskType, id)
	if errors.Is(err, core.ErrNotFound) && after > 0 {
		read, cursorErr := a.passed(r, id, after)
		switch {
		case cursorErr != nil:
			err = cursorErr
		case !read:
			reply(w, http.StatusOK, pendingJSON{ID: id, Type: taskType, Partition: a.partition(id), State: core.StatePending})
			return
		default:
			// The cursor may have passed it between the two readings.
			view, err = a.find(r, taskType, id)
		}
	}
	switch {
	case err == nil:
		reply(w, http.StatusOK, taskOf(r.Context(), &view))
	case errors.Is(err, core.ErrNotFound) || errors.Is(err, errOtherType):
		problem(w, notFound(taskType, id))
	default:
		a.storeFailed(w, r, "the state store could not be read", err)
	}
}

// taskOf is a task with what who reads it may ask of it.
func taskOf(ctx context.Context, v *core.View) taskform.Task {
	t := taskform.Of(v)
	for _, a := range operate.Possible(by(ctx), v) {
		t.Possible = append(t.Possible, string(a))
	}
	return t
}

// passed reports whether the partition of the id has committed up to after.
func (a *api) passed(r *http.Request, id string, after uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.ReadMax)
	defer cancel()
	cursor, err := a.reader.Cursor(ctx, a.partition(id))
	if errors.Is(err, core.ErrNotFound) {
		return false, nil // the partition has had no owner yet
	}
	return cursor >= after, err
}

// position reads ?after=<partition>.<seq>; 0 without it.
func (a *api) position(r *http.Request, id string) (uint64, *ingest.Refusal) {
	value := r.URL.Query().Get("after")
	if value == "" {
		return 0, nil
	}
	number, seq, _ := strings.Cut(value, ".")
	partition, err1 := strconv.ParseUint(number, 10, 31)
	after, err2 := strconv.ParseUint(seq, 10, 64)
	if err1 != nil || err2 != nil || after == 0 {
		return 0, ingest.Refuse(400, ingest.CauseQuery, "query parameter after is %s, want <partition>.<position> as the 202 told it", core.QuoteShort(value))
	}
	if want := a.partition(id); int(partition) != want {
		return 0, ingest.Refuse(400, ingest.CauseQuery, "%s", say.Of("refuse.after-partition", "after", core.QuoteShort(value), "id", core.QuoteShort(id), "partition", want))
	}
	return after, nil
}

// list reads one page of tasks, or writes all.
func (a *api) list(w http.ResponseWriter, r *http.Request) {
	filter, bad := filterOf(r)
	if bad != nil {
		problem(w, bad)
		return
	}
	format, bad := formatOf(r)
	if bad != nil {
		problem(w, bad)
		return
	}
	limit, first := filter.Limit, filter.Limit
	if format != formatJSON {
		if !r.URL.Query().Has("limit") {
			limit = exportMax
		}
		first = min(limit, operate.ListMax)
	}
	var page pageJSON
	read := func(after string, most int) ([]taskform.Task, string, error) {
		ctx, cancel := context.WithTimeout(r.Context(), a.cfg.ReadMax)
		defer cancel()
		filter.After, filter.Limit = after, most
		found, err := a.reader.List(ctx, filter)
		page = pageOf(&found)
		return page.Tasks, page.Next, err
	}
	rows, next, err := read(filter.After, first)
	switch {
	case errors.Is(err, core.ErrCursor):
		problem(w, ingest.Refuse(400, ingest.CauseQuery, "query parameter after is %s, want the next of a page: %v", core.QuoteShort(filter.After), err))
	case err != nil:
		a.storeFailed(w, r, "the state store could not be read", err)
	case format == formatJSON:
		reply(w, http.StatusOK, page)
	default:
		export(r.Context(), a, w, format, limit, rows, next, read)
	}
}

var states = []core.State{
	core.StatePending, core.StateProcessing, core.StateProcessed, core.StateUndoing, core.StateUndone, core.StateError,
}

func formatOf(r *http.Request) (string, *ingest.Refusal) {
	in := FormatIn{Format: r.URL.Query().Get("format"), Accept: r.Header.Get("Accept")}
	switch in.Format {
	case "", formatJSON, formatNDJSON, formatCSV:
		return in.format(), nil
	}
	return "", ingest.Refuse(400, ingest.CauseQuery, "query parameter format is %s, want json, ndjson or csv", core.QuoteShort(in.Format))
}

func filterOf(r *http.Request) (core.Filter, *ingest.Refusal) {
	q := r.URL.Query()
	words := FilterWords{
		Type: q.Get("type"), State: q.Get("state"), Step: q.Get("step"), Fingerprint: q.Get("fingerprint"), Label: q.Get("label"),
		CreatedFrom: q.Get("created_from"), CreatedTo: q.Get("created_to"), DeadlineTo: q.Get("deadline_to"),
	}
	if version := q.Get("plan_version"); version != "" {
		var err error
		if words.PlanVersion, err = strconv.ParseInt(version, 10, 64); err != nil {
			return core.Filter{}, ingest.Refuse(400, ingest.CauseQuery, "query parameter plan_version is %s, want a whole number, 0 or more", core.QuoteShort(version))
		}
	}
	f, bad := words.filter(inQuery)
	if bad != nil {
		return f, bad
	}
	if f.Parent = q.Get("parent"); f.Parent != "" {
		if err := core.CheckTaskID(f.Parent); err != nil {
			return f, ingest.Refuse(400, ingest.CauseQuery, "query parameter parent: %v", err)
		}
	}
	switch waits := q.Get("waits"); waits {
	case "":
	case waitsSignal:
		f.OpenSignal = true
	default:
		return f, ingest.Refuse(400, ingest.CauseQuery, "query parameter waits is %s, want %s", core.QuoteShort(waits), waitsSignal)
	}
	f.Limit, f.After = listDefault, q.Get("after")
	if limit := q.Get("limit"); limit != "" {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > listMax {
			return f, ingest.Refuse(400, ingest.CauseQuery, "query parameter limit is %s, want 1 to %d", core.QuoteShort(limit), listMax)
		}
		f.Limit = n
	}
	if len(f.After) > cursorBytesMax {
		return f, ingest.Refuse(400, ingest.CauseQuery, "%s", say.Of("refuse.after-size", "after", core.QuoteShort(f.After), "bytes", len(f.After), "limit", cursorBytesMax))
	}
	return f, nil
}
