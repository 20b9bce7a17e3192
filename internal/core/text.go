package core

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

// continues reports whether a byte stands inside a rune of UTF-8.
func continues(b byte) bool { return b&0xC0 == 0x80 }
