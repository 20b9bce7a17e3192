package planfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"duly.dev/duly/internal/core"
)

// kind is what a node of a file is.
type kind uint8

const (
	nothing kind = iota
	boolean
	number
	text
	list
	mapping
)

var kindNames = [...]string{"nothing", "true or false", "a number", "text", "a list", "a mapping"}

// node is a value in a file.
type node struct {
	at      pos
	kind    kind
	text    string // of a scalar, as it is meant
	style   byte   // how text is written: 0 plain, ' or ", | or >
	members []member
	items   []*node
	told    map[string]bool // members about which something is said already
	broken  bool            // members may be missing because of what is said
}

// tell notes that something is said about a member.
func (n *node) tell(name string) {
	if n.told == nil {
		n.told = map[string]bool{}
	}
	n.told[name] = true
}

// member is a name and its value.
type member struct {
	at    pos
	name  string
	value *node
}

// depthMax bounds how deep a file nests.
const depthMax = 100

// parse reads a file; nil: it is none, and what is wrong is noted.
func (f *file) parse(data []byte) *node {
	if len(data) > BytesMax {
		f.wrong(pos{1, 1}, "the file has %d bytes, the limit is %d", len(data), BytesMax)
		return nil
	}
	if !utf8.Valid(data) {
		f.wrong(pos{1, 1}, "the file is not UTF-8")
		return nil
	}
	f.lines = strings.Split(string(data), "\n")
	if begin := bytes.TrimLeft(data, " \t\r\n"); len(begin) > 0 && begin[0] == '{' {
		j := jsonReader{f: f, d: json.NewDecoder(bytes.NewReader(data)), data: data}
		j.d.UseNumber()
		return j.file()
	}
	parsed, err := parser.ParseBytes(data, 0)
	if err != nil {
		at := pos{1, 1}
		if s, ok := errors.AsType[*yaml.SyntaxError](err); ok {
			if s.Token != nil && s.Token.Position != nil {
				at = pos{s.Token.Position.Line, s.Token.Position.Column}
			}
			f.wrong(at, "%s", f.syntax(s.Message, at))
		} else {
			f.wrong(at, "%v", err)
		}
		return nil
	}
	switch {
	case len(parsed.Docs) == 0 || parsed.Docs[0].Body == nil:
		f.wrong(pos{1, 1}, "the file is empty, want %s", cmp.Or(f.want, "a plan"))
		return nil
	case len(parsed.Docs) > 1:
		f.wrong(pos{1, 1}, "the file has %d documents, want one", len(parsed.Docs))
		return nil
	}
	return f.yaml(parsed.Docs[0].Body, 0)
}

// syntax says in other words what the library says of the commonest mistakes.
func (f *file) syntax(message string, at pos) string {
	switch {
	case strings.HasSuffix(message, "cannot start any token") && at.line <= len(f.lines) && strings.HasPrefix(strings.TrimLeft(f.lines[at.line-1], " "), "\t"):
		return "the line begins with a tab: YAML is indented by spaces"
	case message == "value is not allowed in this context":
		return "the line does not belong to what stands above it: members of one thing begin in the same column"
	}
	return message
}

// yaml is a node of YAML as one of ours; nil: what is wrong is noted.
func (f *file) yaml(n ast.Node, depth int) *node {
	at := pos{1, 1}
	if t := n.GetToken(); t != nil && t.Position != nil {
		at = pos{t.Position.Line, t.Position.Column}
	}
	if depth > depthMax {
		f.wrong(at, "it nests deeper than %d", depthMax)
		return nil
	}
	out := &node{at: at}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		out.kind, out.text = boolean, n.Token.Value
	case *ast.IntegerNode, *ast.FloatNode:
		if out.kind, out.text = number, n.GetToken().Value; leadsWithZero(out.text) {
			f.wrong(at, "%s begins with a zero, so that some read it to the base of 8: leave the zero out, or put text in quotes", core.ShortText(out.text, 40))
			return nil
		}
	case *ast.StringNode:
		out.kind, out.text = text, n.Value
		switch origin := strings.TrimSpace(n.Token.Origin); {
		case origin != "" && (origin[0] == '"' || origin[0] == '\''):
			out.style = origin[0]
		case isNumber(n.Value): // 1e5 and what 64 bits cannot hold, which the parser takes for text
			out.kind = number
		}
	case *ast.LiteralNode:
		out.kind, out.text, out.style = text, n.Value.Value, n.Start.Value[0]
	case *ast.SequenceNode:
		out.kind = list
		for _, x := range n.Values {
			if item := f.yaml(x, depth+1); item != nil {
				out.items = append(out.items, item)
			}
		}
	case *ast.MappingNode:
		out.kind = mapping
		for i, x := range n.Values {
			if i == 0 {
				if t := x.Key.GetToken(); t != nil && t.Position != nil {
					out.at = pos{t.Position.Line, t.Position.Column}
				}
			}
			f.yamlMember(out, x, depth)
		}
	case *ast.MappingValueNode:
		out.kind = mapping
		if t := n.Key.GetToken(); t != nil && t.Position != nil {
			out.at = pos{t.Position.Line, t.Position.Column}
		}
		f.yamlMember(out, n, depth)
	case *ast.TagNode:
		f.wrong(at, "%s is a tag: text that begins with ! has to be in quotes", n.Start.Value)
		return nil
	case *ast.AnchorNode, *ast.AliasNode:
		f.wrong(at, "anchors and aliases are not taken: text that begins with & or * has to be in quotes")
		return nil
	default:
		f.wrong(at, "%s is not taken here", n.Type())
		return nil
	}
	return out
}

