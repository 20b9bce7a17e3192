package wire

import (
	"fmt"
	"strings"
	"unicode"

	"duly.dev/duly/internal/core"
)

// Short cuts a subject or a name that came from outside, for a log line or an error.
func Short(s string) string {
	const most = 128
	return core.ShortText(s, most)
}

// Quote quotes the beginning of a payload, for an error.
func Quote(b []byte) string {
	const most = 100
	if len(b) > most {
		return fmt.Sprintf("%q…", core.CutText(string(b[:most+1]), most))
	}
	return fmt.Sprintf("%q", b)
}

// CutText makes an error text one line of valid UTF-8 without control characters, and cuts it to core.ErrorBytesMax, at a
// character.
func CutText(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, cutLines(s))
}

// cutLines is CutText for a text that may have several lines.
func cutLines(s string) string {
	return core.CutText(strings.ToValidUTF8(s, "\uFFFD"), core.ErrorBytesMax)
}
