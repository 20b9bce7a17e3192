package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/sheet"
)

// Bounds of an export.
const (
	exportMax      = 1_000_000        // rows
	exportWriteMax = 30 * time.Second // for a page of it to reach the client
)

// The formats of a list.
const (
	formatJSON   = "json"
	formatNDJSON = "ndjson"
	formatCSV    = "csv"
)

// FormatIn says how a list is answered.
type FormatIn struct {
	Format string `query:"format" enum:"json,ndjson,csv" doc:"json (a page), or everything that matches as ndjson or csv; as the header Accept says it too"`
	Accept string `header:"Accept" hidden:"true"`
}

// format is what is asked for; the parameter goes before the header.
func (f FormatIn) format() string {
	if f.Format != "" {
		return f.Format
	}
	for one := range strings.SplitSeq(f.Accept, ",") {
		switch kind, _, _ := mime.ParseMediaType(strings.TrimSpace(one)); kind {
		case "application/x-ndjson":
			return formatNDJSON
		case "text/csv":
			return formatCSV
		case "application/json", "*/*":
			return formatJSON
		}
	}
	return formatJSON
}

// PageIn is the page of a list that is asked for.
type PageIn struct {
	Limit int    `query:"limit" minimum:"1" maximum:"1000" doc:"rows of a page, 50 without it; of an export: rows in all"`
	After string `query:"after" maxLength:"512" doc:"next of the page before"`
	FormatIn
}

func (p PageIn) page() (limit int, after, format string) { return p.Limit, p.After, p.format() }

// AllIn is a list that is one page.
type AllIn struct{ FormatIn }

func (p AllIn) page() (limit int, after, format string) { return operate.ListMax, "", p.format() }

type pager interface {
	page() (limit int, after, format string)
}

// streamed is an answer that its handler writes.
type streamed struct{ Body func(huma.Context) }

// listing serves a list: read gives a page as it is answered in JSON, its rows, and the cursor of the next page.
func listing[I, P, T any](a *api, r route, read func(ctx context.Context, in *I, after string, limit int) (page P, rows []T, next string, err error)) {
	op := r.operation()
	registry := a.huma.OpenAPI().Components.Schemas
	op.Responses = problems(registry, false)
	op.Responses["200"] = listAnswer(registry, reflect.TypeFor[P](), r.id)
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*streamed, error) {
		limit, after, format := any(in).(pager).page()
		first := limit
		if first == 0 {
			first = operate.ListDefault
			if format != formatJSON {
				first, limit = operate.ListMax, exportMax
			}
		}
		bounded := func(after string, limit int) (P, []T, string, error) {
			ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadMax)
			defer cancel()
			return read(ctx, in, after, limit)
		}
		page, rows, next, err := bounded(after, first)
		if err != nil {
			return nil, a.answerOf(ctx, r.id, err)
		}
		return &streamed{func(hc huma.Context) {
			w, ok := hc.BodyWriter().(http.ResponseWriter)
			if !ok {
				return // never: the adapter is ours
			}
			if format == formatJSON {
				reply(w, http.StatusOK, page)
				return
			}
			export(ctx, a, w, format, limit, rows, next, func(after string, limit int) ([]T, string, error) {
				_, rows, next, err := bounded(after, limit)
				return rows, next, err
			})
		}}, nil
	})
}

// whole serves a list that is one page.
func whole[P, T any](a *api, r route, page func([]T) P, read func(context.Context) ([]T, error)) {
	listing(a, r, func(ctx context.Context, _ *AllIn, _ string, _ int) (P, []T, string, error) {
		rows, err := read(ctx)
		rows = some(rows)
		return page(rows), rows, "", err
	})
}

// listAnswer describes the answer of a list.
func listAnswer(registry huma.Registry, page reflect.Type, hint string) *huma.Response {
	text := &huma.Schema{Type: huma.TypeString}
	return &huma.Response{Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{
		"application/json":     {Schema: registry.Schema(page, true, hint)},
		"application/x-ndjson": {Schema: text}, "text/csv": {Schema: text},
	}}
}

