package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// carried are the files of the checkout that every archive has, by their names in it.
var carried = map[string]string{
	"LICENSE": "LICENSE", "NOTICE": "NOTICE", "CHANGELOG.md": "CHANGELOG.md", "THIRD-PARTY.md": "docs/third-party.md",
}

// units are the files that archives for Linux have beside them.
const units = "deploy/systemd"

// licences copies the texts of the licences of what the program links; it fails where docs/third-party.md is not what it
// should be.
func (r *release) licences(ctx context.Context) error {
	_, err := r.command(ctx, filepath.Join(r.root, "tools"), nil, "go", "run", "./licences",
		"-check", "-texts", filepath.Join(r.work, "licences"), r.root, program, "docs/third-party.md")
	return err
}

func (r *release) archiveName(target string) string {
	if strings.HasPrefix(target, "windows/") {
		return r.name(target) + ".zip"
	}
	return r.name(target) + ".tar.gz"
}

// member is one file of an archive.
type member struct {
	name, source string
	mode         int64
}

// members are the files of an archive, by name.
func (r *release) members(target, binary string) ([]member, error) {
	all := []member{{executable(target), binary, 0o755}}
	for name, source := range carried {
		all = append(all, member{name, filepath.Join(r.root, source), 0o644})
	}
	below := func(dir, as string) error {
		return filepath.WalkDir(dir, func(at string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			rel, err := filepath.Rel(dir, at)
			if err != nil {
				return err
			}
			all = append(all, member{path.Join(as, filepath.ToSlash(rel)), at, 0o644})
			return nil
		})
	}
	err := below(filepath.Join(r.work, "licences"), "licences")
	if strings.HasPrefix(target, "linux/") {
		err = errors.Join(err, below(filepath.Join(r.root, filepath.FromSlash(units)), "systemd"))
	}
	if err != nil {
		return nil, fmt.Errorf("files of the archive: %w", err)
	}
	slices.SortFunc(all, func(a, b member) int { return strings.Compare(a.name, b.name) })
	for i := range all {
		all[i].name = path.Join(r.name(target), all[i].name)
	}
	return all, nil
}

// archive writes the program of a target with what goes with it. Names are sorted, times and owners fixed.
func (r *release) archive(target, binary, to string) (err error) {
	all, err := r.members(target, binary)
	if err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = fmt.Errorf("archive %s: %w", filepath.Base(to), err)
		}
	}()
	if strings.HasSuffix(to, ".zip") {
		return r.zip(f, all)
	}
	return r.tar(f, all)
}

func (r *release) tar(w io.Writer, all []member) error {
	packed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(packed)
	for _, m := range all {
		text, err := os.ReadFile(m.source)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: m.name, Mode: m.mode, Size: int64(len(text)), ModTime: r.at, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(text); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), packed.Close())
}

func (r *release) zip(w io.Writer, all []member) error {
	archive := zip.NewWriter(w)
	for _, m := range all {
		text, err := os.ReadFile(m.source)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: r.at}
		header.SetMode(os.FileMode(m.mode))
		file, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := file.Write(text); err != nil {
			return err
		}
	}
	return archive.Close()
}

// sumsName is the file with the sums of all others.
const sumsName = "SHA256SUMS"

// sums writes a line for each file, as sha256sum reads it.
func (r *release) sums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return fmt.Errorf("sums: %w", err)
	}
	var lines strings.Builder
	for _, entry := range entries {
		sum, err := sumOf(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, entry.Name())
	}
	if err := os.WriteFile(filepath.Join(r.out, sumsName), []byte(lines.String()), 0o644); err != nil {
		return fmt.Errorf("sums: %w", err)
	}
	return nil
}

func sumOf(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("sum: %w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text)), nil
}
