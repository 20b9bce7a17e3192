package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// program is the root module's product code with its types. Tests are not part of it.
type program struct {
	fset     *token.FileSet
	root     string
	packages []*unit          // those after what they import
	byName   map[string]*unit // by folder below the root
}

// unit is one package.
type unit struct {
	name  string // folder below the root; "." is the root
	files []*ast.File
	types *types.Package
	info  *types.Info
}

// listed is what the go command tells of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	Module                  *struct{ Main bool }
}

// load checks the types of all packages of the module at root. Packages of other modules are read as the compiler left
// them.
func load(root string) (*program, error) {
	all, err := list(root, "-deps", "./...")
	if err != nil {
		return nil, err
	}
	var others []string
	for _, p := range all {
		if !p.own() && p.ImportPath != "unsafe" {
			others = append(others, p.ImportPath)
		}
	}
	compiled := map[string]string{}
	if len(others) > 0 {
		foreign, err := list(root, append([]string{"-export"}, others...)...)
		if err != nil {
			return nil, err
		}
		for _, p := range foreign {
			compiled[p.ImportPath] = p.Export
		}
	}
	prog := &program{fset: token.NewFileSet(), root: root, byName: map[string]*unit{}}
	in := &imports{own: map[string]*types.Package{}}
	in.foreign = importer.ForCompiler(prog.fset, "gc", func(path string) (io.ReadCloser, error) {
		if compiled[path] == "" {
			return nil, errors.New("not compiled: " + path)
		}
		return os.Open(compiled[path])
	})
	for _, p := range all { // the go command lists a package after those that it imports
		if !p.own() || len(p.GoFiles) == 0 {
			continue
		}
		u, err := prog.check(p, in)
		if err != nil {
			return nil, err
		}
		in.own[p.ImportPath] = u.types
	}
	return prog, nil
}

func (p *listed) own() bool { return p.Module != nil && p.Module.Main }

func list(root string, args ...string) (all []*listed, err error) {
	command := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Dir,Export,GoFiles,Module"}, args...)...)
	var problems bytes.Buffer
	command.Dir, command.Stderr = root, &problems
	command.Env = append(os.Environ(), "GOWORK=off")
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, problems.Bytes())
	}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		p := &listed{}
		if err := d.Decode(p); err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
	}
	return all, nil
}

// imports finds packages: those of the module as they were checked, so that an identifier is one object everywhere.
type imports struct {
	own     map[string]*types.Package
	foreign types.Importer
}

func (i *imports) Import(path string) (*types.Package, error) {
	if p := i.own[path]; p != nil {
		return p, nil
	}
	return i.foreign.Import(path)
}

func (prog *program) check(p *listed, in types.Importer) (*unit, error) {
	name, err := filepath.Rel(prog.root, p.Dir)
	if err != nil {
		return nil, err
	}
	u := &unit{name: filepath.ToSlash(name), info: &types.Info{
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{},
	}}
	for _, file := range p.GoFiles {
		parsed, err := parser.ParseFile(prog.fset, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		u.files = append(u.files, parsed)
	}
	config := types.Config{Importer: in}
	if u.types, err = config.Check(p.ImportPath, prog.fset, u.files, u.info); err != nil {
		return nil, err
	}
	prog.packages = append(prog.packages, u)
	prog.byName[u.name] = u
	return u, nil
}

// file is the name, below the root, of the file that something stands in.
func (prog *program) file(at token.Pos) string {
	name, err := filepath.Rel(prog.root, prog.fset.Position(at).Filename)
	if err != nil {
		return prog.fset.Position(at).Filename
	}
	return filepath.ToSlash(name)
}

// function is one declared function or method.
type function struct {
	unit   *unit
	decl   *ast.FuncDecl
	object *types.Func
}

// functions are those of a package.
func (u *unit) functions() (all []function) {
	for _, file := range u.files {
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok {
				object, _ := u.info.Defs[d.Name].(*types.Func)
				all = append(all, function{u, d, object})
			}
		}
	}
	return all
}

// structOf is a struct type of a package, and nil where there is none of that name.
func (u *unit) structOf(name string) *types.Struct {
	if u == nil {
		return nil
	}
	object := u.types.Scope().Lookup(name)
	if object == nil {
		return nil
	}
	s, _ := object.Type().Underlying().(*types.Struct)
	return s
}

// fieldsOf are the fields of a struct.
func fieldsOf(s *types.Struct) map[*types.Var]bool {
	all := map[*types.Var]bool{}
	if s != nil {
		for field := range s.Fields() {
			all[field] = true
		}
	}
	return all
}

// named is the name of a type or of what it points to, if the type has one.
func named(t types.Type) string {
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	if n, ok := t.(*types.Named); ok {
		return n.Obj().Name()
	}
	return ""
}

// below are the packages in a folder and in those below it.
func (prog *program) below(folder string) []*unit {
	return slices.DeleteFunc(slices.Clone(prog.packages), func(u *unit) bool {
		return u.name != folder && !strings.HasPrefix(u.name, folder+"/")
	})
}

// keys are the keys of a map, sorted.
func keys[K cmp.Ordered, V any](of map[K]V) (all []K) {
	for k := range of {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}
