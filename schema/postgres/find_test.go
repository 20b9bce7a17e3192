package postgres_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFindCockroach: the command that tests on a real CockroachDB takes the server
// it is given, else the program it is given, else the one on PATH, and where there
// is none it says so and passes nothing for tested. Nothing that is found here is
// started.
func TestFindCockroach(t *testing.T) {
	program := filepath.Join(t.TempDir(), "cockroach")
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	flat := filepath.Join(t.TempDir(), "cockroach")
	if err := os.WriteFile(flat, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const server = "postgres://root@db:26257/defaultdb"
	onPath := "PATH=" + filepath.Dir(program) + ":/usr/bin:/bin"
	for _, c := range []struct {
		name string
		env  []string
		code int
		want string
	}{
		{"nothing", nil, 2, "no CockroachDB found"},
		{"server", []string{"DULY_TEST_COCKROACH_URL=" + server}, 0, "url " + server},
		{"program", []string{"COCKROACH_BINARY=" + program}, 0, "binary " + program},
		{"path", []string{onPath}, 0, "binary " + program},
		{"server before program", []string{"DULY_TEST_COCKROACH_URL=" + server, "COCKROACH_BINARY=" + program, onPath}, 0, "url " + server},
		{"program before path", []string{"COCKROACH_BINARY=/bin/sh", onPath}, 0, "binary /bin/sh"},
		{"program that is not there", []string{"COCKROACH_BINARY=" + program + "x", onPath}, 2, "no program"},
		{"program that is a folder", []string{"COCKROACH_BINARY=" + filepath.Dir(program)}, 2, "no program"},
		{"program that cannot be run", []string{"COCKROACH_BINARY=" + flat}, 2, "no program"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("../../scripts/test-cockroach", "--find")
			cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, c.env...)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.want) {
				t.Errorf("exit %d, want %d: %q, want %q in it", code, c.code, out, c.want)
			}
		})
	}
	// Without --find as well: nothing found is no success.
	cmd := exec.Command("../../scripts/test-cockroach")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	if out, err := cmd.CombinedOutput(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("%v: %s", err, out)
	}
}
