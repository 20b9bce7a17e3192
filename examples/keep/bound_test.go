package keep

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestBound: a file keeps its newest keys, however many effects are added while it is open and over how many lives.
func TestBound(t *testing.T) {
	const most = 10
	path := filepath.Join(t.TempDir(), "books")
	for life := range 3 {
		file, all, err := open(path, most)
		if err != nil || len(all) > most {
			t.Fatalf("life %d begins with %d effects, %v", life, len(all), err)
		}
		for i := range 7 * most {
			e := Effect{Key: fmt.Sprintf("o-%d-%d/pay/0", life, i), At: time.UnixMicro(1_900_000_000_000_000), Times: 1}
			if err := file.Add(e); err != nil {
				t.Fatal(err)
			}
			e.Times = 0
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
		if lines := bytes.Count(text, []byte("\n")); lines > 2*most {
			t.Errorf("life %d ends with %d lines, want %d at most", life, lines, 2*most)
		}
		all, err = read(path)
		if newest := fmt.Sprintf("o-%d-%d/pay/0", life, 7*most-1); err != nil || all[len(all)-1].Key != newest {
			t.Errorf("life %d: the newest is %v, %v, want %s", life, all, err, newest)
		}
	}
}
