package console

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"duly.dev/duly/internal/quickjson"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/seal"
)

// Sizes of what is shown of a document at once.
const (
	foldBytes = 2 << 10  // above: folded
	foldLines = 40       // above: folded
	inlineMax = 64 << 10 // above: not in the page at all, but at an address of its own
)

// masked stands for a secret.
const masked = "••••••"

var (
	// secretKey are names of members whose values are not shown.
	secretKey = regexp.MustCompile(`(?i)(pass(word|wd|phrase)|secret|token|api[-_]?key|authorization|credential|private[-_]?key|cookie|cvv|^pin$)`)
	// secretText are values that are secrets whatever they are called.
	secretText = regexp.MustCompile(`(?i)(bearer\s+[a-z0-9._~+/=-]{8,}|\beyJ[a-z0-9_-]{8,}\.[a-z0-9_-]{8,}\.[a-z0-9_-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----|\b(sk|pk|ghp|xox[abp]|AKIA)[-_][a-z0-9-]{12,})`)
)

// document is JSON as it came, laid out for reading: numbers, the order of members and the writing of strings are kept.
type document struct {
	ID     string // of the element
	Title  string
	Text   string
	Bytes  int
	Lines  int
	Fold   bool
	Remote string // where it is, when it is too long for this page
	Masked int    // values that are not shown
	Note   string // what it is, when it is no JSON
	Key    string // id of the key that it is encrypted with; empty: it is not
}

// documentOf lays out what a task carries. remote is where it is served alone.
func documentOf(id, title string, raw []byte, remote string) *document {
	if len(raw) == 0 {
		return nil
	}
	d := &document{ID: id, Title: title, Bytes: len(raw), Fold: len(raw) > foldBytes}
	if e, encrypted := seal.Of(raw); encrypted {
		d.Key, d.Fold = e.Key, true
	}
	if len(raw) > inlineMax && remote != "" {
		d.Remote = remote
		return d
	}
	if d.Key != "" {
		d.Text = indented(raw)
	} else {
		d.Text, d.Masked, d.Note = layOut(raw)
	}
	d.Lines = strings.Count(d.Text, "\n") + 1
	d.Fold = d.Fold || d.Lines > foldLines
	return d
}

// layOut indents JSON and hides its secrets. Bytes that are no JSON are shown as text, or in hexadecimal.
func layOut(raw []byte) (text string, hidden int, note string) {
	text, err := quickjson.Indent(raw)
	if err != nil {
		if utf8.Valid(raw) {
			return secretText.ReplaceAllString(string(raw), masked), 0, say.Of("payload.text")
		}
		return hex.Dump(raw), 0, say.Of("payload.hex")
	}
	text, hidden = mask(text)
	return text, hidden, ""
}

// mask hides the values of members with a secret's name, whole objects and lists too, and texts that look like secrets.
// It works on the lines of a layout, of which each has at most one value, so that all else stays as it came.
func mask(laidOut string) (string, int) {
	lines := strings.Split(laidOut, "\n")
	out := make([]string, 0, len(lines))
	hidden := 0
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		key, value := pairOf(line)
		var name string
		if key != "" && json.Unmarshal([]byte(key), &name) != nil {
			name = key
		}
		if key != "" && secretKey.MatchString(name) {
			for open := opens(value); open > 0 && i+1 < len(lines); open += opens(value) {
				i++
				_, value = pairOf(lines[i])
			}
			comma := ""
			if strings.HasSuffix(value, ",") {
				comma = ","
			}
			out, hidden = append(out, line[:strings.Index(line, key)]+key+`: "`+masked+`"`+comma), hidden+1
			continue
		}
		if strings.HasPrefix(value, `"`) && secretText.MatchString(value) {
			hidden++
			line = line[:len(line)-len(value)] + secretText.ReplaceAllString(value, masked)
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n"), hidden
}

// pairOf are the key, in its quotes, and the value of a line of a layout; without a key both are of a list, or the end.
func pairOf(line string) (key, value string) {
	body := strings.TrimLeft(line, " ")
	if end := stringEnd(body); end > 0 && strings.HasPrefix(body[end:], ": ") {
		return body[:end], body[end+2:]
	}
	return "", body
}

// opens is how many lists and objects more are open after the value of a line.
func opens(value string) int {
	switch strings.TrimSuffix(value, ",") {
	case "{", "[":
		return 1
	case "}", "]":
		return -1
	}
	return 0
}

// stringEnd is the length of the JSON string that s begins with; 0: it begins with none.
func stringEnd(s string) int {
	if !strings.HasPrefix(s, `"`) {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

// checkJSON says where a document that someone typed is no JSON.
func checkJSON(field, text string, bytesMax int) error {
	if len(text) > bytesMax {
		return fmt.Errorf("%s has %d bytes, the limit is %d", field, len(text), bytesMax)
	}
	var document json.RawMessage
	err := json.Unmarshal([]byte(text), &document)
	if err == nil {
		return nil
	}
	at := len(text)
	if syntax, ok := err.(*json.SyntaxError); ok {
		at = min(int(syntax.Offset), len(text))
	}
	before := text[:at]
	line := strings.Count(before, "\n") + 1
	column := at - strings.LastIndexByte(before, '\n') - 1
	return fmt.Errorf("%s is no JSON at line %d, column %d: %w", field, line, max(1, column), err)
}
