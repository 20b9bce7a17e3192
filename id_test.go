package duly

import (
	"strings"
	"testing"
	"testing/quick"

	"duly.dev/duly/internal/core"
)

// covers: C13
func TestID(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "order-17": "order-17", "a.b": "a_2eb", "a_b": "a_5fb", "a_2eb": "a_5f2eb", "日": "_e6_97_a5", "a b\x00\xff": "a_20b_00_ff",
		"orders/2026:17@eu":     "orders_2f2026_3a17_40eu",
		strings.Repeat("x", 64): strings.Repeat("x", 64),
		strings.Repeat("x", 65): strings.Repeat("x", 22) + "_x9537c5fdf120482f7d58d25e9ed583f52c02b4e3",
	} {
		id := ID(text)
		if id != want {
			t.Errorf("the id of %q is %s, want %s", text, id, want)
		}
		if err := core.CheckName("id", id); err != nil && text != "" {
			t.Errorf("the id of %q is refused: %v", text, err)
		}
		back, ok := IDText(id)
		if short := len(text) <= 64; ok != short || ok && back != text {
			t.Errorf("the text of %s is %q, %v, want %q", id, back, ok, text)
		}
	}
	for _, id := range []string{"a_b", "a_", "a_2", "a_2E", "a_61", "_zz", "a.b", "a_+1"} {
		if text, ok := IDText(id); ok {
			t.Errorf("%s is read as the id of %q", id, text)
		}
	}
}

// No two texts have one id, whatever their length.
func TestIDsDiffer(t *testing.T) {
	texts := map[string]string{}
	add := func(text string) bool {
		id := ID(text)
		other, taken := texts[id]
		texts[id] = text
		return (!taken || other == text) && (text == "" || core.CheckName("id", id) == nil)
	}
	long := strings.Repeat("a/", 100)
	for n := range len(long) {
		if !add(long[:n]) || !add(long[:n]+"_") || !add(ID(long[:n])) {
			t.Errorf("the id of %q is another text's", long[:n])
		}
	}
	if err := quick.Check(add, nil); err != nil {
		t.Error(err)
	}
}
