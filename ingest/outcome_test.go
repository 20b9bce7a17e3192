package ingest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// TestEveryCauseHasAWord: a cause that is added is counted under a word of its own.
func TestEveryCauseHasAWord(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "refusal.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	causes := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.INT && len(lit.Value) == 4 && lit.Value[:2] == "70" {
			causes++
		}
		return true
	})
	words := map[string]int{outcomeAccepted: 0}
	for cause, word := range outcomes {
		if other, twice := words[word]; twice {
			t.Errorf("causes %d and %d are both %q", cause, other, word)
		}
		words[word] = cause
	}
	if len(outcomes) != causes || causes < 20 {
		t.Errorf("%d words for %d causes", len(outcomes), causes)
	}
	s := Stats{Accepted: 3, Refused: map[int]int64{CauseFull: 2, CauseBacklog: 1, 1: 9}}
	if got := s.Outcomes(); got["accepted"] != 3 || got["door_full"] != 2 || got["backlog"] != 1 || got["other"] != 9 || len(got) != 4 {
		t.Errorf("%v", got)
	}
}
