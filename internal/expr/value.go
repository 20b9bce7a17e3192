package expr

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/decimal"
	"duly.dev/duly/internal/quickjson"
)

// fromJSON reads a payload as an expression sees it; what names it in errors. See the package comment for numbers.
func fromJSON(what string, data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%s: more than one JSON value", what)
	}
	n, err := numbers(v, nil)
	if errors.Is(err, errPlace) { // seldom, so that places are not noted before
		n, err = numbers(v, &spotIn{name: what})
	}
	return n, err
}

// errPlace is of a number of which the place is needed.
var errPlace = errors.New("place")

// spotIn is a place in a payload; nil: it is not noted.
type spotIn struct {
	up    *spotIn
	name  string // of the member, or of the payload
	index int    // of the element, where there is no name
}

func (s *spotIn) at(name string, index int) *spotIn {
	if s == nil {
		return nil
	}
	return &spotIn{s, name, index}
}

// String is as in "rows[3].total of the input".
func (s *spotIn) String() string {
	path := ""
	for ; s.up != nil; s = s.up {
		if path != "" && path[0] != '[' {
			path = "." + path
		}
		if s.name == "" {
			path = fmt.Sprintf("[%d]", s.index) + path
		} else {
			path = s.name + path
		}
	}
	if path == "" {
		return s.name
	}
	return path + " of " + s.name
}

// numbers replaces the numbers in a value.
func numbers(v any, at *spotIn) (any, error) {
	switch v := v.(type) {
	case json.Number:
		return number(string(v), at)
	case map[string]any:
		for name, x := range v {
			n, err := numbers(x, at.at(name, 0))
			if err != nil {
				return nil, err
			}
			v[name] = n
		}
	case []any:
		for i, x := range v {
			n, err := numbers(x, at.at("", i))
			if err != nil {
				return nil, err
			}
			v[i] = n
		}
	}
	return v, nil
}

// number is an int64, a float64 or an exact, whichever has the same value.
func number(text string, at *spotIn) (any, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	canon, wrong := decimal.Canon(text)
	if n, err := strconv.ParseInt(canon, 10, 64); err == nil {
		return n, nil
	}
	if f, err := strconv.ParseFloat(canon, 64); err == nil && decimal.Same(canon, plainDouble(f)) {
		return f, nil
	}
	switch {
	case at == nil:
		return nil, errPlace
	case wrong != nil:
		return nil, fmt.Errorf("%s: number %w", at, wrong)
	}
	return exact{canon, core.ShortText(at.String(), 200)}, nil
}

// plainDouble is the shortest text that means the double.
func plainDouble(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// jsonWriter writes what an expression gave as compact JSON, maps in the order of their keys.
type jsonWriter struct {
	b     []byte
	most  int
	depth int
}

var errLong = errors.New("too long")

// toJSON is the JSON of a value; errLong when it has more than most bytes.
func toJSON(v ref.Val, most int) ([]byte, error) {
	w := jsonWriter{most: most}
	if err := w.value(v); err != nil {
		return nil, err
	}
	return w.b, nil
}

func (w *jsonWriter) value(v ref.Val) error {
	switch v := v.(type) {
	case types.Null:
		w.b = append(w.b, "null"...)
	case types.Bool:
		w.b = strconv.AppendBool(w.b, bool(v))
	case types.Int:
		w.b = strconv.AppendInt(w.b, int64(v), 10)
	case types.Uint:
		w.b = strconv.AppendUint(w.b, uint64(v), 10)
	case types.Double:
		text, err := json.Marshal(float64(v))
		if err != nil {
			return fmt.Errorf("JSON has no number %v", float64(v))
		}
		w.b = append(w.b, text...)
	case types.String:
		return w.text(string(v))
	case types.Bytes:
		return w.text(base64.StdEncoding.EncodeToString(v))
	case types.Timestamp:
		return w.text(v.UTC().Format(time.RFC3339Nano))
	case exact:
		w.b = append(w.b, v.text...)
	case types.Duration:
		return w.text(seconds(v.Duration) + "s")
	case traits.Mapper, traits.Lister:
		return w.nested(v)
	case *types.Err:
		return v
	default:
		return fmt.Errorf("JSON has no %s", v.Type().TypeName())
	}
	return w.check()
}

// nested writes a map or a list; what is made of a payload is one.
func (w *jsonWriter) nested(v ref.Val) error {
	if w.depth == quickjson.DepthMax {
		return fmt.Errorf("it nests deeper than %d", quickjson.DepthMax)
	}
	w.depth++
	defer func() { w.depth-- }()
	if m, is := v.(traits.Mapper); is {
		return w.object(m)
	}
	return w.list(v.(traits.Lister))
}

// seconds are those of a duration, with all the digits that it has: a float has not.
func seconds(d time.Duration) string {
	text, _ := decimal.Canon(strconv.FormatInt(int64(d), 10) + "e-9")
	return text
}

func (w *jsonWriter) check() error {
	if len(w.b) > w.most {
		return errLong
	}
	return nil
}

func (w *jsonWriter) text(s string) error {
	switch {
	case len(w.b)+len(s) > w.most:
		return errLong
	case !core.IsText(s):
		return errors.New("a text holds a NUL, or bytes that are not UTF-8: no store holds it")
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return err
	}
	w.b = append(w.b, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
	return w.check()
}

func (w *jsonWriter) list(v traits.Lister) error {
	w.b = append(w.b, '[')
	first := true
	for it := v.Iterator(); it.HasNext() == types.True; first = false {
		if !first {
			w.b = append(w.b, ',')
		}
		if err := w.value(it.Next()); err != nil {
			return err
		}
	}
	w.b = append(w.b, ']')
	return w.check()
}

func (w *jsonWriter) object(v traits.Mapper) error {
	var names []string
	for it := v.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return fmt.Errorf("a map has the key %v, %s: JSON has keys of text alone", key.Value(), describe(key))
		}
		names = append(names, string(name))
	}
	slices.Sort(names)
	w.b = append(w.b, '{')
	for i, name := range names {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		if err := w.text(name); err != nil {
			return err
		}
		w.b = append(w.b, ':')
		if err := w.value(v.Get(types.String(name))); err != nil {
			return err
		}
	}
	w.b = append(w.b, '}')
	return w.check()
}

// describe names the type of what an expression gave.
func describe(v ref.Val) string {
	switch v.(type) {
	case types.Null:
		return "null"
	case types.Int:
		return "an int"
	case traits.Mapper:
		return "a map"
	case traits.Lister:
		return "a list"
	case types.Timestamp:
		return "a timestamp"
	case types.Duration:
		return "a duration"
	}
	return "a " + v.Type().TypeName()
}
