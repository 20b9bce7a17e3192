package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// images are the tags that stand in the place of the published ones; empty ones
// are those of compose.yaml.
type images struct{ duly, before, nats, postgres string }

// builder makes programs and images.
type builder struct {
	root string // of the checkout
	bin  string // where the programs go
	tag  string // of the images
}

// program builds a static program, in the module at dir.
func (b builder) program(ctx context.Context, dir, pkg, name string) (string, error) {
	at := filepath.Join(b.bin, name)
	c := command{dir: dir, env: []string{"CGO_ENABLED=0"}}
	if _, err := c.run(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", at, pkg); err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	return at, nil
}

// offline makes all images of what is on this machine.
func (b builder) offline(ctx context.Context) (images, error) {
	var i images
	box, err := busybox()
	if err != nil {
		return i, err
	}
	postgres, err := postgresBin(ctx)
	if err != nil {
		return i, err
	}
	duly, err := b.program(ctx, b.root, "./cmd/duly", "duly")
	if err != nil {
		return i, err
	}
	drone, err := b.program(ctx, b.root, "./examples/drone/cmd/drone", "drone")
	if err != nil {
		return i, err
	}
	server, err := b.program(ctx, b.root, "github.com/nats-io/nats-server/v2", "nats-server")
	if err != nil {
		return i, err
	}
	i = images{duly: "duly-test:" + b.tag, nats: "duly-test-nats:" + b.tag, postgres: "duly-test-postgres:" + b.tag}
	return i, errors.Join(
		makeDuly(ctx, i.duly, duly, drone), makeNATS(ctx, i.nats, server, box), makePostgres(ctx, i.postgres, postgres, box))
}

// published builds the image of the Dockerfile; the others are pulled.
func (b builder) published(ctx context.Context) (images, error) {
	i := images{duly: "duly-test:" + b.tag}
	_, err := command{dir: b.root}.run(ctx, "docker", "build", "--tag", i.duly, ".")
	return i, err
}

// firstTables is what all tables begin with: a commit without it makes others, which are refused.
const firstTables = "schema/migrations/postgres/00100_init.sql"

// earlier makes the image of the commit before this one, or, where the checkout
// has changes, of the commit they were made to; of this commit where the one before has no
// tables that are migrated. The drone page stays this one's.
// Empty without an error: there is no such commit here.
func (b builder) earlier(ctx context.Context) (tag, commit string, err error) {
	git := command{dir: b.root}
	changed, err := git.run(ctx, "git", "status", "--porcelain")
	if err != nil {
		return "", "", nil //nolint:nilerr // not a checkout
	}
	revision := "HEAD~1"
	_, err = git.run(ctx, "git", "cat-file", "-e", revision+":"+firstTables)
	if strings.TrimSpace(changed) != "" || err != nil {
		revision = "HEAD"
	}
	commit, err = git.run(ctx, "git", "rev-parse", "--verify", "--quiet", "--short", revision+"^{commit}")
	if err != nil {
		return "", "", nil //nolint:nilerr // a shallow clone, or the first commit
	}
	// Not below this checkout, where linters would find it.
	source, err := os.MkdirTemp("", "duly-earlier-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(source)
	commit = strings.TrimSpace(commit)
	archive := filepath.Join(source, "archive.tar")
	if _, err := git.run(ctx, "git", "archive", "--output", archive, commit); err != nil {
		return "", "", err
	}
	if _, err := (command{}).run(ctx, "tar", "-xf", archive, "-C", source); err != nil {
		return "", "", err
	}
	duly, err := b.program(ctx, source, "./cmd/duly", "duly-earlier")
	if err != nil {
		return "", "", err
	}
	drone, err := b.program(ctx, b.root, "./examples/drone/cmd/drone", "drone")
	if err != nil {
		return "", "", err
	}
	tag = "duly-test-earlier:" + b.tag
	return tag, commit, makeDuly(ctx, tag, duly, drone)
}

// busybox finds a static one: the image has no C library.
func busybox() (string, error) {
	for _, at := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		if _, err := os.Stat(at); err != nil {
			continue
		}
		if said, err := (command{}).run(context.Background(), "ldd", at); err != nil || !strings.Contains(said, "=>") {
			return at, nil
		}
	}
	return "", errors.New("no static busybox: install busybox-static")
}

// postgresBin finds the newest PostgreSQL server of this machine.
func postgresBin(ctx context.Context) (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	if said, err := (command{}).run(ctx, "pg_config", "--bindir"); err == nil {
		found = append(found, strings.TrimSpace(said))
	}
	for _, bin := range slices.Backward(found) {
		if _, err := os.Stat(filepath.Join(bin, "initdb")); err == nil {
			return bin, nil
		}
	}
	return "", errors.New("no PostgreSQL server: scripts/deps says how to have one")
}
