package law

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRooms holds the files of package scheduler to the table of its rooms: each stands in one, and uses no room below its
// own; and one room writes a field of Shard, partition or entry.
func TestRooms(t *testing.T) {
	pkg := checkedPackage(t, filepath.Join(repository(t), "scheduler"))
	uses, writers := pkg.uses(), pkg.writers("Shard", "partition", "entry")
	page := text(t, "ARCHITECTURE.md")
	for _, problem := range roomProblems(roomsOf(page), uses, writers) {
		t.Error(problem)
	}
	decision := roomsOf(text(t, "docs/decisions/060-rooms-of-the-scheduler.md"))
	for i, room := range roomsOf(page) {
		if i >= len(decision) || decision[i].name != room.name {
			t.Errorf("room %s has another place in decision 060, or none", room.name)
		}
	}
	for _, spoilt := range []struct{ old, new, want string }{
		{"| `gate` | gate |", "| `gate` | |", "gate.go stands in no room"},
		{"| `gate` | gate |", "| `gate` | gate entry |", "entry.go stands in two rooms"},
		{"| `gate` | gate |", "| `gate` | gate gone |", "gone.go is not there"},
		{"| `gate` | gate |\n", "", "gate.go stands in no room"},
		{"| `round` | round |\n| `gate` | gate |\n", "| `gate` | gate |\n| `round` | round |\n", "gate.go, in room gate, uses pending of round.go, in room round below it"},
	} {
		if !strings.Contains(page, spoilt.old) {
			t.Errorf("the table has no %q", spoilt.old)
		}
		all := roomProblems(roomsOf(strings.Replace(page, spoilt.old, spoilt.new, 1)), uses, writers)
		if !slices.ContainsFunc(all, func(problem string) bool { return strings.Contains(problem, spoilt.want) }) {
			t.Errorf("with %q in the table nothing says %q: %q", spoilt.new, spoilt.want, all)
		}
	}
	writers["entry.task"]["gate.go"] = true
	if all := roomProblems(roomsOf(page), uses, writers); !slices.Equal(all, []string{"entry.task is written in several rooms: gate, tasks"}) {
		t.Errorf("another room writes a field, and all that is said is %q", all)
	}
}

// room is a row of the table of rooms. Its files may use those of the rooms before it.
type room struct {
	name  string
	files []string
}

// roomsOf are those of the table of a page whose first column is headed room.
func roomsOf(page string) (all []room) {
	_, table, _ := strings.Cut(page, "\n| room |")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); strings.HasPrefix(line, "| ") && len(cells) > 2 {
			all = append(all, room{name: strings.Trim(cells[1], " `"), files: strings.Fields(cells[2])})
		}
	}
	return all
}

// roomProblems says what is wrong with rooms of files that use each other.
func roomProblems(rooms []room, uses map[string]map[string]string, writers map[string]map[string]bool) (all []string) {
	place := map[string]int{}
	for i, r := range rooms {
		for _, name := range r.files {
			name += ".go"
			if _, twice := place[name]; twice {
				all = append(all, name+" stands in two rooms")
			}
			if uses[name] == nil {
				all = append(all, name+" is not there")
			}
			place[name] = i
		}
	}
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		at, ok := place[name]
		if !ok {
			all = append(all, name+" stands in no room")
			continue
		}
		for _, other := range slices.Sorted(maps.Keys(uses[name])) {
			if is, ok := place[other]; ok && is > at {
				all = append(all, fmt.Sprintf("%s, in room %s, uses %s of %s, in room %s below it", name, rooms[at].name, uses[name][other], other, rooms[is].name))
			}
		}
	}
	for _, field := range slices.Sorted(maps.Keys(writers)) {
		write := map[string]bool{}
		for name := range writers[field] {
			if at, ok := place[name]; ok {
				write[rooms[at].name] = true
			}
		}
		if len(write) > 1 {
			all = append(all, fmt.Sprintf("%s is written in several rooms: %s", field, strings.Join(slices.Sorted(maps.Keys(write)), ", ")))
		}
	}
	return all
}

// checked is a package with its types.
type checked struct {
	fset  *token.FileSet
	files []*ast.File
	types *types.Package
	info  *types.Info
}

func (p *checked) file(at token.Pos) string { return filepath.Base(p.fset.Position(at).Filename) }

func checkedPackage(t *testing.T, folder string) *checked {
	t.Helper()
	p := &checked{fset: token.NewFileSet(), info: &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}}
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if name := filepath.Base(path); strings.HasSuffix(name, "_test.go") || name == "doc.go" {
			continue
		}
		file, err := parser.ParseFile(p.fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		p.files = append(p.files, file)
	}
	config := types.Config{Importer: importer.ForCompiler(p.fset, "source", nil)}
	if p.types, err = config.Check(folder, p.fset, p.files, p.info); err != nil {
		t.Fatal(err)
	}
	return p
}

// uses are the files that each file uses, with what: functions, methods, types and constants.
func (p *checked) uses() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, file := range p.files {
		all[p.file(file.Pos())] = map[string]string{}
	}
	for ident, object := range p.info.Uses {
		switch o := object.(type) {
		case *types.Func:
			object = o.Origin()
		case *types.TypeName, *types.Const:
		default:
			continue
		}
		user, used := p.file(ident.Pos()), p.file(object.Pos())
		if name := all[user][used]; object.Pkg() == p.types && user != used && (name == "" || object.Name() < name) {
			all[user][used] = object.Name()
		}
	}
	return all
}

// writers are the files that write each field of some structs: assign to it or to an element of it, take its address, delete
// from it or clear it.
func (p *checked) writers(structs ...string) map[string]map[string]bool {
	names := map[types.Object]string{}
	for _, name := range structs {
		for field := range p.types.Scope().Lookup(name).Type().Underlying().(*types.Struct).Fields() {
			names[field] = name + "." + field.Name()
		}
	}
	all := map[string]map[string]bool{}
	var write func(ast.Expr)
	write = func(e ast.Expr) {
		switch e := ast.Unparen(e).(type) {
		case *ast.IndexExpr:
			write(e.X)
		case *ast.StarExpr:
			write(e.X)
		case *ast.SelectorExpr:
			if is := p.info.Selections[e]; is != nil && names[is.Obj()] != "" {
				name := names[is.Obj()]
				if all[name] == nil {
					all[name] = map[string]bool{}
				}
				all[name][p.file(e.Pos())] = true
			}
		}
	}
	for _, file := range p.files {
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					write(left)
				}
			case *ast.IncDecStmt:
				write(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					write(n.X)
				}
			case *ast.CallExpr:
				if called, ok := ast.Unparen(n.Fun).(*ast.Ident); ok && len(n.Args) > 0 && (called.Name == "delete" || called.Name == "clear") {
					write(n.Args[0])
				}
			}
			return true
		})
	}
	return all
}
