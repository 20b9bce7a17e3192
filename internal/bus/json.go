package bus

import (
	"strconv"
	"time"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
)

// timeLayout is RFC 3339 with microseconds, the resolution of core.Instant.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Bytes that are not UTF-8 become the
// replacement character, as encoding/json does it.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			if r, size := utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		b = append(b, s[from:i]...)
		b = appendEscaped(b, c)
		i++
		from = i
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

func appendEscaped(b []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(b, '\\', c)
	case c == '\n':
		return append(b, '\\', 'n')
	case c == '\t':
		return append(b, '\\', 't')
	case c < 0x20:
		return append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
	return append(b, `\ufffd`...)
}

// appendMember appends ,"name":"value".
func appendMember(b []byte, name, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return appendString(b, value)
}

// appendNumber appends ,"name":value.
func appendNumber(b []byte, name string, value int64) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return strconv.AppendInt(b, value, 10)
}

// appendTime appends ,"name":"value" in RFC 3339 with microseconds, UTC.
func appendTime(b []byte, name string, at core.Instant) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':', '"')
	b = at.Time().AppendFormat(b, timeLayout)
	return append(b, '"')
}

// appendRaw appends JSON as it is; nothing stands for null.
func appendRaw(b, raw []byte) []byte {
	if len(raw) == 0 {
		return append(b, "null"...)
	}
	return append(b, raw...)
}

// parseTime reads a time of the wire; empty is 0.
func parseTime(s string) (core.Instant, error) {
	if s == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, err
	}
	return core.InstantOf(t), nil
}

// eachMember calls f with every member of a JSON object, in order: the name as
// it is written between its quotes and the value without space around it. It
// works only on what json.Valid accepts, and reports false when the value is
// not an object or f does.
func eachMember(object []byte, f func(name, value []byte) bool) bool {
	i := skipSpace(object, 0)
	if i >= len(object) || object[i] != '{' {
		return false
	}
	i = skipSpace(object, i+1)
	for i < len(object) && object[i] == '"' {
		nameEnd := endOfString(object, i)
		name := object[i+1 : nameEnd-1]
		i = skipSpace(object, nameEnd)
		i = skipSpace(object, i+1) // the colon
		end := endOfValue(object, i)
		if !f(name, object[i:end:end]) {
			return false
		}
		i = skipSpace(object, end)
		if i < len(object) && object[i] == ',' {
			i = skipSpace(object, i+1)
		}
	}
	return true
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// endOfString returns the index behind the string that begins at i.
func endOfString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// endOfValue returns the index behind the value that begins at i.
func endOfValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = endOfString(b, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return len(b)
}
