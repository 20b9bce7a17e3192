// Command licences writes which third-party modules a program links, and under
// which licences: a table in Markdown. It fails for a licence that is not known to
// be permissive, and names module, file and licence.
//
//	licences [-check] [-texts DIR] ROOT PACKAGE FILE
//
// ROOT is the folder of the main module, PACKAGE the program, FILE the table below
// ROOT. With -check the file is compared instead of written. With -texts the licence
// and NOTICE files themselves are copied too, as DIR/<module>@<version>/<file>.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	check := flag.Bool("check", false, "compare the file instead of writing it")
	texts := flag.String("texts", "", "folder that the licence files are copied into")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: licences [-check] [-texts DIR] ROOT PACKAGE FILE")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 3 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), flag.Arg(1), flag.Arg(2), *texts, *check); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(root, program, file, texts string, check bool) error {
	modules, err := linked(root, program)
	if err != nil {
		return err
	}
	if err := classify(modules); err != nil {
		return err
	}
	if texts != "" {
		if err := carry(modules, texts); err != nil {
			return err
		}
	}
	table := render(program, modules)
	path := filepath.Join(root, file)
	if !check {
		if err := os.WriteFile(path, table, 0o644); err != nil {
			return fmt.Errorf("table of licences: %w", err)
		}
		return nil
	}
	have, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("table of licences: %w", err)
	}
	if !bytes.Equal(have, table) {
		return fmt.Errorf("%s is not what go.mod links now: run make licences and look at what changed", file)
	}
	return nil
}

// carry copies the licence and NOTICE files of modules below dir.
func carry(modules []*module, dir string) error {
	for _, m := range modules {
		for _, path := range m.texts {
			text, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("licence file: %w", err)
			}
			to := filepath.Join(dir, m.path+"@"+m.version, m.below(path))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return fmt.Errorf("licence texts: %w", err)
			}
			if err := os.WriteFile(to, text, 0o644); err != nil {
				return fmt.Errorf("licence texts: %w", err)
			}
		}
	}
	return nil
}
