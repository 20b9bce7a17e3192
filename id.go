package duly

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
)

// hashedMark stands before the hash in the id of a text that is too long: no escape
// begins so.
const hashedMark = "_x"

// hashedDigits is how many hexadecimal digits of the SHA-256 the id of a long text has.
const hashedDigits = 40

// ID makes a task's id of any text, such as "orders/2026:17@eu" or "日本", so that your
// own ids need not be of the alphabet that [Plan.Submit] takes. The same text gives the
// same id, always, and another text another one.
//
// A–Z, a–z, 0–9 and - stay as they are; every other byte of the UTF-8 becomes _ and two
// hexadecimal digits, also _ itself: "a.b" is "a_2eb" and "a_b" is "a_5fb". [IDText]
// gives the text back. What would then have more than 64 bytes is cut, and ends in _x
// and the first 40 digits of the text's SHA-256: keep such a text in the task's input
// if you want to see it again.
//
// The id of an empty text is empty, and refused where it is used.
func ID(text string) string {
	var b strings.Builder
	for i := 0; i < len(text) && b.Len() <= core.NameBytesMax; i++ {
		if c := text[i]; plainInID(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('_')
			b.WriteString(hex.EncodeToString([]byte{c}))
		}
	}
	if b.Len() <= core.NameBytesMax {
		return b.String()
	}
	sum := sha256.Sum256([]byte(text))
	return b.String()[:core.NameBytesMax-len(hashedMark)-hashedDigits] + hashedMark + hex.EncodeToString(sum[:])[:hashedDigits]
}

// IDText gives the text that [ID] made an id of. ok is false for an id that ID did not
// make, and for one that stands for a longer text.
func IDText(id string) (text string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(id); i++ {
		if id[i] != '_' {
			b.WriteByte(id[i])
			continue
		}
		if i+3 > len(id) {
			return "", false
		}
		c, err := strconv.ParseUint(id[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	if ID(b.String()) != id {
		return "", false
	}
	return b.String(), true
}

func plainInID(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

// ChildID is the id of the task that a [Child] of a parent is, in its first round: <parent>~<step>.
func ChildID(parent string, child Named) string {
	return core.ChildID(parent, child.Name(), 0, 0, false)
}

// ElementID is the id of the task that an [Each] of a parent has for the element of that index, from 0 on, in its first
// round: <parent>~<step>~<index>.
func ElementID(parent string, each Named, index int) string {
	return core.ChildID(parent, each.Name(), index, 0, true)
}
