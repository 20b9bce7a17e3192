package planfile

import (
	"os"
	"regexp"
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

// Each plan on a page is one that can work, and runs its steps in the order that a reader takes it to have.
//
// covers: W1
func TestOrderOnPages(t *testing.T) {
	for _, c := range []struct{ page, plan, order string }{
		{"guide/plan-files.md", "(?s)```yaml\n(.*?)```", "risk, then approve, then charge, then parcels and coupon side by side"},
		{"guide/agents-in-any-language.md", `(?s)duly\.plans\.apply '(.*?)'`, "credit, then charge"},
		{"reference/protocol.md", `(?s)golden: plan-apply.*?(\{"name".*?)\n`, "credit, then charge"},
	} {
		page, err := os.ReadFile("../../docs/" + c.page)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(c.plan).FindSubmatch(page)
		if found == nil {
			t.Fatalf("%s has no plan", c.page)
		}
		if p, err := Read(c.page, found[1], payloadMax); err != nil || p.Order() != c.order {
			t.Errorf("%s: %q, %v; want %q", c.page, p.Order(), err, c.order)
		}
	}
}
