package planfile

import (
	"os"
	"strings"
	"testing"
)

// TestGuide: the plan of the guide can work, and the error in it is the one that the guide shows.
func TestGuide(t *testing.T) {
	page, err := os.ReadFile("../../docs/guide/plan-files.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) string {
		_, rest, found := strings.Cut(string(page), "```"+language+"\n")
		text, _, ended := strings.Cut(rest, "```")
		if !found || !ended {
			t.Fatalf("no block of %s", language)
		}
		return text
	}
	plan := block("yaml")
	p, err := Read("order.yaml", []byte(plan), payloadMax)
	if err != nil || len(p.Steps) != 5 {
		t.Fatalf("%d steps: %v", len(p.Steps), err)
	}
	_, err = Read("order.yaml", []byte(strings.Replace(plan, "results.risk.score", "results.risc.score", 1)), payloadMax)
	if want := block("text"); err == nil || err.Error()+"\n" != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}
