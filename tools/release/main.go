// Command release builds what users download: for each target a static program in an archive with its licences, an SBOM
// beside it, and SHA256SUMS of all. It builds every program twice, the second time in another folder, and looks at
// everything that it made; it fails for what is not as it should be.
//
//	release -root DIR -out DIR [-version V] [-targets linux/amd64,…] [-cold]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// allTargets are the systems that a release has; tools/licences has the same.
var allTargets = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// program is the package that is released, and its name.
const (
	program     = "./cmd/duly"
	programName = "duly"
)

// release is one run.
type release struct {
	root, out string
	version   string
	revision  string    // of the source; empty where there is no git
	at        time.Time // of every file in the archives
	targets   []string
	cold      bool   // the second build of this machine's target shares no cache with the first
	work      string // a folder for what is not kept
}

func main() {
	var r release
	flag.StringVar(&r.root, "root", ".", "folder of the checkout")
	flag.StringVar(&r.out, "out", "bin/release", "folder for what is made; an earlier release in it is removed")
	flag.StringVar(&r.version, "version", "", "version to stamp (default: the newest of CHANGELOG.md, with -dev while it is unreleased)")
	targets := flag.String("targets", strings.Join(allTargets, ","), "targets, or native")
	flag.BoolVar(&r.cold, "cold", false, "build this machine's target the second time without a cache: minutes")
	flag.Parse()
	r.targets = strings.Split(strings.Replace(*targets, "native", runtime.GOOS+"/"+runtime.GOARCH, 1), ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := r.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (r *release) run(ctx context.Context) (err error) {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "duly-release-"); err != nil {
		return fmt.Errorf("working folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	other, err := r.copySource(ctx)
	if err != nil {
		return err
	}
	if err := r.licences(ctx); err != nil {
		return err
	}
	for _, target := range r.targets {
		began := time.Now()
		if err := r.one(ctx, target, other); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		fmt.Printf("release: %s (%.0fs)\n", target, time.Since(began).Seconds())
	}
	if err := r.sums(); err != nil {
		return err
	}
	if err := r.verify(); err != nil {
		return err
	}
	fmt.Printf("release: %s, %d targets in %s\n", r.version, len(r.targets), r.out)
	return nil
}

// one makes and looks at all of one target.
func (r *release) one(ctx context.Context, target, other string) error {
	first := filepath.Join(r.work, "first", r.name(target), executable(target))
	second := filepath.Join(r.work, "second", r.name(target), executable(target))
	if err := r.build(ctx, r.root, target, first, ""); err != nil {
		return err
	}
	cache := ""
	if r.cold && target == runtime.GOOS+"/"+runtime.GOARCH {
		cache = filepath.Join(r.work, "cache")
	}
	if err := r.build(ctx, other, target, second, cache); err != nil {
		return err
	}
	if err := same(first, second); err != nil {
		return err
	}
	if err := r.inspect(ctx, target, first); err != nil {
		return err
	}
	if err := r.sbom(ctx, target, first); err != nil {
		return err
	}
	to, once := filepath.Join(r.out, r.archiveName(target)), filepath.Join(r.work, r.archiveName(target))
	if err := errors.Join(r.archive(target, first, to), r.archive(target, second, once)); err != nil {
		return err
	}
	return errors.Join(same(to, once), os.Remove(once))
}

// prepare makes the paths absolute, empties the folder of what is made, and finds out version, revision and time.
func (r *release) prepare(ctx context.Context) (err error) {
	for _, dir := range []*string{&r.root, &r.out} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return fmt.Errorf("folder: %w", err)
		}
	}
	for _, target := range r.targets {
		if !slices.Contains(allTargets, target) {
			return fmt.Errorf("target %q, want one of %s", target, strings.Join(allTargets, ", "))
		}
	}
	if err := empty(r.out); err != nil {
		return err
	}
	if r.version == "" {
		if r.version, err = newest(filepath.Join(r.root, "CHANGELOG.md")); err != nil {
			return err
		}
	}
	said, err := r.command(ctx, r.root, nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	var seconds int64
	if _, err := fmt.Sscanf(said, "%s %d", &r.revision, &seconds); err != nil {
		return fmt.Errorf("git log: %q: %w", said, err)
	}
	r.at = time.Unix(seconds, 0).UTC()
	changed, err := r.command(ctx, r.root, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if strings.TrimSpace(changed) != "" {
		r.revision += "-dirty"
	}
	return nil
}

// empty makes a folder, or removes what an earlier run has left in it, and nothing else.
func empty(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("folder: %w", err)
	}
	for _, entry := range entries {
		if name := entry.Name(); name != sumsName && !strings.HasPrefix(name, programName+"_") {
			return fmt.Errorf("folder %s has %s, which is of no release", dir, name)
		}
	}
	for _, entry := range entries {
		if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("empty the folder: %w", err)
		}
	}
	return nil
}

var heading = regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\](.*)$`)

// newest is the version of the first heading of a changelog.
func newest(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("changelog: %w", err)
	}
	m := heading.FindSubmatch(text)
	if m == nil {
		return "", errors.New("changelog: no heading with a version")
	}
	if strings.Contains(string(m[2]), "unreleased") {
		return string(m[1]) + "-dev", nil
	}
	return string(m[1]), nil
}

// command runs a program; its error has what it said.
func (r *release) command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return string(out), nil
}
