package law

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// breaches runs every check over every folder.
func (tree forest) breaches() []breach {
	var all []breach
	for _, dir := range tree {
		all = append(all, dir.comment()...)
		for _, f := range dir.files {
			all = append(all, f.sleeps()...)
			all = append(all, f.uploads()...)
		}
		if dir.foreign {
			continue
		}
		here, known := placeOf(dir.name)
		if !known {
			first := dir.files[0]
			all = append(all, first.breach(first.ast.Package,
				"package %s is not in the law: give it a place in internal/law", dir.name))
			continue
		}
		all = append(all, tree.leaks(dir)...)
		for _, f := range dir.files {
			all = append(all, f.imports(dir.name, here)...)
			all = append(all, f.wireNames()...)
			all = append(all, f.validates(dir.name)...)
			all = append(all, f.redirects(dir.name)...)
		}
	}
	return all
}

// placeOf finds a package in the map; an exact name goes before a tree.
func placeOf(name string) (place, bool) {
	if exact, ok := packages[name]; ok {
		return exact, true
	}
	for pattern, place := range packages {
		if covers(pattern, name) {
			return place, true
		}
	}
	return place{}, false
}

// imports checks one file's imports against the place of its package.
func (f file) imports(name string, here place) []breach {
	var found []breach
	for _, spec := range f.ast.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			found = append(found, f.breach(spec.Pos(), "unreadable import %s", spec.Path.Value))
			continue
		}
		if path == "encoding/csv" && name != "internal/sheet" && !f.test {
			found = append(found, f.breach(spec.Pos(), "CSV of its own, want sheet.NewWriter: cells may be formulas"))
		}
		if text := f.refusal(name, here, path); text != "" {
			found = append(found, f.breach(spec.Pos(), "%s", text))
		}
	}
	return found
}

// refusal says why a file may not import a path; empty means it may.
func (f file) refusal(name string, here place, path string) string {
	if target, ok := internal(path); ok {
		return f.refusalInside(name, here, target)
	}
	if f.test {
		return ""
	}
	if here.std != nil && !slices.Contains(here.std, path) {
		return name + " imports " + path + "; it may import " + strings.Join(here.std, ", ") + " only"
	}
	for group, trees := range guarded {
		if slices.Contains(here.links, group) {
			continue
		}
		for _, tree := range trees {
			if within(path, tree) {
				return name + " imports " + path + ": it may not link " + group
			}
		}
	}
	return ""
}

func (f file) refusalInside(name string, here place, target string) string {
	// An external test package imports the package it tests.
	if target == name {
		return ""
	}
	if slices.Contains(roles, name) && slices.Contains(roles, target) {
		return "role " + name + " imports role " + target
	}
	if f.test || coversAny(here.imports, target) {
		return ""
	}
	return name + " may not import " + target
}

