package main

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
)

// roles are the packages beside internal that are for this module's own processes: ingest, scheduler and their like.
var roles = []string{"internal", "ingest", "scheduler", "supervisor", "schema"}

// exported counts the exported identifiers of the product's packages without fields, and those of internal and role
// packages, without methods, that no other package uses: it names them, in a test or in another module of the tree too,
// or they are types that something exported consists of, takes or returns.
func (prog *program) exported(text tree) (all int, unused []string) {
	used := text.names()
	for _, u := range prog.packages {
		for _, object := range exportedOf(u) {
			mentioned(object, func(t *types.TypeName) {
				if t != object && t.Pkg() != nil {
					used[identifier{t.Pkg().Path(), t.Name()}] = true
				}
			})
		}
	}
	for _, u := range prog.packages {
		if isOutside(u.name) && u.name != "dulytest" {
			continue
		}
		for _, object := range exportedOf(u) {
			all++
			if inRoles(u.name) && !isMethod(object) && !used[identifier{u.types.Path(), object.Name()}] {
				unused = append(unused, u.name+"."+object.Name())
			}
		}
	}
	return all, unused
}

// mentioned yields the types that an identifier's own consists of, takes or returns.
func mentioned(object types.Object, yield func(*types.TypeName)) {
	seen := map[types.Type]bool{}
	var visit func(t types.Type)
	visit = func(t types.Type) {
		if seen[t] {
			return
		}
		seen[t] = true
		switch t := t.(type) {
		case *types.Named:
			yield(t.Obj())
			for argument := range t.TypeArgs().Types() {
				visit(argument)
			}
			if t.Obj() == object {
				visit(t.Underlying())
			}
		case *types.Struct:
			for field := range t.Fields() {
				if field.Exported() {
					visit(field.Type())
				}
			}
		case *types.Interface:
			for method := range t.Methods() {
				visit(method.Type())
			}
		case *types.Signature:
			visit(t.Params())
			visit(t.Results())
		case *types.Tuple:
			for v := range t.Variables() {
				visit(v.Type())
			}
		case *types.Map:
			visit(t.Key())
			visit(t.Elem())
		case interface{ Elem() types.Type }: // pointer, slice, array, channel
			visit(t.Elem())
		}
	}
	visit(object.Type())
}

// identifier is one of a package.
type identifier struct{ path, of string }

// names are those of packages that other packages use, tests as well.
func (t tree) names() map[identifier]bool {
	used := map[identifier]bool{}
	for _, at := range keys(t) {
		if !strings.HasSuffix(at, ".go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), at, t[at], parser.SkipObjectResolution)
		if err != nil {
			continue
		}
		imported := map[string]string{}
		for _, spec := range file.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			as := path[strings.LastIndex(path, "/")+1:]
			if spec.Name != nil {
				as = spec.Name.Name
			}
			imported[as] = path
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && imported[x.Name] != "" {
					used[identifier{imported[x.Name], s.Sel.Name}] = true
				}
			}
			return true
		})
	}
	return used
}

func inRoles(name string) bool {
	for _, folder := range roles {
		if strings.HasPrefix(name+"/", folder+"/") {
			return true
		}
	}
	return false
}

func isMethod(object types.Object) bool {
	f, ok := object.(*types.Func)
	return ok && f.Signature().Recv() != nil
}

// exportedOf are a package's exported constants, variables, functions, types, and methods of exported types.
func exportedOf(u *unit) (all []types.Object) {
	scope := u.types.Scope()
	for _, name := range scope.Names() {
		object := scope.Lookup(name)
		if !object.Exported() {
			continue
		}
		all = append(all, object)
		if t, ok := object.Type().(*types.Named); ok && t.Obj() == object {
			for method := range t.Methods() {
				if method.Exported() {
					all = append(all, method)
				}
			}
		}
	}
	return all
}

// constant is the value of an integer constant of a package, 0 where there is none.
func (prog *program) constant(folder, name string) int64 {
	u := prog.byName[folder]
	if u == nil {
		return 0
	}
	c, ok := u.types.Scope().Lookup(name).(*types.Const)
	if !ok {
		return 0
	}
	n, _ := constant.Int64Val(c.Val())
	return n
}
