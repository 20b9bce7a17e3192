package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// olderCommit is what the older binary of an upgrade is built from unless another is named: the commit that changed the
// tables last, and so the oldest that serves the present ones. A node refuses tables of any other version.
func olderCommit(ctx context.Context, root string) (string, error) {
	commit, err := output(ctx, root, "git", "log", "-1", "--format=%h", "--", "schema/migrations")
	if err == nil && commit == "" {
		err = errors.New("no commit changed schema/migrations")
	}
	return commit, err
}

// programs are the two binaries of an upgrade, and the servers'.
type programs struct {
	newer, older string // paths
	nats         string
	olderIs      string // in words
}

// natsPackage is the program of the NATS server, of the version that Duly embeds.
const natsPackage = "github.com/nats-io/nats-server/v2"

// build makes all binaries, the older one only where an upgrade is among the
// faults. Where the checkout has no earlier commit that can be built, it is the
// same code with another version.
func build(ctx context.Context, dir string, s *settings) (*programs, error) {
	mod, err := output(ctx, "", "go", "env", "GOMOD")
	if err != nil {
		return nil, err
	}
	root := filepath.Dir(mod)
	if filepath.Base(root) == "bench" { // run in the laboratory's own module
		root = filepath.Dir(root)
	}
	p := &programs{newer: filepath.Join(dir, "duly"), older: filepath.Join(dir, "duly-older"), nats: filepath.Join(dir, "nats-server")}
	if err := goBuild(ctx, root, p.newer, "chaos-newer"); err != nil {
		return nil, err
	}
	if _, err := output(ctx, root, "go", "build", "-trimpath", "-o", p.nats, natsPackage); err != nil {
		return nil, err
	}
	if !s.upgrades() {
		p.olderIs = "not needed"
		return p, nil
	}
	commit, why := s.older, error(nil)
	if commit == "" {
		commit, why = olderCommit(ctx, root)
	}
	if why == nil {
		why = buildCommit(ctx, root, dir, commit, p.older)
	}
	if why == nil {
		p.olderIs = "commit " + commit
		return p, nil
	}
	p.olderIs = fmt.Sprintf("this code with another version (commit %s: %v)", commit, why)
	return p, goBuild(ctx, root, p.older, "chaos-older")
}

func buildCommit(ctx context.Context, root, dir, commit, to string) error {
	archive := filepath.Join(dir, "older.tar")
	if _, err := output(ctx, root, "git", "archive", "--format=tar", "-o", archive, commit); err != nil {
		return err
	}
	src := filepath.Join(dir, "older")
	if err := os.MkdirAll(src, 0o755); err != nil {
		return fmt.Errorf("source of the older binary: %w", err)
	}
	if _, err := output(ctx, dir, "tar", "-xf", archive, "-C", src); err != nil {
		return err
	}
	return goBuild(ctx, src, to, "chaos-older")
}

func goBuild(ctx context.Context, root, to, version string) error {
	_, err := output(ctx, root, "go", "build", "-trimpath", "-ldflags", "-X main.version="+version, "-o", to, "./cmd/duly")
	return err
}

func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, args[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
