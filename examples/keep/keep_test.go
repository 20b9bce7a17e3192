package keep_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/examples/keep"
)

// TestFile: what was added is there after a restart, and what was cut off is not.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "books")
	at := time.UnixMicro(1_900_000_000_000_000)
	for round, want := range [][]keep.Effect{nil, {{Key: "o-1/pay/0", At: at, Times: 2}, {Key: "o-2/pay/0", At: at}}, {{Key: "o-1/pay/0", At: at, Times: 1}, {Key: "o-2/pay/0", At: at}, {Key: "o-3/pay/0", At: at, Times: 1}}} {
		file, got, err := keep.Open(path)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("round %d: %+v, %v", round, got, err)
		}
		add := []keep.Effect{{Key: "o-1/pay/0", At: at, Times: 2}, {Key: "o-2/pay/0", At: at, Times: 1}, {Key: "o-2/pay/0", At: at.Add(time.Hour)}}
		if round > 0 {
			add = []keep.Effect{{Key: "o-1/pay/0", At: at, Times: 1}, {Key: "o-3/pay/0", At: at, Times: 1}}
		}
		for _, e := range add {
			if err := file.Add(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(text, "1 1900000000000000 o-4/pa"...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := keep.Open(t.TempDir()); err == nil {
		t.Error("a folder is taken for books")
	}
}
