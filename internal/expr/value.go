package expr

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"duly.dev/duly/internal/core"
)

// fromJSON reads a payload as an expression sees it. See the package comment for numbers.
func fromJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more than one JSON value")
	}
	return numbers(v)
}

// numbers replaces the numbers in a value.
func numbers(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		return number(string(v))
	case map[string]any:
		for name, x := range v {
			if v[name], err = numbers(x); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, x := range v {
			if v[i], err = numbers(x); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func number(text string) (any, error) {
	if !strings.ContainsAny(text, ".eE") {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("number %.40s is out of range", text)
	}
	if f == math.Trunc(f) && f >= -1<<63 && f < 1<<63 {
		return int64(f), nil
	}
	return f, nil
}

// jsonWriter writes what an expression gave as compact JSON, maps in the order of their keys.
type jsonWriter struct {
	b    []byte
	most int
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
	case types.Duration:
		return w.text(strconv.FormatFloat(v.Seconds(), 'f', -1, 64) + "s")
	case traits.Mapper:
		return w.object(v)
	case traits.Lister:
		return w.list(v)
	case *types.Err:
		return v
	default:
		return fmt.Errorf("JSON has no %s", v.Type().TypeName())
	}
	return w.check()
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
