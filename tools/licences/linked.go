package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// targets are the systems a program is built for: modules that only one of them
// links are in the table too.
var targets = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// module is a third-party module that the program links.
type module struct {
	path, version string
	dir           string   // in the module cache
	folders       []string // of its linked packages, and all above them in the module
	licences      []string // identifiers, sorted; see classify
	notices       []string // its NOTICE files, which a distribution carries along
	texts         []string // paths of all of these files
}

// linked lists the modules with packages in the program, on any target, by path.
func linked(root, program string) ([]*module, error) {
	const format = "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}"
	byPath := map[string]*module{}
	for _, target := range targets {
		system, processor, _ := strings.Cut(target, "/")
		list := exec.Command("go", "list", "-deps", "-f", format, program)
		list.Dir = root
		list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0", "GOWORK=off")
		var stderr bytes.Buffer
		list.Stderr = &stderr
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("packages of %s for %s: %w: %s", program, target, err, bytes.TrimSpace(stderr.Bytes()))
		}
		for line := range strings.Lines(string(out)) {
			line = strings.TrimRight(line, "\r\n")
			if line == "" {
				continue
			}
			if err := collect(byPath, strings.Split(line, "\t")); err != nil {
				return nil, fmt.Errorf("packages of %s for %s: %w", program, target, err)
			}
		}
	}
	var all []*module
	for _, m := range byPath {
		slices.Sort(m.folders)
		m.folders = slices.Compact(m.folders)
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *module) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// collect takes in one linked package: path, version and folder of its module, and
// its own folder.
func collect(byPath map[string]*module, fields []string) error {
	if len(fields) != 4 || fields[2] == "" {
		return fmt.Errorf("%q: not a package of a module in the cache", fields)
	}
	m := byPath[fields[0]]
	if m == nil {
		m = &module{path: fields[0], version: fields[1], dir: fields[2]}
		byPath[m.path] = m
	}
	folders, err := upTo(m.dir, fields[3])
	if err != nil {
		return err
	}
	m.folders = append(m.folders, folders...)
	return nil
}

// upTo is a folder and every one above it up to top.
func upTo(top, folder string) ([]string, error) {
	rel, err := filepath.Rel(top, folder)
	if err != nil {
		return nil, fmt.Errorf("folder of a package: %w", err)
	}
	if !filepath.IsLocal(rel) {
		return nil, errors.New("folder of a package: " + folder + " is not below " + top)
	}
	all := []string{top}
	if rel == "." {
		return all, nil
	}
	for part := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		all = append(all, filepath.Join(all[len(all)-1], part))
	}
	return all, nil
}
