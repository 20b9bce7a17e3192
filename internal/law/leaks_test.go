package law

import (
	"go/ast"
)

// leakChecker is the library that finds goroutines a test left behind.
const leakChecker = `"go.uber.org/goleak"`

// leaksFoundBy names the package whose tests run the code of one that has none
// of its own.
var leaksFoundBy = map[string]string{"schema/storetest": "schema", "agents/ledgertest": "agents"}

// leaks asks each package that starts a goroutine, in its code or in its tests,
// for a TestMain that looks for those that did not end.
func (tree forest) leaks(dir folder) []breach {
	checker := dir.name
	if other, ok := leaksFoundBy[dir.name]; ok {
		checker = other
	}
	for _, other := range tree {
		if other.name == checker && other.checksLeaks() {
			return nil
		}
	}
	for _, f := range dir.files {
		if start := f.goroutine(); start != nil {
			return []breach{f.breach(start.Pos(), "no TestMain of %s looks for leaked goroutines, and this starts one", checker)}
		}
	}
	return nil
}

// goroutine finds the first place that starts one: a go statement, or the Go of
// a wait group or an error group.
func (f file) goroutine() (start ast.Node) {
	ast.Inspect(f.ast, func(node ast.Node) bool {
		if start != nil {
			return false
		}
		switch node := node.(type) {
		case *ast.GoStmt:
			start = node
		case *ast.CallExpr:
			if method, ok := node.Fun.(*ast.SelectorExpr); ok && len(node.Args) == 1 && (method.Sel.Name == "Go" || method.Sel.Name == "TryGo") {
				start = node
			}
		}
		return start == nil
	})
	return start
}

// checksLeaks holds if a TestMain calls the checker.
func (dir folder) checksLeaks() bool {
	for _, f := range dir.files {
		if !f.test || !f.importsPath(leakChecker) {
			continue
		}
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Name.Name == "TestMain" && callsVerify(fn) {
				return true
			}
		}
	}
	return false
}

func (f file) importsPath(quoted string) bool {
	for _, spec := range f.ast.Imports {
		if spec.Path.Value == quoted {
			return true
		}
	}
	return false
}

func callsVerify(fn *ast.FuncDecl) (found bool) {
	ast.Inspect(fn, func(node ast.Node) bool {
		if call, ok := node.(*ast.SelectorExpr); ok && call.Sel.Name == "VerifyTestMain" {
			found = true
		}
		return !found
	})
	return found
}
