package main

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// question names a method or function by which is asked whether a do may leave: of a type, or of the package itself.
type question struct{ of, name string }

// questions are those of the scheduler: the gate's, its stages', and what these ask.
var questions = []question{
	{"gate", "room"}, {"stage", "room"},
	{"pauseBook", "room"}, {"pauseBook", "pausesAll"}, {"keyStage", "room"}, {"breakerStage", "room"}, {"limitStage", "room"}, {"windowStage", "room"},
	{"Breaker", "Limit"}, {"Breaker", "Back"}, {"inUse", "roomFor"}, {"shardLimit", "room"}, {"shardLimit", "calls"},
}

func isQuestion(f *types.Func) bool {
	if f == nil {
		return false
	}
	of := ""
	if receiver := f.Signature().Recv(); receiver != nil {
		of = named(receiver.Type())
	}
	return slices.Contains(questions, question{of, f.Name()})
}

// callers are the functions of some packages that call one which is meant, but for those that are meant themselves.
func (prog *program) callers(in []*unit, meant func(*types.Func) bool) (names, files map[string]bool) {
	names, files = map[string]bool{}, map[string]bool{}
	for _, u := range in {
		if isOutside(u.name) {
			continue
		}
		for _, f := range u.functions() {
			if meant(f.object) {
				continue
			}
			ast.Inspect(f.decl, func(n ast.Node) bool {
				if ident, ok := n.(*ast.Ident); ok {
					if called, ok := u.info.Uses[ident].(*types.Func); ok && meant(called) {
						names[f.object.FullName()] = true
						files[prog.file(ident.Pos())] = true
					}
				}
				return true
			})
		}
	}
	return names, files
}

// isAppend reports whether a method appends an entry to the audit trail.
func isAppend(f *types.Func) bool {
	if f == nil || f.Name() != "Append" || f.Signature().Recv() == nil {
		return false
	}
	for parameter := range f.Signature().Params().Variables() {
		if named(parameter.Type()) == "AuditEntry" {
			return true
		}
	}
	return false
}

// claims are the events of kind EventClaim that are made outside the core.
func (prog *program) claims() (n int) {
	for _, u := range prog.packages {
		if isOutside(u.name) || u.name == "internal/core" {
			continue
		}
		for _, file := range u.files {
			ast.Inspect(file, func(node ast.Node) bool {
				pair, ok := node.(*ast.KeyValueExpr)
				if !ok {
					return true
				}
				ast.Inspect(pair.Value, func(value ast.Node) bool {
					if ident, ok := value.(*ast.Ident); ok && ident.Name == "EventClaim" && isField(u, pair.Key) {
						n++
					}
					return true
				})
				return false
			})
		}
	}
	return n
}

func isField(u *unit, key ast.Expr) bool {
	ident, ok := key.(*ast.Ident)
	if !ok {
		return false
	}
	v, ok := u.info.Uses[ident].(*types.Var)
	return ok && v.IsField()
}

// wakers are the fields by which what is parked is woken.
var wakers = []string{"lookAt", "keysAt", "ready", "looking"}

// wakes counts the assignments to those fields, and the files that have one. What only clears or lengthens one wakes
// nothing.
func (prog *program) wakes() (n, files int) {
	in := map[string]bool{}
	for _, u := range prog.below("scheduler") {
		if isOutside(u.name) {
			continue
		}
		for _, file := range u.files {
			ast.Inspect(file, func(node ast.Node) bool {
				for _, w := range writes(u, node) {
					if !w.clears && slices.Contains(wakers, w.field.Name()) {
						n++
						in[prog.file(node.Pos())] = true
					}
				}
				return true
			})
		}
	}
	return n, len(in)
}

// verbFiles is how many files of the product name a verb of operators: the median of all verbs.
func (prog *program) verbFiles() int {
	files := map[types.Object]map[string]bool{}
	for _, u := range prog.packages {
		if isOutside(u.name) {
			continue
		}
		for _, at := range []map[*ast.Ident]types.Object{u.info.Defs, u.info.Uses} {
			for ident, object := range at {
				c, ok := object.(*types.Const)
				if !ok || named(c.Type()) != "Action" || !strings.HasSuffix(c.Pkg().Path(), "/operate") || !c.Exported() {
					continue
				}
				if files[object] == nil {
					files[object] = map[string]bool{}
				}
				files[object][prog.file(ident.Pos())] = true
			}
		}
	}
	var counts []int
	for _, in := range files {
		counts = append(counts, len(in))
	}
	if len(counts) == 0 {
		return 0
	}
	slices.Sort(counts)
	return counts[len(counts)/2]
}