// leadsWithZero reports whether a number has a zero before its first digit, as in 010.
func leadsWithZero(number string) bool {
	digits := strings.TrimLeft(number, "+-")
	return len(digits) > 1 && digits[0] == '0' && (digits[1] == '_' || digits[1] >= '0' && digits[1] <= '9')
}

func (f *file) yamlMember(out *node, n *ast.MappingValueNode, depth int) {
	at := out.at
	name := n.Key.String()
	if t := n.Key.GetToken(); t != nil && t.Position != nil {
		at, name = pos{t.Position.Line, t.Position.Column}, t.Value
	}
	switch n.Key.Type() {
	case ast.StringType, ast.IntegerType, ast.FloatType, ast.BoolType, ast.NullType:
	default: // << would be a name, and what it merges would be left out
		f.wrong(at, "%s is no name: merge keys, anchors and tags are not taken", core.ShortText(n.Key.String(), 64))
		out.broken = true
		return
	}
	if value := f.yaml(n.Value, depth+1); value != nil {
		if value.kind == nothing {
			value.at = at
		}
		f.add(out, member{at, name, value})
	} else {
		out.tell(name)
		out.broken = true
	}
}

// add adds a member, whose name stands once.
func (f *file) add(out *node, m member) {
	for _, have := range out.members {
		if have.name == m.name {
			f.wrong(m.at, "%q stands twice, first in line %d", m.name, have.at.line)
			return
		}
	}
	out.members = append(out.members, m)
}

// jsonReader reads JSON with the place of each value.
type jsonReader struct {
	f    *file
	d    *json.Decoder
	data []byte
}

func (j *jsonReader) file() *node {
	n := j.value(0)
	if n == nil {
		return nil
	}
	if at := j.next(); j.d.More() {
		j.f.wrong(at, "more than one JSON value")
		return nil
	}
	return n
}

// next is where the next token begins.
func (j *jsonReader) next() pos {
	i := int(j.d.InputOffset())
	for i < len(j.data) && strings.IndexByte(" \t\r\n,:", j.data[i]) >= 0 {
		i++
	}
	return j.place(i)
}

func (j *jsonReader) place(i int) pos {
	before := j.data[:min(i, len(j.data))]
	begin := bytes.LastIndexByte(before, '\n') + 1
	return pos{bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[begin:]) + 1}
}

func (j *jsonReader) token() (json.Token, pos, bool) {
	at := j.next()
	t, err := j.d.Token()
	if err == nil {
		return t, at, true
	}
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = j.place(int(s.Offset) - 1)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the file ends too early")
	}
	j.f.wrong(at, "%v", err)
	return nil, at, false
}

func (j *jsonReader) value(depth int) *node {
	t, at, ok := j.token()
	if !ok {
		return nil
	}
	if depth > depthMax {
		j.f.wrong(at, "it nests deeper than %d", depthMax)
		return nil
	}
	out := &node{at: at}
	switch t := t.(type) {
	case bool:
		out.kind, out.text = boolean, strconv.FormatBool(t)
	case json.Number:
		out.kind, out.text = number, string(t)
	case string:
		out.kind, out.text, out.style = text, t, '"'
	case json.Delim:
		return j.inside(out, t, depth)
	}
	return out
}

// inside reads a list or a mapping up to its end.
func (j *jsonReader) inside(out *node, begin json.Delim, depth int) *node {
	out.kind = list
	if begin == '{' {
		out.kind = mapping
	}
	for j.d.More() {
		m := member{}
		if out.kind == mapping {
			name, at, ok := j.token()
			if !ok {
				return nil
			}
			m.at, m.name = at, name.(string) // the decoder takes nothing else there
		}
		value := j.value(depth + 1)
		switch {
		case value == nil:
			return nil
		case out.kind == list:
			out.items = append(out.items, value)
		default:
			m.value = value
			j.f.add(out, m)
		}
	}
	_, _, ok := j.token()
	if !ok {
		return nil
	}
	return out
}

// in is the place of a line and column of a text in its file.
func (f *file) in(n *node, line, column int) pos {
	switch n.style {
	case 0, '\'', '"':
		if line == 1 {
			return pos{n.at.line, f.across(n, column)}
		}
	case '|':
		row := n.at.line + line
		if row <= len(f.lines) {
			return pos{row, f.indent(n) + column}
		}
	}
	return n.at
}

// indent is how far the lines of a block of text are indented.
func (f *file) indent(n *node) int {
	for _, l := range f.lines[min(n.at.line, len(f.lines)):] {
		if trimmed := strings.TrimLeft(l, " "); strings.TrimSpace(trimmed) != "" {
			return len(l) - len(trimmed)
		}
	}
	return 0
}

// across is the column in the file of a column of a text in one line, past quotes and what is escaped.
func (f *file) across(n *node, column int) int {
	if n.style == 0 || n.at.line > len(f.lines) {
		return n.at.column + column - 1
	}
	raw := []rune(f.lines[n.at.line-1])
	i := n.at.column // behind the quote
	for range column - 1 {
		switch {
		case i+1 < len(raw) && n.style == '"' && raw[i] == '\\':
			switch raw[i+1] {
			case 'x':
				i += 4
			case 'u':
				i += 6
			case 'U':
				i += 10
			default:
				i += 2
			}
		case i+1 < len(raw) && n.style == '\'' && raw[i] == '\'' && raw[i+1] == '\'':
			i += 2
		default:
			i++
		}
	}
	return i + 1
}
