package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

var update = flag.Bool("update", false, "write what docs tells of commands and flags")

// The pages that tell the command line. What stands between these two lines of each is written here.
const (
	configurePage  = "docs/operations/configure.md"
	commandsPage   = "docs/reference/commands.md"
	generatedBegin = "<!-- generated: go test ./cmd/duly -run Manual -update -->\n"
	generatedEnd   = "<!-- /generated -->"
	manualColumns  = 118
)

// TestManual: the pages tell the commands and flags as they are.
//
// covers: I16, D8
func TestManual(t *testing.T) {
	var c cli
	parser, err := kong.New(&c, kong.Name("duly"))
	if err != nil {
		t.Fatal(err)
	}
	commands := parser.Model.Children
	at := slices.IndexFunc(commands, func(n *kong.Node) bool { return n.Name == "serve" })
	if at < 0 {
		t.Fatal("there is no command serve")
	}
	var settings, all strings.Builder
	for _, f := range commands[at].Flags {
		writeFlag(&settings, f)
	}
	all.WriteString("| exit status | means |\n|---|---|\n")
	for _, e := range exits {
		fmt.Fprintf(&all, "| %d | %s |\n", e.code, e.what)
	}
	all.WriteString("\n## Flags of all that ask a node\n\n")
	for _, n := range commands {
		if n.Name != "get" {
			continue
		}
		for _, f := range n.Flags {
			writeFlag(&all, f)
		}
	}
	all.WriteString("\n")
	for _, n := range commands {
		writeCommand(&all, n, "duly", settingsOf(parser.Model.Children))
	}
	for page, part := range map[string]string{configurePage: settings.String(), commandsPage: all.String()} {
		file := filepath.Join("..", "..", filepath.FromSlash(page))
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, begins := strings.Cut(string(text), generatedBegin)
		_, after, ends := strings.Cut(rest, generatedEnd)
		if !begins || !ends {
			t.Fatalf("%s has no part that is generated", page)
		}
		fresh := before + generatedBegin + "\n" + part + "\n" + generatedEnd + after
		if *update {
			if err := os.WriteFile(file, []byte(fresh), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if fresh != string(text) {
			t.Errorf("%s is not fresh: go test ./cmd/duly -run Manual -update", page)
		}
	}
}

// common are the flags of all that ask a node; they are written once.
var common = []string{"server", "token", "profile", "timeout", "output"}

// settingsOf are the flags of serve, which have a page of their own.
func settingsOf(commands []*kong.Node) map[string]bool {
	all := map[string]bool{}
	for _, n := range commands {
		if n.Name != "serve" {
			continue
		}
		for _, f := range n.Flags {
			all[f.Name] = true
		}
	}
	return all
}

// writeCommand writes one command with its arguments and flags, and those below it.
func writeCommand(b *strings.Builder, n *kong.Node, parent string, settings map[string]bool) {
	name, level := parent+" "+n.Name, "##"
	if parent != "duly" {
		level = "###"
	}
	fmt.Fprintf(b, "%s %s\n\n", level, name)
	writeItem(b, "", n.Help)
	if short := []string{"submit", "get", "list", "why", "cancel"}; parent == "duly task" && slices.Contains(short, n.Name) {
		writeItem(b, "", "It is the same as `duly "+n.Name+"`.")
		b.WriteString("\n")
		return
	}
	asks := has(n.Flags, common...)
	serves := has(n.Flags, "roles", "partitions")
	switch {
	case n.Name == "serve":
		writeItem(b, "", "Its flags are in [configure](../operations/configure.md).")
		b.WriteString("\n")
		return
	case serves:
		writeItem(b, "", "It takes the flags of serve, which are in [configure](../operations/configure.md), and these:")
	case asks:
		writeItem(b, "", "It asks a node, with [the flags for that](#flags-of-all-that-ask-a-node).")
	}
	var own []*kong.Flag
	for _, f := range n.Flags {
		if f.Name != "help" && !f.Hidden && !(asks && slices.Contains(common, f.Name)) && !(serves && settings[f.Name]) {
			own = append(own, f)
		}
	}
	if len(n.Positional)+len(own) > 0 {
		b.WriteString("\n")
	}
	for _, p := range n.Positional {
		writeItem(b, "- ", "`<"+p.Name+">`: "+p.Help)
	}
	for _, f := range own {
		writeFlag(b, f)
	}
	b.WriteString("\n")
	for _, child := range n.Children {
		writeCommand(b, child, name, settings)
	}
}

// has reports whether all the flags are there.
func has(flags []*kong.Flag, names ...string) bool {
	for _, name := range names {
		if !slices.ContainsFunc(flags, func(f *kong.Flag) bool { return f.Name == name }) {
			return false
		}
	}
	return true
}

// writeFlag writes a flag with its environment variable and default.
func writeFlag(b *strings.Builder, f *kong.Flag) {
	if f.Name == "help" || f.Hidden {
		return
	}
	name := "`--" + f.Name + "`"
	if f.Short != 0 {
		name += ", `-" + string(f.Short) + "`"
	}
	var about []string
	for _, env := range f.Envs {
		about = append(about, "`"+env+"`")
	}
	switch {
	case f.Required:
		about = append(about, "required")
	case f.Default != "":
		about = append(about, "default `"+f.Default+"`")
	}
	if len(about) > 0 {
		name += " (" + strings.Join(about, ", ") + ")"
	}
	writeItem(b, "- ", name+": "+f.Help)
}

// writeItem writes a text in lines; those after the first are indented as far as its beginning.
func writeItem(b *strings.Builder, begin, text string) {
	line, empty := begin, true
	for word := range strings.FieldsSeq(text) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > manualColumns {
			b.WriteString(line + "\n")
			line, empty = strings.Repeat(" ", len(begin)), true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	b.WriteString(line + "\n")
}
