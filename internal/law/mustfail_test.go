package law

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMustFail compiles every file of the repository's testdata/mustfail alone.
// Each is a misuse of the public API that the compiler must refuse, with the
// errors that its `// want: …` lines name and with no other: a file that rots,
// because a name it uses is gone, does not pass for one that is refused.
func TestMustFail(t *testing.T) {
	root := repository(t)
	dir := filepath.Join(root, "testdata", "mustfail")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		t.Skip("no testdata/mustfail yet")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("%s holds no Go file: nothing is proved", dir)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			for _, problem := range mustFail(t, root, file) {
				t.Error(problem)
			}
		})
	}
}

// TestMustFailPlanted shows that the check above can fail.
func TestMustFailPlanted(t *testing.T) {
	root := repository(t)
	for name, want := range map[string]string{
		"refused.go":     "",
		"compiles.go":    "compiles, but must not",
		"other_error.go": "wanted error not seen",
		"more_errors.go": "unexpected error",
		"no_want.go":     "says no error to want",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(root, "internal", "law", "testdata", "mustfail", name)
			problems := mustFail(t, root, file)
			switch {
			case want == "" && len(problems) > 0:
				t.Errorf("got %q, want none", problems)
			case want != "" && !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, want) }):
				t.Errorf("got %q, want one with %q", problems, want)
			}
		})
	}
}

// errorLine is the compiler's file:line:column: message.
var errorLine = regexp.MustCompile(`^.*\.go:\d+:\d+: (.*)$`)

// mustFail compiles one file as package main and says what is wrong with the way
// it fails.
func mustFail(t *testing.T, root, file string) []string {
	t.Helper()
	wants, err := readWants(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(wants) == 0 {
		return []string{file + " says no error to want: add // want: <part of the message>"}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, file)
	build.Dir = root
	output, err := build.CombinedOutput()
	if err == nil {
		return []string{file + " compiles, but must not"}
	}
	var problems []string
	seen := make([]bool, len(wants))
	for line := range strings.Lines(string(output)) {
		match := errorLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if match == nil {
			continue
		}
		index := slices.IndexFunc(wants, func(want string) bool { return strings.Contains(match[1], want) })
		if index < 0 {
			problems = append(problems, "unexpected error: "+match[1])
			continue
		}
		seen[index] = true
	}
	for i, want := range wants {
		if !seen[i] {
			problems = append(problems, fmt.Sprintf("wanted error not seen: %q in\n%s", want, output))
		}
	}
	return problems
}

// readWants gives the texts of a file's want lines.
func readWants(name string) ([]string, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var wants []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if want, ok := strings.CutPrefix(lines.Text(), "// want: "); ok {
			wants = append(wants, strings.TrimSpace(want))
		}
	}
	return wants, lines.Err()
}
