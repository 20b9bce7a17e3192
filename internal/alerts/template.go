package alerts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"time"

	"duly.dev/duly/internal/core"
)

// renderedMax bounds what a template makes.
const renderedMax = 64 << 10

// view is an alert as templates see it.
type view struct {
	ID        string
	Namespace string
	Name      string
	Key       string
	Node      string
	Phase     string
	Severity  string
	Text      string
	Error     string
	Since     time.Time // zero: an event
	At        time.Time
	Lasts     time.Duration
	Times     int
	More      map[string]string
}

func viewOf(a *core.Alert, namespace string) view {
	v := view{ID: a.ID, Namespace: namespace, Name: a.Name, Key: a.Key, Node: a.Node, Phase: string(a.Phase), Severity: string(a.Severity), Text: a.Text, Error: a.Error,
		At: a.At.Time(), Lasts: time.Duration(a.LastsMS) * time.Millisecond, Times: a.Times, More: map[string]string{}}
	if a.Since != 0 {
		v.Since = a.Since.Time()
	}
	for _, attr := range a.Attrs {
		v.More[attr.Name] = attr.Value
	}
	return v
}

// The templates of a mail where a channel has none.
const (
	defaultSubject = `[{{.Namespace}}] {{if eq .Phase "end"}}over: {{end}}{{.Text}}{{with .Key}} ({{.}}){{end}}`
	defaultText    = `{{.Text}}{{with .Key}} ({{.}}){{end}}
{{with .Error}}
{{.}}
{{end}}
alert     {{.Name}} ({{.Severity}}, {{.Phase}})
node      {{.Node}}
at        {{.At.Format "2006-01-02 15:04:05 UTC"}}
{{- if not .Since.IsZero}}
since     {{.Since.Format "2006-01-02 15:04:05 UTC"}}{{if .Lasts}}, {{.Lasts}}{{end}}
{{- end}}
{{- if gt .Times 1}}
times     {{.Times}}
{{- end}}
{{- range $name, $value := .More}}
{{printf "%-9s" $name}} {{$value}}
{{- end}}
id        {{.ID}}
`
)

// templates are those of one channel; nil: the default.
type templates struct{ body, subject, text *template.Template }

var functions = template.FuncMap{"json": func(v any) (string, error) {
	data, err := json.Marshal(v)
	return string(data), err
}}

// parseTemplates parses the channel's templates and tries each on an alert that has everything and on one that has
// little: a mistake is found when the channel is stored, not when an alert is due.
func (c *Channel) parseTemplates() (t templates, err error) {
	full := core.Alert{ID: "id", Name: "streams", Key: "TASKS", Node: "node-1", Phase: core.AlertEnds, Severity: core.SeverityCritical, Text: "text \"quoted\"",
		Error: "error", Since: 1, At: 2, LastsMS: 3, Times: 4, Attrs: []core.AlertAttr{{Name: "task", Value: "a\nb"}}}
	little := core.Alert{ID: "id", Name: "task-error", Node: "node-1", Phase: core.AlertOnce, At: 2}
	for _, one := range []struct {
		field, text, otherwise string
		to                     **template.Template
		json                   bool
	}{{"body", c.Body, "", &t.body, true}, {"subject", c.Subject, defaultSubject, &t.subject, false}, {"text", c.Text, defaultText, &t.text, false}} {
		text := one.text
		if text == "" {
			text = one.otherwise
		}
		if text == "" {
			continue
		}
		parsed, err := template.New(one.field).Funcs(functions).Option("missingkey=zero").Parse(text)
		if err != nil {
			return t, fmt.Errorf("%s: %w", one.field, err)
		}
		for _, example := range []core.Alert{full, little} {
			data, err := render(parsed, viewOf(&example, "duly"))
			if err == nil && one.json && !json.Valid(data) {
				err = errors.New("it does not make JSON: quote texts by {{json .Text}}")
			}
			if err != nil {
				return t, fmt.Errorf("%s: %w", one.field, err)
			}
		}
		*one.to = parsed
	}
	return t, nil
}

// render fills in a template, and refuses what is too large.
func render(t *template.Template, v view) ([]byte, error) {
	w := &boundedWriter{}
	if err := t.Execute(w, v); err != nil {
		return nil, err
	}
	return w.Bytes(), nil
}

type boundedWriter struct{ bytes.Buffer }

var errRendered = fmt.Errorf("the template makes more than %d bytes", renderedMax)

// Write implements io.Writer.
func (w *boundedWriter) Write(p []byte) (int, error) {
	if w.Len()+len(p) > renderedMax {
		return 0, errRendered
	}
	return w.Buffer.Write(p)
}

// WriteString implements io.StringWriter.
func (w *boundedWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// oneLine is a text for a mail's subject.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
