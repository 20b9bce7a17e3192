package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// completions are what shells run. Each calls the program with the line in COMP_LINE.
var completions = map[string]string{
	"bash": "complete -C duly duly\n",
	"zsh":  "autoload -U +X bashcompinit && bashcompinit\ncomplete -C duly duly\n",
	"fish": "function __complete_duly\n    set -lx COMP_LINE (commandline -cp)\n    duly\nend\ncomplete -f -c duly -a \"(__complete_duly)\"\n",
}

// Run prints the completion.
func (c *completionCmd) Run(std streams) error {
	_, err := fmt.Fprint(std.out, completions[c.Shell])
	return err
}

// completing answers a shell that completes a line, and reports whether one does.
func completing(parser *kong.Kong, std streams) bool {
	line, asked := os.LookupEnv("COMP_LINE")
	if !asked {
		return false
	}
	if at, err := strconv.Atoi(os.Getenv("COMP_POINT")); err == nil && at >= 0 && at < len(line) {
		line = line[:at]
	}
	for _, word := range complete(parser.Model.Node, line) {
		fmt.Fprintln(std.out, word)
	}
	return true
}

// complete is what may stand at the end of a line: commands, flags, and the values of a flag that has a list of them.
func complete(at *kong.Node, line string) []string {
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil
	}
	last := ""
	if !strings.HasSuffix(line, " ") {
		last = words[len(words)-1]
		words = words[:len(words)-1]
	}
	flags := slices.Clone(at.Flags)
	var value *kong.Flag // that the last word is the value of
	for _, word := range words[min(1, len(words)):] {
		if value != nil {
			value = nil
			continue
		}
		if strings.HasPrefix(word, "-") {
			value = flagOf(flags, word)
			continue
		}
		for _, child := range at.Children {
			if child.Name == word {
				at = child
				flags = append(flags, child.Flags...)
				break
			}
		}
	}
	var all []string
	switch {
	case value != nil:
		all = append(all, value.EnumSlice()...)
	case strings.HasPrefix(last, "-"):
		for _, f := range flags {
			if !f.Hidden {
				all = append(all, "--"+f.Name)
			}
		}
	default:
		for _, child := range at.Children {
			if !child.Hidden {
				all = append(all, child.Name)
			}
		}
		if len(all) == 0 {
			for _, p := range at.Positional {
				all = append(all, p.EnumSlice()...)
			}
		}
		if len(all) == 0 && last != "" {
			all, _ = filepath.Glob(last + "*") // its only error: a name with a [
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(word string) bool { return word == "" || !strings.HasPrefix(word, last) })
}

// flagOf is the flag of a word that takes its value from the next one; nil: none.
func flagOf(flags []*kong.Flag, word string) *kong.Flag {
	for _, f := range flags {
		if (word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short)) && !f.IsBool() {
			return f
		}
	}
	return nil
}
