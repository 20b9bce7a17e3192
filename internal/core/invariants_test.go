package core

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestInvariants looks for every test that testdata/invariants.txt names.
func TestInvariants(t *testing.T) {
	table, err := os.ReadFile("testdata/invariants.txt")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	names := regexp.MustCompile(`\bTest\w+(/\w+)?`).FindAllString(string(table), -1)
	if len(names) == 0 {
		t.Fatal("the table names no test")
	}
	for _, name := range names {
		test, script, _ := strings.Cut(name, "/")
		if !strings.Contains(tests.String(), "func "+test+"(t *testing.T)") {
			t.Errorf("no test is called %s", test)
		}
		if script == "" {
			continue
		}
		if _, err := os.Stat("testdata/scripts/" + script + ".txt"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
