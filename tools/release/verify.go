package main

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// verify reads everything that was made again, from the files alone.
func (r *release) verify() error {
	text, err := os.ReadFile(filepath.Join(r.out, sumsName))
	if err != nil {
		return fmt.Errorf("sums: %w", err)
	}
	var named []string
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		want, name, _ := strings.Cut(lines.Text(), "  ")
		sum, err := sumOf(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		if sum != want {
			return fmt.Errorf("%s is not what %s says", name, sumsName)
		}
		named = append(named, name)
	}
	for _, target := range r.targets {
		for _, name := range []string{r.archiveName(target), r.sbomName(target)} {
			if !slices.Contains(named, name) {
				return fmt.Errorf("%s is missing in %s", name, sumsName)
			}
		}
		if err := r.verifyArchive(target); err != nil {
			return fmt.Errorf("%s: %w", r.archiveName(target), err)
		}
	}
	return nil
}

// verifyArchive fails unless an archive has what it must, and licences of what is linked.
func (r *release) verifyArchive(target string) error {
	names, err := list(filepath.Join(r.out, r.archiveName(target)))
	if err != nil {
		return err
	}
	want := []string{executable(target)}
	for name := range carried {
		want = append(want, name)
	}
	if strings.HasPrefix(target, "linux/") {
		want = append(want, "systemd/duly.service")
	}
	for _, name := range want {
		if !slices.Contains(names, path.Join(r.name(target), name)) {
			return fmt.Errorf("no %s", name)
		}
	}
	table, err := r.licenceTable()
	if err != nil {
		return err
	}
	for id := range table {
		dir := path.Join(r.name(target), "licences", strings.Replace(id, " ", "@", 1)) + "/"
		if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, dir) }) {
			return fmt.Errorf("no licence of %s", id)
		}
	}
	return nil
}

// list gives the names of an archive's files.
func list(archive string) (names []string, err error) {
	if strings.HasSuffix(archive, ".zip") {
		z, err := zip.OpenReader(archive)
		if err != nil {
			return nil, err
		}
		defer z.Close()
		for _, f := range z.File {
			names = append(names, f.Name)
		}
		return names, nil
	}
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	for t := tar.NewReader(unpacked); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		names = append(names, h.Name)
	}
}
