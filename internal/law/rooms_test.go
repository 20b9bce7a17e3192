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

// TestRooms holds the files of package scheduler to the table of its rooms: each stands in one, and uses no room below its own.
func TestRooms(t *testing.T) {
	uses := usesOfFiles(t, filepath.Join(repository(t), "scheduler"))
	page := text(t, "ARCHITECTURE.md")
	for _, problem := range roomProblems(roomsOf(page), uses) {
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
		all := roomProblems(roomsOf(strings.Replace(page, spoilt.old, spoilt.new, 1)), uses)
		if !slices.ContainsFunc(all, func(problem string) bool { return strings.Contains(problem, spoilt.want) }) {
			t.Errorf("with %q in the table nothing says %q: %q", spoilt.new, spoilt.want, all)
		}
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
func roomProblems(rooms []room, uses map[string]map[string]string) (all []string) {
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
	return all
}

// usesOfFiles are the files of a package that each of its files uses, with what: functions, methods, types and constants.
func usesOfFiles(t *testing.T, folder string) map[string]map[string]string {
	t.Helper()
	fset, files := token.NewFileSet(), []*ast.File(nil)
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string]map[string]string{}
	for _, path := range paths {
		if name := filepath.Base(path); !strings.HasSuffix(name, "_test.go") && name != "doc.go" {
			file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
			uses[name] = map[string]string{}
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	checked, err := config.Check(folder, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	for ident, object := range info.Uses {
		switch o := object.(type) {
		case *types.Func:
			object = o.Origin()
		case *types.TypeName, *types.Const:
		default:
			continue
		}
		user, used := filepath.Base(fset.Position(ident.Pos()).Filename), filepath.Base(fset.Position(object.Pos()).Filename)
		if name := uses[user][used]; object.Pkg() == checked && user != used && (name == "" || object.Name() < name) {
			uses[user][used] = object.Name()
		}
	}
	return uses
}
