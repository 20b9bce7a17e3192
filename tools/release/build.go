package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

func (r *release) name(target string) string {
	return programName + "_" + r.version + "_" + strings.Replace(target, "/", "_", 1)
}

func executable(target string) string {
	if strings.HasPrefix(target, "windows/") {
		return programName + ".exe"
	}
	return programName
}

// build makes the program of a target from the source in dir; cache is another build cache, empty the usual one. The
// revision is given, not read by the toolchain: so the bytes are the same without a checkout.
func (r *release) build(ctx context.Context, dir, target, to, cache string) error {
	system, processor, _ := strings.Cut(target, "/")
	env := []string{
		"GOOS=" + system, "GOARCH=" + processor, "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=",
	}
	if cache != "" {
		env = append(env, "GOCACHE="+cache)
	}
	flags := fmt.Sprintf("-s -w -X main.version=%s -X main.revision=%s", r.version, r.revision)
	_, err := r.command(ctx, dir, env, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags="+flags, "-o", to, program)
	return err
}

// copySource copies what git has, or would take in, into another folder.
func (r *release) copySource(ctx context.Context) (string, error) {
	out, err := r.command(ctx, r.root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(r.work, "another folder")
	for name := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, and not yet committed
		}
		if err != nil {
			return "", fmt.Errorf("source: %w", err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", fmt.Errorf("copy of the source: %w", err)
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return "", fmt.Errorf("copy of the source: %w", err)
		}
	}
	return dir, nil
}

// same fails unless two files have the same bytes.
func same(first, second string) error {
	a, err := os.ReadFile(first)
	if err != nil {
		return fmt.Errorf("first build: %w", err)
	}
	b, err := os.ReadFile(second)
	if err != nil {
		return fmt.Errorf("second build: %w", err)
	}
	if !bytes.Equal(a, b) {
		return fmt.Errorf("two builds of %s differ: %d and %d bytes", filepath.Base(first), len(a), len(b))
	}
	return nil
}

// inspect looks at a program: it is of its target, static, and names no folder of the machine that built it.
func (r *release) inspect(ctx context.Context, target, path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("build information: %w", err)
	}
	system, processor, _ := strings.Cut(target, "/")
	want := map[string]string{"GOOS": system, "GOARCH": processor, "CGO_ENABLED": "0", "-trimpath": "true"}
	for _, setting := range info.Settings {
		if value, ok := want[setting.Key]; ok && value == setting.Value {
			delete(want, setting.Key)
		}
	}
	if len(want) > 0 {
		return fmt.Errorf("built without %v", want)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("program: %w", err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return fmt.Errorf("home: %w", err)
	}
	for _, dir := range []string{r.root + string(filepath.Separator), r.work, filepath.Join(home, "go") + string(filepath.Separator)} {
		if bytes.Contains(text, []byte(dir)) {
			return fmt.Errorf("the program names the folder %s", dir)
		}
	}
	if err := static(system, path); err != nil {
		return err
	}
	if target != runtime.GOOS+"/"+runtime.GOARCH {
		return nil
	}
	said, err := r.command(ctx, r.work, nil, path, "version", "-o", "json")
	if err == nil && (!strings.Contains(said, `"`+r.version+`"`) || !strings.Contains(said, `"`+r.revision+`"`)) {
		err = fmt.Errorf("duly version says %s, want version %s of %s", said, r.version, r.revision)
	}
	return err
}

// static fails for a program that wants libraries which the system need not have.
func static(system, path string) error {
	var libraries []string
	switch system {
	case "linux":
		f, err := elf.Open(path)
		if err != nil {
			return fmt.Errorf("program: %w", err)
		}
		defer f.Close()
		for _, part := range f.Progs {
			if part.Type == elf.PT_INTERP {
				return errors.New("the program asks for a dynamic linker")
			}
		}
	case "darwin":
		f, err := macho.Open(path)
		if err != nil {
			return fmt.Errorf("program: %w", err)
		}
		defer f.Close()
		if libraries, err = f.ImportedLibraries(); err != nil {
			return fmt.Errorf("libraries of the program: %w", err)
		}
	case "windows":
		f, err := pe.Open(path)
		if err != nil {
			return fmt.Errorf("program: %w", err)
		}
		defer f.Close()
		if libraries, err = f.ImportedLibraries(); err != nil {
			return fmt.Errorf("libraries of the program: %w", err)
		}
	}
	for _, library := range libraries {
		// macOS has no other way into its kernel, and its libraries are part of it.
		if !strings.HasPrefix(library, "/usr/lib/") && !strings.HasPrefix(library, "/System/Library/") && !strings.EqualFold(library, "kernel32.dll") {
			return fmt.Errorf("the program asks for the library %s", library)
		}
	}
	return nil
}
