package httpagent

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/planfile"
)

// agent reads one agent.
func (r *reader) agent(name string, v *planfile.Value) agent {
	a := agent{name: name, running: runningDefault, waiting: waitingDefault}
	var of *service
	var steps *planfile.Value
	if !r.fields(v, "an agent", fields{
		"service": func(m planfile.Member) {
			name, _ := m.Value.Text()
			if of = r.all.services[name]; of == nil {
				r.t.Wrong(m.Value, "there is no service %s; there is %s", core.QuoteShort(name), strings.Join(slices.Sorted(maps.Keys(r.all.services)), ", "))
				of = &service{name: name, base: &url.URL{}} // the rest is read, too
			}
		},
		"running": r.count(&a.running, 1, runningMax),
		"waiting": r.count(&a.waiting, 1, waitingMax),
		"steps":   func(m planfile.Member) { steps = m.Value },
	}) {
		return a
	}
	if of == nil || steps == nil {
		r.t.Wrong(v, "agent %s: want service and steps, one of them is missing", name)
		return a
	}
	r.each(steps, "steps", stepsMax, func(m planfile.Member) {
		if err := core.CheckName("step", m.Name); err != nil {
			r.t.WrongName(m, "%v", err)
		}
		a.steps = append(a.steps, r.step(m.Name, m.Value, of))
	})
	return a
}

// step reads what is asked of a service for a step.
func (r *reader) step(name string, v *planfile.Value, of *service) step {
	s := step{name: name}
	r.fields(v, "a step", fields{
		"do":    func(m planfile.Member) { s.do = r.operation(name, m, of) },
		"undo":  func(m planfile.Member) { s.undo = r.operation(name, m, of) },
		"probe": func(m planfile.Member) { s.probe = r.operation(name, m, of) },
	})
	if s.do == nil {
		r.t.Wrong(v, "step %s has no do", name)
		return s
	}
	s.do.effects = s.undo != nil
	if p := s.probe; p != nil && p.result == nil { // what was done has one result, whoever tells it
		p.result = s.do.result
		if !p.saysAnswer && s.do.answer == formText {
			p.answer = formText
		}
	}
	return s
}

// Methods that an operation may have.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// defaultKey is the header of the idempotency key.
const defaultKey = "Idempotency-Key"

// operation reads a do, an undo or a probe.
func (r *reader) operation(step string, m planfile.Member, of *service) *operation {
	o := &operation{where: "step " + step + ": " + m.Name, undo: m.Name == "undo", service: of, contentType: typeJSON, idempotency: defaultKey}
	o.method = map[string]string{"do": http.MethodPost, "undo": http.MethodDelete, "probe": http.MethodGet}[m.Name]
	scopes := r.call
	if o.undo {
		scopes, o.answer = r.undone, formNone
	}
	probe := m.Name == "probe"
	if probe {
		o.idempotency = ""
	}
	var path *planfile.Value
	v := verdicts{}
	all := fields{
		"method": func(m planfile.Member) { o.method = r.method(m, probe) },
		"path": func(m planfile.Member) {
			path = m.Value
			o.path = r.path(m, scopes.request)
		},
		"headers": func(m planfile.Member) {
			r.each(m.Value, "headers", headersMax, func(m planfile.Member) {
				o.headers = append(o.headers, header{r.nameOf(m), r.template(m, scopes.request)})
			})
		},
		"timeout": r.duration(&o.timeout, time.Millisecond),
		"done":    func(m planfile.Member) { r.statuses(m, done, v) },
		"answer":  func(m planfile.Member) { o.answer, o.saysAnswer = r.form(m), true },
	}
	if probe {
		all["absent"] = func(m planfile.Member) { r.statuses(m, absent, v) }
		all["in_progress"] = func(m planfile.Member) { r.statuses(m, inProgress, v) }
		all["outcome"] = func(m planfile.Member) { o.outcome = r.expression(m, scopes.answer, expr.TextType) }
	} else {
		all["body"] = func(m planfile.Member) { o.body = r.expression(m, scopes.request, expr.AnyType) }
		all["content_type"] = r.text(&o.contentType)
		all["idempotency"] = func(m planfile.Member) { o.idempotency = r.idempotency(m) }
		all["final"] = func(m planfile.Member) { r.statuses(m, final, v) }
		all["again"] = func(m planfile.Member) { r.statuses(m, again, v) }
	}
	if !o.undo {
		all["result"] = func(m planfile.Member) { o.result = r.expression(m, scopes.answer, expr.AnyType) }
	}
	if !r.fields(m.Value, m.Name, all) {
		return nil
	}
	if path == nil {
		r.t.Wrong(m.Value, "%s has no path", o.where)
		return nil
	}
	o.verdicts = v.over(defaults(m.Name))
	return o
}

