package httpagent

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"duly.dev/duly/internal/expr"
)

// What a rendered template may have.
const (
	urlBytesMax    = 8 << 10
	headerValueMax = 8 << 10
)

// template is a text with expressions in braces. {{ and }} are braces.
type template struct{ parts []part }

// part is a text, or an expression.
type part struct {
	text   string
	x      *expr.Expression
	source string // of the expression
	column int    // where it begins in the template, from 1 in characters
}

// parseTemplate takes a template apart; what is wrong is at that column of it.
func parseTemplate(source string) (t *template, column int, err error) {
	t = &template{}
	text := strings.Builder{}
	flush := func() {
		if text.Len() > 0 {
			t.parts = append(t.parts, part{text: text.String()})
			text.Reset()
		}
	}
	for i := 0; i < len(source); {
		at := utf8.RuneCountInString(source[:i]) + 1
		switch c := source[i]; {
		case (c == '{' || c == '}') && i+1 < len(source) && source[i+1] == c:
			text.WriteByte(c)
			i += 2
		case c == '}':
			return nil, at, errors.New("} closes nothing; }} is a brace")
		case c == '{':
			n := closing(source[i+1:])
			if n < 0 {
				return nil, at, errors.New("{ begins an expression that has no end; {{ is a brace")
			}
			flush()
			t.parts = append(t.parts, part{source: source[i+1 : i+1+n], column: at + 1})
			i += n + 2
		default:
			text.WriteByte(c)
			i++
		}
	}
	flush()
	return t, 0, nil
}

// closing is where the brace stands that ends an expression; -1: nowhere. Braces in texts and maps of CEL do not end it.
func closing(source string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(source); i++ {
		switch c := source[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '{':
			depth++
		case c == '}' && depth == 0:
			return i
		case c == '}':
			depth--
		}
	}
	return -1
}

// render makes the text; escape is told of each value whether it stands behind a question mark. Error: a value that is no
// text, or more than most bytes.
func (t *template) render(values expr.Values, most int, escape func(value string, query bool) (string, error)) (string, error) {
	var b strings.Builder
	query := false
	for i := range t.parts {
		p := &t.parts[i]
		if p.x == nil {
			b.WriteString(p.text)
			query = query || strings.Contains(p.text, "?")
			continue
		}
		v, err := p.x.Eval(values)
		if err != nil {
			return "", err
		}
		text, ok := v.Plain()
		if !ok {
			return "", fmt.Errorf("{%s} gives %s, want text or a number", p.source, v.Describe())
		}
		if text, err = escape(text, query); err != nil {
			return "", fmt.Errorf("{%s}: %w", p.source, err)
		}
		if b.WriteString(text); b.Len() > most {
			return "", fmt.Errorf("it has more than %d bytes", most)
		}
	}
	return b.String(), nil
}

// inURL escapes a value for a path or a query. Error: one that would change which path it is.
func inURL(value string, query bool) (string, error) {
	if query {
		return url.QueryEscape(value), nil
	}
	if value == "" {
		return "", errors.New("it is empty, which makes another path")
	}
	for _, segment := range strings.FieldsFunc(value, func(r rune) bool { return r == '/' || r == '\\' }) {
		if segment == "." || segment == ".." {
			return "", fmt.Errorf("it has the part %q, which makes another path", segment)
		}
	}
	return url.PathEscape(value), nil
}

// checkPath refuses a path that parts of templates make together.
func checkPath(path string) error {
	path, _, _ = strings.Cut(path, "?")
	for _, segment := range strings.Split(path, "/") {
		if segment == "." || segment == ".." {
			return fmt.Errorf("the path has the part %q, which makes another path", segment)
		}
	}
	return nil
}

// inHeader takes a value that a header can carry.
func inHeader(value string, _ bool) (string, error) {
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", errors.New("it has a character that no header can carry")
	}
	return value, nil
}
