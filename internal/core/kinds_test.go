package core

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
)

// TestKinds: the list of kinds has each constant of the type once, so that a test which goes through it forgets none.
//
// covers: L5
func TestKinds(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "record.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []Kind
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			if is, ok := spec.Type.(*ast.Ident); ok && is.Name == "Kind" {
				text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				declared = append(declared, Kind(text))
			}
		}
		return true
	})
	listed := Kinds()
	slices.Sort(declared)
	slices.Sort(listed)
	if !slices.Equal(declared, listed) || len(listed) < 30 {
		t.Errorf("declared %v, listed %v", declared, listed)
	}
	if !Kind("of a later version").Disturbs() {
		t.Error("a kind that is not known says something of durations")
	}
}