// defaults are what statuses mean that a file says nothing of.
func defaults(of string) (all [statusMax]verdict) {
	for status := range all {
		switch {
		case status >= 200 && status < 300:
			all[status] = done
		case of == "do" && core.FinalCode(status):
			all[status] = final
		}
	}
	switch of {
	case "undo":
		all[http.StatusGone] = done // who answers it knows the key
	case "probe":
		all[http.StatusNotFound], all[http.StatusGone] = absent, absent
	}
	return all
}

// verdicts are what a file says of statuses: of one, or of a hundred by its first digit.
type verdicts map[int]verdict

// over are the verdicts with those of defaults where nothing is said.
func (v verdicts) over(all [statusMax]verdict) [statusMax]verdict {
	for status := range all {
		if means, said := v[status/100]; said {
			all[status] = means
		}
		if means, said := v[status]; said {
			all[status] = means
		}
	}
	return all
}

// statuses reads a list of statuses, such as 201 or 2xx.
func (r *reader) statuses(m planfile.Member, means verdict, into verdicts) {
	for _, item := range r.list(m) {
		text, _ := item.Scalar()
		class, of := strings.CutSuffix(text, "xx")
		status, err := strconv.Atoi(class)
		if err != nil || of && (status < 1 || status > 5) || !of && (status < 100 || status >= statusMax) {
			r.t.Wrong(item, "%s: want a status such as 201 or 2xx, got %s", m.Name, core.QuoteShort(text))
			continue
		}
		if other, twice := into[status]; twice && other != means {
			r.t.Wrong(item, "%s: %s is said twice, with two meanings", m.Name, text)
		}
		into[status] = means
	}
}

func (r *reader) method(m planfile.Member, probe bool) string {
	text, _ := m.Value.Text()
	want := methods
	if probe {
		want = methods[:2] // it only looks
	}
	if !slices.Contains(want, text) {
		r.t.Wrong(m.Value, "method: want one of %s, got %s", strings.Join(want, ", "), core.QuoteShort(text))
	}
	return text
}

// idempotency reads the header of the key; false is none.
func (r *reader) idempotency(m planfile.Member) string {
	if text, _ := m.Value.Scalar(); text == "false" {
		return ""
	}
	return r.headerName(m)
}

func (r *reader) form(m planfile.Member) form {
	text, _ := m.Value.Text()
	is, ok := map[string]form{"json": formJSON, "text": formText, "none": formNone}[text]
	if !ok {
		r.t.Wrong(m.Value, "answer: want json, text or none, got %s", core.QuoteShort(text))
	}
	return is
}

// expression compiles one; a number or a true is meant as its text.
func (r *reader) expression(m planfile.Member, in *expr.Scope, want expr.Type) *expr.Expression {
	source, ok := m.Value.Scalar()
	if !ok || source == "" {
		r.t.Wrong(m.Value, "%s: want an expression, as text in quotes or behind |, got %s", m.Name, m.Value.Kind())
		return nil
	}
	x, faults := in.Compile(source, want)
	for _, f := range faults {
		r.t.WrongIn(m.Value, f.Line, f.Column, "%s: %s", m.Name, f.Text)
	}
	return x
}

// template reads a text with expressions in braces.
func (r *reader) template(m planfile.Member, in *expr.Scope) *template {
	source, ok := m.Value.Scalar()
	if !ok || source == "" || len(source) > urlBytesMax || strings.ContainsAny(source, "\r\n") {
		r.t.Wrong(m.Value, "%s: want text in one line of at most %d bytes", m.Name, urlBytesMax)
		return nil
	}
	t, column, err := parseTemplate(source)
	if err != nil {
		r.t.WrongIn(m.Value, 1, column, "%s: %v", m.Name, err)
		return nil
	}
	for i := range t.parts {
		p := &t.parts[i]
		if p.column == 0 {
			continue
		}
		x, faults := in.Compile(p.source, expr.AnyType)
		for _, f := range faults {
			r.t.WrongIn(m.Value, 1, p.column+f.Column-1, "%s: %s", m.Name, f.Text)
		}
		p.x = x
	}
	return t
}

// path reads the path and the query of a request.
func (r *reader) path(m planfile.Member, in *expr.Scope) *template {
	t := r.template(m, in)
	if t == nil {
		return nil
	}
	var like strings.Builder // as any command would have it
	for i := range t.parts {
		p := &t.parts[i]
		p.text = escapeText(p.text)
		if p.column > 0 {
			like.WriteByte('x')
		}
		like.WriteString(p.text)
	}
	text := like.String()
	if _, err := url.ParseRequestURI(text); err != nil || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") || strings.ContainsAny(text, "# \t") || checkPath(text) != nil {
		r.t.Wrong(m.Value, "path: want a path that begins with /, and perhaps a query, as /charges/{key}?notify={input.notify}")
	}
	return t
}

// inPath are the characters that a path or a query may have as they are; what begins with # is refused later.
const inPath = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=:@/%#?"

// escapeText escapes what a path cannot have as it is: net/http would encode the whole path again otherwise, and lose what is
// escaped in values.
func escapeText(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case strings.IndexByte(inPath, c) >= 0 || c <= ' ':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
