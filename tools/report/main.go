// Command report prints what the design of this source tree aims at, row by row: the value now, the next aim and the later
// one, and what exactly is counted; then the sizes of files and functions. It never fails over a figure: the aims are for
// a reader to compare.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: report FOLDER")
		os.Exit(2)
	}
	if err := report(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func report(root string) error {
	m, err := read(root)
	if err != nil {
		return err
	}
	sizes, err := m.text.sizes()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "row\tnow\taim\tlater\tdefinition\tnot reached because")
	for i := range rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", rows[i].name, rows[i].now(m), rows[i].aim, rows[i].later, rows[i].definition, rows[i].why)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if m.untyped != nil {
		fmt.Println("\nRows that need types are not measured:", m.untyped)
	}
	fmt.Println()
	sizes.print(table)
	return table.Flush()
}

// measured is a source tree that is looked at.
type measured struct {
	root    string
	text    tree
	prog    *program // nil: untyped says why
	untyped error
}

func read(root string) (*measured, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	m := &measured{root: root}
	if m.text, err = readTree(root); err != nil {
		return nil, err
	}
	m.prog, m.untyped = load(root)
	return m, nil
}
