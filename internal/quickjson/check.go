package quickjson

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// TextError says that a payload is JSON that not every reader can hold: it has a
// NUL, or bytes that are not UTF-8, nests deeper than DepthMax, or has a member twice.
type TextError struct{ text string }

// Error names the field and the byte.
func (e *TextError) Error() string { return e.text }

// Check wants JSON that every reader can hold: encoding/json lets text through
// that is not UTF-8, SQL's text and JSON types hold no NUL, see DepthMax, and of a member that an object has twice some read
// the first and some the last. Errors name the field and the place; those about all this are a *TextError.
func Check(field string, data []byte) error {
	if err := CheckText(field, data); err != nil {
		return err
	}
	if err := checkDepth(field, data); err != nil {
		return err
	}
	return checkMembers(field, data)
}

// CheckText is Check of what only holds payloads, each of which is checked alone.
func CheckText(field string, data []byte) error {
	if len(data) == 0 {
		return fmt.Errorf("%s is empty, want JSON", field)
	}
	if !valid(data) {
		return notJSON(field, data)
	}
	if !utf8.Valid(data) {
		return &TextError{fmt.Sprintf("%s is not UTF-8: byte %d", field, invalidUTF8(data)+1)}
	}
	if at := escapedNUL(data); at >= 0 {
		return &TextError{fmt.Sprintf(`%s holds a NUL (\u0000) at byte %d`, field, at+1)}
	}
	return nil
}

func notJSON(field string, data []byte) error {
	if at := bytes.IndexByte(data, 0); at >= 0 {
		return &TextError{fmt.Sprintf("%s holds a NUL at byte %d", field, at+1)}
	}
	var raw stdjson.RawMessage
	err := stdjson.Unmarshal(data, &raw)
	offset := int64(len(data))
	if syntax, ok := errors.AsType[*stdjson.SyntaxError](err); ok {
		offset = syntax.Offset
	}
	return fmt.Errorf("%s is not JSON: byte %d of %d: %w", field, offset, len(data), err)
}

func invalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// escapedNUL finds the escape of NUL in valid JSON; a backslash that is itself
// escaped does not begin one.
func escapedNUL(b []byte) int {
	escape := []byte(`\u0000`)
	for from := 0; ; {
		i := bytes.Index(b[from:], escape)
		if i < 0 {
			return -1
		}
		at := from + i
		before := at
		for before > 0 && b[before-1] == '\\' {
			before--
		}
		if (at-before)%2 == 0 {
			return at
		}
		from = at + len(escape)
	}
}
