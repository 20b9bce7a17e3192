package localpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// errNotInstalled says that the machine has no PostgreSQL server, and how it
// gets one.
var errNotInstalled = errors.New("no PostgreSQL server on this machine; install one: apt-get install -y postgresql")

// binaries is the directory of the server's programs.
type binaries string

func (b binaries) path(program string) string { return filepath.Join(string(b), program) }

// Version is that of the server which Start starts, such as 18.6.
func Version() (string, error) {
	bin, err := find()
	if err != nil {
		return "", err
	}
	out, err := exec.Command(bin.path("postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("version of PostgreSQL: %w", err)
	}
	_, version, _ := strings.Cut(strings.TrimSpace(string(out)), ") ") // postgres (PostgreSQL) 18.6
	version, _, _ = strings.Cut(version, " ")                          // what a packager adds to it
	return version, nil
}

// find looks where pg_config points, then where Debian puts the versions, newest
// first, then in PATH.
func find() (binaries, error) {
	var candidates []string
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		candidates = append(candidates, strings.TrimSpace(string(out)))
	}
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is well formed
	slices.SortFunc(versions, func(a, b string) int { return major(b) - major(a) })
	candidates = append(candidates, versions...)
	if initdb, err := exec.LookPath("initdb"); err == nil {
		candidates = append(candidates, filepath.Dir(initdb))
	}
	for _, dir := range candidates {
		if complete(dir) {
			return binaries(dir), nil
		}
	}
	return "", errNotInstalled
}

func complete(dir string) bool {
	for _, program := range []string{"initdb", "postgres", "psql"} {
		if info, err := os.Stat(filepath.Join(dir, program)); err != nil || info.IsDir() {
			return false
		}
	}
	return true
}

// major is the version in a path …/<version>/bin; 0 when it is no number.
func major(bin string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	if err != nil {
		return 0
	}
	return n
}
