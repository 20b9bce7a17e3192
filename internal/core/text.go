package core

import "fmt"

// CutText cuts a text to at most bytesMax bytes, and never inside a rune. What is no
// UTF-8 is cut to the byte.
func CutText(s string, bytesMax int) string {
	if len(s) <= bytesMax {
		return s
	}
	end := max(0, bytesMax)
	for back := range min(3, end) + 1 { // a rune has at most 4 bytes
		if !continues(s[end-back]) {
			return s[:end-back]
		}
	}
	return s[:end]
}

// ShortText is CutText with an ellipsis where something was cut off: for errors and
// logs that repeat what a stranger sent.
func ShortText(s string, bytesMax int) string {
	if len(s) <= bytesMax {
		return s
	}
	return CutText(s, bytesMax) + "…"
}

// QuoteShort quotes a value for an error or an answer without repeating megabytes of
// it: at most quotedBytesMax bytes, and an ellipsis where there was more.
func QuoteShort(s string) string {
	if len(s) > quotedBytesMax {
		return fmt.Sprintf("%q…", CutText(s, quotedBytesMax))
	}
	return fmt.Sprintf("%q", s)
}

const quotedBytesMax = 64

// IsText reports whether a text is UTF-8 without NUL: what every store and every JSON holds.
func IsText(s string) bool {
	for i, r := range s {
		if r == 0 || noRune(s[i:], r) {
			return false
		}
	}
	return true
}

// WordsBytesMax bounds a person's words: the reason of an action, and a note.
const WordsBytesMax = 1000

// CheckWords is the one rule for a person's words, at every door; none are well. The field names them in the error.
func CheckWords(field, words string) error {
	if n := len(words); n > WordsBytesMax || !PlainLines(words) {
		return fmt.Errorf("%s %s has %d bytes, want at most %d of text without control characters", field, QuoteShort(words), n, WordsBytesMax)
	}
	return nil
}

// PlainLines reports whether a text is UTF-8 without control characters but ends of lines and tabs.
func PlainLines(s string) bool { return plain(s, true) }

// PlainText reports whether a text is UTF-8 without control characters.
func PlainText(s string) bool { return plain(s, false) }

func plain(s string, lines bool) bool {
	for i, r := range s {
		if noRune(s[i:], r) || control(r) && (!lines || r != '\n' && r != '\r' && r != '\t') {
			return false
		}
	}
	return true
}

// control reports whether a terminal may act by a character.
func control(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }

// noRune reports whether what a range has read as r at the beginning of s is a byte that is no UTF-8.
func noRune(s string, r rune) bool {
	const replacement = '\uFFFD'
	return r == replacement && CutText(s, 3) != string(replacement)
}

// continues reports whether a byte stands inside a rune of UTF-8.
func continues(b byte) bool { return b&0xC0 == 0x80 }

// ActorBytesMax bounds what a stranger says of who it is: a client, or an agent.
const ActorBytesMax = 64

// CleanActor is what a stranger says of who it is, without what a line of a log or of a
// journal cannot show, and cut.
func CleanActor(claimed string) string {
	plain := len(claimed) <= ActorBytesMax
	for i := 0; plain && i < len(claimed); i++ {
		plain = claimed[i] >= ' ' && claimed[i] < 0x7f
	}
	if plain {
		return claimed
	}
	clean := make([]byte, 0, ActorBytesMax)
	for _, r := range claimed {
		if control(r) || r == '\uFFFD' {
			continue
		}
		if len(clean)+len(string(r)) > ActorBytesMax {
			break
		}
		clean = append(clean, string(r)...)
	}
	return string(clean)
}

// NameOf makes a name of any text, of at most bytesMax bytes: what is outside the
// alphabet of names becomes "-".
func NameOf(text string, bytesMax int) string {
	b := []byte(text[:min(len(text), bytesMax)])
	for i, c := range b {
		if CheckName("", string(c)) != nil {
			b[i] = '-'
		}
	}
	return string(b)
}
