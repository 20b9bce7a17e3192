package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/sheet"
)

// pages are the parsed templates by name.
type pages map[string]*template.Template

// page is what the layout shows around a page's own data.
type page struct {
	Title   string
	Section string // of the menu
	Me      operate.Actor
	Told    string // what the change before came to
	Now     time.Time
	Data    any
	SignOut string
	Version string
	Plots   bool // the page draws plots
	Code    int  // of the answer; 0: 200
}

// reader is a page that is read: what of it makes every such page alike.
type reader struct {
	template, section string
	params            []string // that its address may have
	read              func(ctx context.Context, r *http.Request) (page, error)
}

// handler answers a request; an error is shown as a page.
type handler func(w http.ResponseWriter, r *http.Request) error

// serve answers with a page that is read within the time that all reads of a page have.
func (c *console) serve(p reader) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if bad := known(r, p.params...); bad != nil {
			return bad
		}
		ctx, cancel := reading(r)
		defer cancel()
		content, err := p.read(ctx, r)
		if err != nil {
			return err
		}
		content.Section = p.section
		return c.show(w, r, cmp.Or(content.Code, http.StatusOK), p.template, content)
	}
}

// section is one line of the menu.
type section struct{ ID, Path, Title, Icon string }

var sections = []section{
	{"overview", "", "Overview", "home"},
	{"tasks", "tasks", "Tasks", "tasks"},
	{"failures", "failures", "Failures", "group"},
	{"operations", "operations", "Operations", "wave"},
	{"agents", "agents", "Agents", "agent"},
	{"pauses", "pauses", "Pauses", "pause"},
	{"books", "books", "Books", "books"},
	{"schedules", "schedules", "Schedules", "clock"},
	{"plans", "plans", "Plans", "plan"},
	{"partitions", "partitions", "Partitions", "slices"},
	{"audit", "audit", "Audit", "audit"},
	{"settings", "settings", "Settings", "gear"},
}

func (c *console) parse(from fs.FS) (pages, error) {
	base, err := template.New("layout.html").Funcs(template.FuncMap{
		"asset": c.assetURL, "url": c.url, "export": c.export, "dialog": c.dialog, "submit": c.submit,
		"say": sayHTML, "number": number, "count": operate.Count.String, "tasks": operate.Count.Tasks, "duration": duration, "when": when, "whenAlone": whenAlone, "exact": exact,
		"badge": badge, "look": lookOf, "icon": icon, "spark": sparkline, "decimal": decimal, "ms": ofMS, "chance": chanceWord, "percent": percent, "rate": rateWord, "keysWord": keysWord, "whole": func(n int) string { return number(int64(n)) },
		"sections": func() []section { return sections },
		"link":     func(to, query string) string { return to + "?" + query },
		"dict":     dict, "json": jsonText, "bar": bar, "shares": shares,
		"outcomeQuery": func(outcome string) string {
			if outcome == "" {
				return ""
			}
			return "outcome=" + outcome
		},
		"agentPause": func(agent string) string { return c.url("pauses", "new") + "?agent=" + url.QueryEscape(agent) },
		"typePause":  func(name string) string { return c.url("pauses", "new") + "?type=" + url.QueryEscape(name) },
		"lag":        func(n uint64) int64 { return int64(min(n, 1<<62)) },
		"page":       func(to string) string { return c.Base + Path + to }, "taskURL": c.taskURL, "has": strings.Contains, "short": core.ShortText,
		"next": func(n int64) int64 { return n + 1 },
		"add":  func(a, b int) int { return a + b }, "text": func(v any) string { return fmt.Sprint(v) },
		"may":    func(has, needs operate.Role) bool { return has.May(needs) },
		"millis": func(ms float64) string { return duration(time.Duration(ms * float64(time.Millisecond))) },
	}).ParseFS(from, "layout.html", "parts.html")
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	names, err := fs.Glob(from, "*.html")
	if err != nil {
		return nil, err
	}
	all := pages{}
	for _, name := range names {
		if name == "layout.html" || name == "parts.html" {
			continue
		}
		clone, err := base.Clone()
		if err != nil {
			return nil, err
		}
		if clone, err = clone.ParseFS(from, name); err != nil {
			return nil, fmt.Errorf("template %s: %w", name, err)
		}
		all[strings.TrimSuffix(name, ".html")] = clone
	}
	return all, nil
}

// url joins parts of a path below the console's own, each escaped.
func (c *console) url(parts ...any) string { return c.Base + Path + joined(parts) }

func joined(parts []any) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = url.PathEscape(fmt.Sprint(part))
	}
	return strings.Join(escaped, "/")
}

