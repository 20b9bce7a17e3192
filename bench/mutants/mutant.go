package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// mutant is one fault and the tests that must see it.
type mutant struct {
	name      string
	invariant int    // of docs/generated/invariants.md that it breaks
	file      string // below the module's root, with slashes
	old       string // what stands there, once
	new       string // what stands there instead
	fault     string // in words
	in        string // folder of the tests; empty: that of the file
	run       string // the tests that must fail, as go test -run takes them
	hangs     bool   // with the fault a test waits for ever: running out of time is a catch
}

// How long the tests of one mutant may take. One that hangs does so for all of
// hangTimeout, which the tests without the fault keep within by far.
const (
	testTimeout = 2 * time.Minute
	hangTimeout = 20 * time.Second
)

// mutants is the whole list.
var mutants = slices.Concat(coreMutants, graphMutants, lateMutants, probeMutants, undoMutants, moneyMutants, schedulerMutants, roleMutants, adapterMutants, groundMutants, wiringMutants, repairMutants, wentBackMutants, chainMutants, operatorMutants, outboxMutants, ledgerMutants, orderMutants, breakerMutants, roundMutants, drawnMutants, simulatedMutants)

// folder is where the tests are that must catch the mutant.
func (m *mutant) folder() string {
	if m.in != "" {
		return m.in
	}
	return path.Dir(m.file)
}

func (m *mutant) timeout() time.Duration {
	if m.hangs {
		return hangTimeout
	}
	return testTimeout
}

// simulated are the packages that the simulator runs.
var simulated = []string{"internal/core", "scheduler", "ingest", "agents", "supervisor"}

func (m *mutant) simulated() bool { return slices.Contains(simulated, path.Dir(m.file)) }

// source is the mutant's file as it stands.
func (m *mutant) source(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.name, err)
	}
	return string(text), nil
}

// apply gives the mutant's file with the fault in it.
func (m *mutant) apply(root string) (string, error) {
	text, err := m.source(root)
	if err != nil {
		return "", err
	}
	if n := strings.Count(text, m.old); n != 1 {
		return "", fmt.Errorf("mutant %s: %s holds its old text %d times, want once: %q", m.name, m.file, n, m.old)
	}
	return strings.Replace(text, m.old, m.new, 1), nil
}

// where names the declaration that the fault is in.
func (m *mutant) where(root string) (string, error) {
	text, err := m.source(root)
	if err != nil {
		return "", err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, m.file, text, parser.SkipObjectResolution)
	if err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.name, err)
	}
	at := fset.File(file.Pos()).Pos(strings.Index(text, m.old))
	for _, decl := range file.Decls {
		if at < decl.Pos() || at >= decl.End() {
			continue
		}
		if name := declared(decl, at); name != "" {
			return m.file + ":" + name, nil
		}
	}
	return m.file, nil
}

// declared is the name of a function, with its receiver, or of the value at a
// place.
func declared(decl ast.Decl, at token.Pos) string {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv == nil {
			return decl.Name.Name
		}
		of := decl.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		if name, ok := of.(*ast.Ident); ok {
			return name.Name + "." + decl.Name.Name
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			if value, ok := spec.(*ast.ValueSpec); ok && at >= value.Pos() && at < value.End() {
				return value.Names[0].Name
			}
		}
	}
	return ""
}
