package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// namedMost is how many of the tests that catch a mutant its row names.
const namedMost = 3

// writeTable writes what was tried as a table.
func writeTable(w io.Writer, root string, chosen []mutant, verdicts []verdict) error {
	var b strings.Builder
	b.WriteString("| mutant | breaks | the fault | in | caught by | simulator |\n|---|---|---|---|---|---|\n")
	for i := range chosen {
		m, v := &chosen[i], &verdicts[i]
		where, err := m.where(root)
		if err != nil {
			return err
		}
		by, err := proof(root, m, v)
		if err != nil {
			return err
		}
		sim := v.sim
		if sim == "" {
			sim = "–"
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s |\n", m.name, m.invariant, m.fault, where, by, sim)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// proof names the tests that caught a mutant behind the files they are in.
func proof(root string, m *mutant, v *verdict) (string, error) {
	if !v.caught() {
		return "**nothing**", nil
	}
	var files []string
	byFile := map[string][]string{}
	tests := worthNaming(m, v.by)
	for _, test := range tests[:min(namedMost, len(tests))] {
		file, err := testFile(root, m.folder(), test)
		if err != nil {
			return "", fmt.Errorf("mutant %s: %w", m.name, err)
		}
		if byFile[file] == nil {
			files = append(files, file)
		}
		byFile[file] = append(byFile[file], test)
	}
	for i, file := range files {
		files[i] = file + ": " + strings.Join(byFile[file], ", ")
	}
	by := strings.Join(files, "; ")
	if m.hangs {
		by += " (it hangs)"
	}
	return by, nil
}

// suites are tests whose subtests have names of their own, in files or tables.
var suites = []string{"TestScripts", "TestSQLite", "TestPostgres"}

// worthNaming are the tests that failed, each once, with its subtest in a suite.
// Where a panic hid their names they are those that were run.
func worthNaming(m *mutant, failed []string) []string {
	var all []string
	for _, test := range failed {
		top, _, _ := strings.Cut(test, "/")
		if !strings.HasPrefix(top, "Test") {
			top = strings.Trim(m.run, "^$")
		}
		if slices.Contains(suites, top) {
			top = test
		}
		if !slices.Contains(all, top) {
			all = append(all, top)
		}
	}
	return all
}

// testFile finds the file of a folder that declares a test.
func testFile(root, folder, test string) (string, error) {
	top, _, _ := strings.Cut(test, "/")
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*_test.go"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if strings.Contains(string(text), "\nfunc "+top+"(") {
			return folder + "/" + filepath.Base(file), nil
		}
	}
	return "", errors.New("no file of " + folder + " declares " + top)
}