// internal gives the map's name for an import path of this module.
func internal(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// wireNames finds string literals that are, or contain, names of the default
// namespace on NATS. The tags of fields are left out: they name the environment.
func (f file) wireNames() []breach {
	if f.test {
		return nil
	}
	var found []breach
	tags := map[*ast.BasicLit]bool{}
	ast.Inspect(f.ast, func(node ast.Node) bool {
		if field, ok := node.(*ast.Field); ok {
			tags[field.Tag] = true
		}
		lit, ok := node.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING || tags[lit] {
			return true
		}
		value, err := strconv.Unquote(lit.Value)
		if err == nil && isWireName(value) {
			found = append(found, f.breach(lit.Pos(), "%q is a name of the default namespace: use wire.Names", value))
		}
		return true
	})
	return found
}

// isWireName knows what holds a name of the default namespace. What names are put
// together from counts too: "duly.", "DULY_" and formats such as "duly.%s.x".
func isWireName(value string) bool {
	return slices.Contains(wireBeginnings, value) || wireName.MatchString(value)
}

// validators may ask by themselves whether bytes are JSON or UTF-8, each for its reason. What goes from door to door is
// held to quickjson.Check, core.CheckWords, core.IsText and core.PlainText, so that no door takes what another refuses.
var validators = map[string]string{
	"internal/quickjson": "it is the check of payloads",
	"internal/planfile":  "it points into the text of a file",
	"internal/auth":      "names of tokens have no control characters of Latin-1 either",
	"internal/wire":      "subjects",
	"internal/alerts":    "bodies that templates make for a receiver",
	"internal/console":   "what is shown, and one field of a form, whose whole is checked",
	"internal/api":       "the last look at what a store holds",
	"internal/replay":    "files of tasks as older nodes wrote them",
	"internal/taskform":  "what is not JSON is shown as text",
	"cmd/duly":           "files of tasks",
	"examples/...":       "programs of users",
}

// validates finds checks of JSON and of UTF-8 beside the one that there is.
func (f file) validates(name string) []breach {
	for pattern := range validators {
		if covers(pattern, name) {
			return nil
		}
	}
	if f.test {
		return nil
	}
	var found []breach
	ast.Inspect(f.ast, func(node ast.Node) bool {
		s, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, ok := s.X.(*ast.Ident)
		if ok && (of.Name == "json" && s.Sel.Name == "Valid" || of.Name == "utf8" && strings.HasPrefix(s.Sel.Name, "Valid")) {
			found = append(found, f.breach(node.Pos(), "%s.%s is a check of its own, want quickjson.Check or core.IsText", of.Name, s.Sel.Name))
		}
		return true
	})
	return found
}

// redirects finds HTTP clients of the product that follow redirects to any host: with them go headers, certificates and
// bodies that are for the host that was asked.
func (f file) redirects(name string) []breach {
	if f.test || within(name, "bench") || within(name, "examples") || within(name, "test") {
		return nil
	}
	var found []breach
	ast.Inspect(f.ast, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CompositeLit:
			checks := slices.ContainsFunc(node.Elts, func(e ast.Expr) bool {
				pair, ok := e.(*ast.KeyValueExpr)
				if !ok {
					return false
				}
				key, ok := pair.Key.(*ast.Ident)
				return ok && key.Name == "CheckRedirect"
			})
			if isOf(node.Type, "http", "Client") && !checks {
				found = append(found, f.breach(node.Pos(), "an http.Client without CheckRedirect, want egress.SameOrigin"))
			}
		case *ast.SelectorExpr:
			for _, usual := range []string{"DefaultClient", "Get", "Head", "Post", "PostForm"} {
				if isOf(node, "http", usual) {
					found = append(found, f.breach(node.Pos(), "http.%s follows redirects to any host, want a client with egress.SameOrigin", usual))
				}
			}
		}
		return true
	})
	return found
}

// isOf reports whether an expression is that name of a package.
func isOf(e ast.Expr, of, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	base, ok := s.X.(*ast.Ident)
	return ok && base.Name == of
}

// sleeps finds time.Sleep in a test, whatever name the package was imported by.
// A test that sleeps is slow when all is well and flaky when it is not: wait for
// the event, or use testing/synctest and a timer.
func (f file) sleeps() []breach {
	if !f.test {
		return nil
	}
	alias := ""
	for _, spec := range f.ast.Imports {
		if spec.Path.Value != `"time"` {
			continue
		}
		alias = "time"
		if spec.Name != nil {
			alias = spec.Name.Name
		}
	}
	if alias == "" || alias == "_" {
		return nil
	}
	var found []breach
	// The name after a dot is not the identifier that a dot import brings.
	selected := map[*ast.Ident]bool{}
	ast.Inspect(f.ast, func(node ast.Node) bool {
		sleep := false
		switch node := node.(type) {
		case *ast.SelectorExpr:
			selected[node.Sel] = true
			base, ok := node.X.(*ast.Ident)
			sleep = ok && base.Name == alias && node.Sel.Name == "Sleep"
		case *ast.Ident:
			sleep = alias == "." && node.Name == "Sleep" && !selected[node]
		}
		if sleep {
			found = append(found, f.breach(node.Pos(), "time.Sleep in a test"))
		}
		return true
	})
	return found
}

// uploads finds the ways to read a form that also read a body of any method, and write its files to the disk: what a query
// says is read from the URL.
func (f file) uploads() (found []breach) {
	ast.Inspect(f.ast, func(node ast.Node) bool {
		call, _ := node.(*ast.SelectorExpr)
		if call != nil && !f.test && slices.Contains([]string{"FormValue", "PostFormValue", "FormFile", "ParseMultipartForm"}, call.Sel.Name) {
			found = append(found, f.breach(call.Pos(), "%s reads uploads", call.Sel.Name))
		}
		return true
	})
	return found
}

// comment asks every package for a comment that says what it is for, in the form
// that go doc expects: "Package x …", or any sentence on a program.
func (dir folder) comment() []breach {
	first := dir.files[0]
	for _, f := range dir.files {
		// A comment in a test speaks for the package only if there is nothing else.
		if f.test && !dir.onlyTests() || f.ast.Doc == nil {
			continue
		}
		name := f.ast.Name.Name
		text := f.ast.Doc.Text()
		if name == "main" && text != "" || strings.HasPrefix(text, "Package "+name+" ") {
			return nil
		}
	}
	return []breach{first.breach(first.ast.Package, "package %s has no package comment", dir.name)}
}

func (dir folder) onlyTests() bool {
	return !slices.ContainsFunc(dir.files, func(f file) bool { return !f.test })
}