// export is where the API serves everything of a list that a filter of the console selects, in a format.
func (c *console) export(format, query string, parts ...any) (string, error) {
	q, err := url.ParseQuery(query)
	for _, name := range []string{"created_from", "created_to", "deadline_to", "from", "to"} {
		if at, bad := timeIn(q.Get(name)); bad == nil && !at.IsZero() {
			q.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	q.Set("format", format)
	return c.Base + "/v1/" + joined(parts) + "?" + q.Encode(), err
}

func (c *console) taskURL(taskType, id string) string { return c.url("tasks", taskType, id) }

// dialog are the attributes of a link to a form: a page of its own, which the script shows in a dialog.
func (c *console) dialog(to string) template.HTMLAttr {
	to = html.EscapeString(to)
	return template.HTMLAttr(`href="` + to + `" hx-get="` + to + `" hx-target="#dialog-body" hx-select="#dialog-content" hx-swap="innerHTML" aria-haspopup="dialog"`)
}

// submit are the attributes of a form that may be in a dialog.
func (c *console) submit(to string) template.HTMLAttr {
	to = html.EscapeString(to)
	return template.HTMLAttr(`method="post" action="` + to + `" hx-post="` + to + `" hx-target="#dialog-body" hx-select="#dialog-content" hx-swap="innerHTML"`)
}

// show renders a page. What a template cannot do is a defect, and is told as such, so there is never an error left to tell.
func (c *console) show(w http.ResponseWriter, r *http.Request, code int, name string, p page) error {
	actor, _ := operate.ActorFrom(r.Context())
	p.Me, p.Now, p.Version = actor, c.Now(), c.Version
	if c.SignOut != "" {
		p.SignOut = c.Base + c.SignOut
	}
	p.Told = c.told(w, r)
	var b bytes.Buffer
	if err := c.pages[name].ExecuteTemplate(&b, "layout.html", p); err != nil {
		c.Log.Error("console page", "page", name, "path", r.URL.Path, "error", err)
		http.Error(w, "The page could not be made. The log of the node says why.", http.StatusInternalServerError)
		return nil
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, sheet.HTML(b.String())) // a client that went away has no use for the error
	return nil
}

// problem is the page of an error: a sentence, and what to do next.
type problem struct {
	Code  int
	Text  string
	Next  []string
	Retry string // address to try again
}

// fail shows an error as a page.
func (c *console) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := c.problemOf(r, err)
	if p.Code == http.StatusServiceUnavailable || p.Code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "5")
	}
	_ = c.show(w, r, p.Code, "problem", page{Title: say.Of("problem.title"), Data: p})
}

// problemOf turns an error into a sentence and the next step.
func (c *console) problemOf(r *http.Request, err error) problem {
	p := problem{Code: http.StatusServiceUnavailable}
	refusal := new(operate.Refusal)
	switch {
	case errors.As(err, &refusal):
		p.Code, p.Text = refusal.Code, refusal.Detail
		if p.Code < 400 || p.Code > 599 {
			p.Code = http.StatusInternalServerError
		}
		for _, a := range refusal.Possible {
			p.Next = append(p.Next, "Possible now: "+string(a)+".")
		}
		if p.Code == http.StatusServiceUnavailable || p.Code == http.StatusTooManyRequests {
			p.Next = append(p.Next, say.Of("problem.again"))
		}
	case errors.Is(err, core.ErrNotFound):
		p.Code, p.Text = http.StatusNotFound, say.Of("problem.not-found")
		p.Next = append(p.Next, say.Of("problem.not-found.next"))
	case errors.Is(err, core.ErrCursor):
		p.Code, p.Text = http.StatusBadRequest, say.Of("problem.cursor", "error", err)
		p.Next = append(p.Next, say.Of("problem.cursor.next"))
	case errors.Is(err, context.DeadlineExceeded):
		p.Text = say.Of("problem.slow", "time", duration(readMax))
		p.Next = append(p.Next, say.Of("problem.slow.next"))
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		p.Text = say.Of("problem.left")
	default:
		c.Log.Error("console", "path", r.URL.Path, "error", err)
		p.Text = say.Of("problem.store")
		p.Next = append(p.Next, say.Of("problem.store.next"))
	}
	if r.Method == http.MethodGet && p.Code == http.StatusServiceUnavailable {
		p.Retry = c.Base + r.URL.RequestURI()
	}
	return p
}

const toldCookie = "duly-told"

// done ends a change: it goes to a page that says what became of it.
func (c *console) done(w http.ResponseWriter, r *http.Request, to, text string) error {
	http.SetCookie(w, &http.Cookie{Name: toldCookie, Value: base64.RawURLEncoding.EncodeToString([]byte(core.ShortText(text, 1000))),
		Path: c.Base + Path, MaxAge: 60, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	if r.Header.Get("HX-Request") != "" {
		to, _, _ = strings.Cut(to, "#") // to another part of the page that it shows a browser goes without asking
		w.Header().Set("HX-Redirect", to)
		w.WriteHeader(http.StatusOK)
		return nil
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// told takes what done left for the next page.
func (c *console) told(w http.ResponseWriter, r *http.Request) string {
	cookie, err := r.Cookie(toldCookie)
	if err != nil || r.Header.Get("HX-Request") != "" {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || len(text) > 1024 {
		return ""
	}
	http.SetCookie(w, &http.Cookie{Name: toldCookie, Path: c.Base + Path, MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	return string(text)
}

// nextPage is the address of the same list from a cursor on.
func nextPage(r *http.Request, next string) string {
	if next == "" {
		return ""
	}
	q := r.URL.Query()
	q.Set("after", next)
	return "?" + q.Encode()
}

// known refuses query parameters that a page does not have, so that a mistyped filter is not silently no filter.
func known(r *http.Request, names ...string) *operate.Refusal {
	for name := range r.URL.Query() {
		found := false
		for _, n := range names {
			found = found || n == name
		}
		if !found {
			return &operate.Refusal{Code: http.StatusBadRequest, Field: name,
				Detail: say.Of("problem.parameter", "name", core.QuoteShort(name), "known", strings.Join(names, ", "))}
		}
	}
	if after := r.URL.Query().Get("after"); len(after) > cursorBytesMax {
		return &operate.Refusal{Code: http.StatusBadRequest, Field: "after", Detail: say.Of("problem.cursor-size", "n", len(after), "most", cursorBytesMax)}
	}
	return nil
}
