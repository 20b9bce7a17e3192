package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// holders have a *Shard and are not it: they run it in a goroutine and bring it what comes.
var holders = []string{"Committer"}

// methodsOf counts what can do anything to a struct of a package: its methods, functions that take one, and methods of
// structs that wrap one.
func (prog *program) methodsOf(u *unit, name string) (n int) {
	if u == nil {
		return 0
	}
	for _, f := range u.functions() {
		signature := f.object.Signature()
		switch receiver := signature.Recv(); {
		case receiver != nil && (named(receiver.Type()) == name || wraps(receiver.Type(), u, name)):
			n++
		default:
			for parameter := range signature.Params().Variables() {
				if isOf(parameter.Type(), u, name) {
					n++
					break
				}
			}
		}
	}
	return n
}

// isOf reports whether a type is that one of the package, or a pointer to it.
func isOf(t types.Type, u *unit, name string) bool {
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	n, ok := t.(*types.Named)
	return ok && n.Obj().Pkg() == u.types && n.Obj().Name() == name
}

// wraps reports whether a type is a struct with a field that is a pointer to the other.
func wraps(t types.Type, u *unit, name string) bool {
	if slices.Contains(holders, named(t)) {
		return false
	}
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	s, _ := t.Underlying().(*types.Struct)
	for field := range fieldsOf(s) {
		if _, pointer := field.Type().(*types.Pointer); pointer && isOf(field.Type(), u, name) {
			return true
		}
	}
	return false
}

// touched counts the functions of a package that name a field of a struct, and the fields that several files write.
func (prog *program) touched(u *unit, name string) (functions, shared int) {
	if u == nil {
		return 0, 0
	}
	fields := fieldsOf(u.structOf(name))
	writers := map[*types.Var]map[string]bool{}
	for _, f := range u.functions() {
		touches := false
		ast.Inspect(f.decl, func(n ast.Node) bool {
			if ident, ok := n.(*ast.Ident); ok {
				field, _ := u.info.Uses[ident].(*types.Var)
				touches = touches || fields[field]
			}
			for _, w := range writes(u, n) {
				if fields[w.field] {
					if writers[w.field] == nil {
						writers[w.field] = map[string]bool{}
					}
					writers[w.field][prog.file(n.Pos())] = true
				}
			}
			return true
		})
		if touches {
			functions++
		}
	}
	for _, files := range writers {
		if len(files) > 1 {
			shared++
		}
	}
	return functions, shared
}

// write is a field that is written, itself or an element of it.
type write struct {
	field  *types.Var
	clears bool // or lengthens: nothing new is said by it
}

// writes are those of one node: assignments, delete and clear. To take a field's address counts too.
func writes(u *unit, n ast.Node) (all []write) {
	add := func(e ast.Expr, clears bool) {
		if field := fieldOf(u, e); field != nil {
			all = append(all, write{field, clears})
		}
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			add(left, len(n.Lhs) == len(n.Rhs) && clears(n.Rhs[i]))
		}
	case *ast.IncDecStmt:
		add(n.X, false)
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			add(n.X, false)
		}
	case *ast.CallExpr:
		if builtin, ok := ast.Unparen(n.Fun).(*ast.Ident); ok && len(n.Args) > 0 && (builtin.Name == "delete" || builtin.Name == "clear") {
			add(n.Args[0], true)
		}
	}
	return all
}

// clears reports whether a value that is assigned is a zero one, or an append.
func clears(value ast.Expr) bool {
	switch v := value.(type) {
	case *ast.BasicLit:
		return v.Value == "0"
	case *ast.Ident:
		return v.Name == "false" || v.Name == "nil"
	case *ast.CallExpr:
		called, ok := v.Fun.(*ast.Ident)
		return ok && called.Name == "append"
	}
	return false
}

// fieldOf is the field that an expression names, or an element of which it names.
func fieldOf(u *unit, e ast.Expr) *types.Var {
	switch e := ast.Unparen(e).(type) {
	case *ast.SelectorExpr:
		if s := u.info.Selections[e]; s != nil && s.Kind() == types.FieldVal {
			return s.Obj().(*types.Var)
		}
	case *ast.IndexExpr:
		return fieldOf(u, e.X)
	case *ast.StarExpr:
		return fieldOf(u, e.X)
	}
	return nil
}

// leaves are the fields of a struct, with those of structs of its package that it holds or points to in their place.
func leaves(s *types.Struct, in *types.Package) (n int) {
	if s == nil {
		return 0
	}
	for field := range s.Fields() {
		t := field.Type()
		if pointer, ok := t.(*types.Pointer); ok {
			t = pointer.Elem()
		}
		nested, ok := t.(*types.Named)
		if ok && nested.Obj().Pkg() == in {
			if inner, ok := nested.Underlying().(*types.Struct); ok && inner != s {
				n += leaves(inner, in)
				continue
			}
		}
		n++
	}
	return n
}

// tagged are the fields of a package's structs that are settings: they name an environment variable.
func (u *unit) tagged(tag string) (n int) {
	if u == nil {
		return 0
	}
	for _, file := range u.files {
		ast.Inspect(file, func(node ast.Node) bool {
			if field, ok := node.(*ast.Field); ok && field.Tag != nil && strings.Contains(field.Tag.Value, tag) {
				n++
			}
			return true
		})
	}
	return n
}
