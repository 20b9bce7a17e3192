package wire

import (
	"errors"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

// TestWishGolden pins where operators want a partition to be, as nodes of several versions read it in one bucket.
func TestWishGolden(t *testing.T) {
	for want, w := range map[string]core.Wish{
		`{"v":1,"node":"n1"}`: {Partition: 7, Node: "n1"},
		`{"v":1,"node":"n1","avoid":"n2","until":"2026-01-02T03:04:05.000678Z"}`: {Partition: 1023, Node: "n1", Avoid: "n2", Until: at},
	} {
		data := AppendWish(nil, &w)
		if string(data) != want {
			t.Errorf("got %s, want %s", data, want)
		}
		if back, err := DecodeWish(WishKey(w.Partition), data); err != nil || back != w {
			t.Errorf("back: %+v, %v", back, err)
		}
	}
	if key := WishKey(7); key != "wish.7" || !IsWishKey(key) || IsWishKey(EvidenceKey(7, true)) {
		t.Errorf("key %s", key)
	}
	for key, value := range map[string]string{
		"7": `{"v":1}`, "wish.": `{"v":1}`, "wish.07": `{"v":1}`, "wish.-1": `{"v":1}`, "wish.x": `{"v":1}`, "wish." + strings.Repeat("9", 30): `{"v":1}`,
		"wish.7": `{"v":2,"node":"n1"}`, "wish.8": `{}`, "wish.9": `[`, "wish.10": `{"v":1,"until":"yesterday"}`,
	} {
		if w, err := DecodeWish(key, []byte(value)); !errors.Is(err, ErrUndecodable) {
			t.Errorf("%s %s: %+v, %v", key, value, w, err)
		}
	}
	if got := (Names{}).SubjectPausesChanged(); got != "duly.pauses.changed" {
		t.Errorf("subject %s", got)
	}
}
