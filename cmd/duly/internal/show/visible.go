package show

import (
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"duly.dev/duly/internal/sheet"
)

// Visible writes so that nothing that came from elsewhere moves a cursor or turns the direction of writing: such characters
// are escaped as JSON escapes them. Page's colours, ends of lines and tabs are as they were, and so are bytes that are no text. It is safe for concurrent use.
type Visible struct {
	To io.Writer

	mu   sync.Mutex
	part []byte // of a character that a write has begun
	err  error  // of the first write that failed
}

// colour is what Page writes around a word. No other is let through: text that is concealed, or black on black, is not seen.
var colour = regexp.MustCompile(`^\x1b\[(?:0|` + strings.Join([]string{red, green, yellow, blue}, "|") + `)m`)

// Write implements io.Writer.
func (v *Visible) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	text := append(v.part, p...)
	v.part = nil
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch is := colour.Find(text); {
		case is != nil:
			size = len(is)
			out = append(out, is...)
		case r == utf8.RuneError && size == 1 && !utf8.FullRune(text):
			v.part = append(v.part, text...)
			size = len(text)
		case r == utf8.RuneError:
			out = append(out, text[:size]...)
		default:
			out = append(out, sheet.Shown(r)...)
		}
		text = text[size:]
	}
	if _, err := v.To.Write(out); err != nil {
		if v.err == nil {
			v.err = err
		}
		return 0, err
	}
	return len(p), nil
}

// Lost is why something that was written did not arrive; nil: all did. A table has many writes, and no one looks at each.
func (v *Visible) Lost() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// Close writes what is left of a character that was not ended.
func (v *Visible) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, err := v.To.Write(v.part)
	v.part = nil
	return err
}

// TerminalWidth is that of the terminal that it writes to; 0: it is none.
func (v *Visible) TerminalWidth() int { return On(v.To).Width }

// Under is what a writer writes to, for what has a terminal for itself.
func Under(w io.Writer) io.Writer {
	if v, ok := w.(*Visible); ok {
		return v.To
	}
	return w
}
