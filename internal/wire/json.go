package wire

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
)

const timeLayout = core.TimeLayout

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
	b = appendInstant(b, at)
	return append(b, '"')
}

// appendInstant writes what timeLayout does, at a quarter of the cost: every event has
// two times.
func appendInstant(b []byte, at core.Instant) []byte {
	t := at.Time()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(b, timeLayout)
	}
	hour, minute, second := t.Clock()
	b = appendDigits(b, year, 4)
	b = appendDigits(append(b, '-'), int(month), 2)
	b = appendDigits(append(b, '-'), day, 2)
	b = appendDigits(append(b, 'T'), hour, 2)
	b = appendDigits(append(b, ':'), minute, 2)
	b = appendDigits(append(b, ':'), second, 2)
	b = appendDigits(append(b, '.'), t.Nanosecond()/1000, 6)
	return append(b, 'Z')
}

// appendDigits appends n with leading zeros.
func appendDigits(b []byte, n, width int) []byte {
	var d [6]byte
	for i := width - 1; i >= 0; i-- {
		d[i] = byte('0' + n%10)
		n /= 10
	}
	return append(b, d[:width]...)
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
		return 0, fmt.Errorf("%q is no time, want one such as 2026-12-31T23:00:00Z", Short(s))
	}
	return core.InstantOf(t), nil
}

// wireTime reads what appendTime writes, with its quotes: the one form of time
// that our own wire has. ok is false for every other.
func wireTime(value []byte) (at core.Instant, ok bool) {
	const form = `"0000-00-00T00:00:00.000000Z"`
	if len(value) != len(form) {
		return 0, false
	}
	for i, c := range value {
		if want := form[i]; want != c && (want != '0' || c < '0' || c > '9') {
			return 0, false
		}
	}
	number := func(from, to int) int {
		n := 0
		for _, c := range value[from:to] {
			n = 10*n + int(c-'0')
		}
		return n
	}
	year, month, day := number(1, 5), number(6, 8), number(9, 11)
	hour, minute, second, micro := number(12, 14), number(15, 17), number(18, 20), number(21, 27)
	t := time.Date(year, time.Month(month), day, hour, minute, second, 0, time.UTC)
	// time.Date lets a 30 February pass for a day in March.
	if t.Day() != day || t.Month() != time.Month(month) || hour > 23 || minute > 59 || second > 59 {
		return 0, false
	}
	return core.InstantOf(t) + core.Instant(micro), true
}

// eachMember calls f with every member of a JSON object, in order: the name as
// it is written between its quotes and the value without space around it. Values
// are cut out by their quotes and brackets and not parsed: the user of a value does
// that anyway, and parsing twice costs more than all the rest of a command. It
// reports false when the bytes are not an object or f returns false.
func eachMember(object []byte, f func(name, value []byte) bool) bool {
	i := skipSpace(object, 0)
	if i == len(object) || object[i] != '{' {
		return false
	}
	i = skipSpace(object, i+1)
	if i < len(object) && object[i] == '}' {
		return skipSpace(object, i+1) == len(object)
	}
	for {
		nameEnd := endOfString(object, i)
		if nameEnd < 0 {
			return false
		}
		name := object[i+1 : nameEnd-1]
		i = skipSpace(object, nameEnd)
		if i == len(object) || object[i] != ':' {
			return false
		}
		i = skipSpace(object, i+1)
		end := endOfValue(object, i)
		if end < 0 || !f(name, object[i:end:end]) {
			return false
		}
		i = skipSpace(object, end)
		if i == len(object) || object[i] != ',' {
			break
		}
		i = skipSpace(object, i+1)
	}
	return i < len(object) && object[i] == '}' && skipSpace(object, i+1) == len(object)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// endOfString returns the index behind the string that begins at i, or -1.
func endOfString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; ; {
		quote := bytes.IndexByte(b[i:], '"')
		if quote < 0 {
			return -1
		}
		slash := bytes.IndexByte(b[i:i+quote], '\\')
		if slash < 0 {
			return i + quote + 1
		}
		if i += slash + 2; i > len(b) {
			return -1
		}
	}
}

// endOfValue returns the index behind the value that begins at i, or -1.
func endOfValue(b []byte, i int) int {
	if i == len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return endOfString(b, i)
	case '{', '[':
		return endOfNest(b, i)
	}
	end := i
	for end < len(b) && !endsScalar[b[end]] {
		end++
	}
	if end == i {
		return -1
	}
	return end
}

// endOfNest returns the index behind the object or list that begins at i, or -1.
func endOfNest(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = endOfString(b, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

var endsScalar = [256]bool{',': true, '}': true, ']': true, ' ': true, '\n': true, '\t': true, '\r': true, '"': true, ':': true, '{': true, '[': true}