// export writes rows and those of all pages that follow, as they are read. What fails on the way cuts the answer off, so
// that no one takes a part for the whole: in NDJSON after a line that says why.
func export[T any](ctx context.Context, a *api, w http.ResponseWriter, format string, limit int, rows []T, next string, read func(after string, limit int) ([]T, string, error)) {
	rc := http.NewResponseController(w)
	put, kind := ndjson[T](w), "application/x-ndjson"
	if format == formatCSV {
		put, kind = csvRows[T](w), "text/csv; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", `attachment; filename="duly.`+format+`"`)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	for {
		// A client that reads slowly has time for a page; a writer without deadlines is a test's.
		_ = rc.SetWriteDeadline(time.Now().Add(exportWriteMax))
		rows = rows[:min(len(rows), limit)]
		if err := put(rows); err != nil {
			return // the client is gone
		}
		_ = rc.Flush()
		if limit -= len(rows); next == "" || limit <= 0 {
			return
		}
		var err error
		if rows, next, err = read(next, min(limit, operate.ListMax)); err != nil {
			a.log.Warn("an export ended early", "request", operate.RequestFrom(ctx), "error", err)
			if format == formatNDJSON {
				bad := problemOf(ingest.Refuse(503, ingest.CauseStore, "%s", say.Of("refuse.store-partial")))
				_ = json.NewEncoder(w).Encode(map[string]any{"error": bad})
				_ = rc.Flush()
			}
			panic(http.ErrAbortHandler)
		}
	}
}

// ndjson writes a line of JSON for each row.
func ndjson[T any](w io.Writer) func([]T) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return func(rows []T) error {
		for i := range rows {
			if err := encoder.Encode(rows[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// csvRows writes a line of names, then one for each row.
func csvRows[T any](w io.Writer) func([]T) error {
	columns := columnsOf(reflect.TypeFor[T](), nil)
	c := sheet.NewWriter(w)
	named := false
	line := make([]string, len(columns))
	return func(rows []T) error {
		if !named {
			named = true
			for i, column := range columns {
				line[i] = column.name
			}
			if err := c.Write(line); err != nil {
				return err
			}
		}
		for i := range rows {
			row := reflect.ValueOf(&rows[i]).Elem()
			for k, column := range columns {
				line[k] = cell(row.FieldByIndex(column.index))
			}
			if err := c.Write(line); err != nil {
				return err
			}
		}
		return c.Flush()
	}
}

type column struct {
	name  string
	index []int
}

// columnsOf are the members of a type as its JSON names them.
func columnsOf(t reflect.Type, at []int) (all []column) {
	for i := range t.NumField() {
		f := t.Field(i)
		index := append(append([]int(nil), at...), i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			all = append(all, columnsOf(f.Type, index)...)
		case f.IsExported() && name != "-" && name != "":
			all = append(all, column{name, index})
		}
	}
	return all
}

// cell is a value as a table shows it.
func cell(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Time:
		if value.IsZero() {
			return ""
		}
		return value.UTC().Format(time.RFC3339Nano)
	case operate.Count:
		if value.Unknown() {
			return "not counted"
		}
		if value.AtLeast {
			return "≥ " + strconv.FormatInt(value.N, 10)
		}
		return strconv.FormatInt(value.N, 10)
	case json.RawMessage:
		return string(value)
	case []byte:
		return base64.StdEncoding.EncodeToString(value)
	}
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Bool, reflect.Float64:
		return fmt.Sprint(v.Interface())
	}
	if v.IsZero() {
		return ""
	}
	data, err := encode(v.Interface())
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// timeIn is a time of a query parameter or a body; empty: none.
func timeIn(field, value string) (core.Instant, *ingest.Refusal) {
	if value == "" {
		return 0, nil
	}
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil || at.Year() < 1970 || at.Year() > 9999 {
		return 0, ingest.Refuse(400, ingest.CauseQuery, "%s is %s, want a time as 2026-01-31T12:00:00Z", field, core.QuoteShort(value))
	}
	return core.InstantOf(at), nil
}
