package main

import (
	"go/types"
	"strings"
)

// uses are the files that each file of a package uses: functions, methods, types and constants that the other declares.
func (prog *program) uses(u *unit) map[string]map[string]bool {
	from := map[string]map[string]bool{}
	for _, file := range u.files {
		from[prog.file(file.Pos())] = map[string]bool{}
	}
	for ident, object := range u.info.Uses {
		if object.Pkg() != u.types {
			continue
		}
		switch o := object.(type) {
		case *types.Func:
			object = o.Origin()
		case *types.TypeName:
			if o.Parent() != u.types.Scope() {
				continue
			}
		case *types.Const:
			if o.Parent() != u.types.Scope() {
				continue
			}
		default:
			continue
		}
		user, used := prog.file(ident.Pos()), prog.file(object.Pos())
		if user != used && strings.HasSuffix(used, ".go") {
			from[user][used] = true
		}
	}
	return from
}

// cycle is the largest set of files that reach each other, of how many, and how many pairs use each other directly.
func cycle(uses map[string]map[string]bool) (largest, files, pairs int) {
	reach := map[string]map[string]bool{}
	for file := range uses {
		reach[file] = map[string]bool{}
		for todo := []string{file}; len(todo) > 0; {
			at := todo[0]
			todo = todo[1:]
			for next := range uses[at] {
				if !reach[file][next] {
					reach[file][next] = true
					todo = append(todo, next)
				}
			}
		}
	}
	for a := range uses {
		mutual := 1
		for b := range uses {
			if a != b && reach[a][b] && reach[b][a] {
				mutual++
			}
			if a < b && uses[a][b] && uses[b][a] {
				pairs++
			}
		}
		largest = max(largest, mutual)
	}
	return largest, len(uses), pairs
}
