package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHugePagesAreGivenBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nr_hugepages")
	if err := os.WriteFile(file, []byte("7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	giveBack, err := reserveHugePages(file, 100)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := readCount(file); n != 107 || err != nil {
		t.Fatalf("reserved: %d, %v, want 107", n, err)
	}
	if err := giveBack(); err != nil {
		t.Fatal(err)
	}
	if n, err := readCount(file); n != 7 || err != nil {
		t.Fatalf("given back: %d, %v, want 7", n, err)
	}
}

func TestHugePagesThatCannotBeReserved(t *testing.T) {
	for _, file := range []string{os.DevNull, filepath.Join(t.TempDir(), "none")} {
		if _, err := reserveHugePages(file, 1); err == nil || !strings.Contains(err.Error(), "huge-pages") {
			t.Errorf("%s: %v", file, err)
		}
	}
}
