package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"duly.dev/duly"
	"duly.dev/duly/internal/freeport"
)

// bulkCluster is a cluster with a plan whose tasks begin in two hours, and a node at an address of its own.
type bulkCluster struct {
	*cluster
	addr string
	node *child
}

func newBulkCluster(t *testing.T, begin func(*testing.T, ...string) *child) *bulkCluster {
	t.Helper()
	c := &bulkCluster{cluster: newCluster(t), addr: freeport.Addr(freeport.Of(t))}
	c.start(begin)
	client, err := duly.NewClient(c.nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := duly.NewPlan("later", 1, duly.NewCheck[int, int]("one", "later.one")).Apply(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *bulkCluster) start(begin func(*testing.T, ...string) *child) {
	c.t.Helper()
	c.node = begin(c.t, append(c.args("node", "ingest,scheduler,supervisor"), "--http-addr", c.addr)...)
	c.node.ready()
}

// tasks is how many there are.
func (c *bulkCluster) tasks() (n int64) {
	c.t.Helper()
	counts, err := c.store.Counts(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, count := range counts {
		n += count.Tasks
	}
	return n
}

func laterLine(id, input string) string {
	return fmt.Sprintf(`{"type":"later","id":%q,"input":%s,"start_at":"2h"}`, id, input)
}

func writeLines(t *testing.T, lines []string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "tasks.ndjson")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// bulkPlaceOf is how many lines of a file are answered, as the file beside it has it.
func bulkPlaceOf(file string) int64 {
	var p bulkPlace
	data, err := os.ReadFile(file + ".progress")
	if err != nil || json.Unmarshal(data, &p) != nil {
		return 0
	}
	return p.Lines
}

// TestSubmitFile: a file of 100,000 lines is stored whole, each line once, although the command is stopped in the middle
// and the node killed in the middle of the rest.
func TestSubmitFile(t *testing.T) {
	t.Parallel()
	const n = 100_000
	c := newBulkCluster(t, spawn)
	lines := make([]string, n)
	for i := range lines {
		lines[i] = laterLine(fmt.Sprintf("f-%d", i), fmt.Sprint(i))
	}
	file := writeLines(t, lines)
	args := []string{"submit", "--file", file, "--resume", "-o", "json", "-s", "http://" + c.addr}
	var out, errs bytes.Buffer
	submit := func(ctx context.Context, meanwhile func()) int {
		out.Reset()
		errs.Reset()
		code := make(chan int, 1)
		go func() { code <- run(ctx, args, streams{strings.NewReader(""), &out, &errs}) }()
		meanwhile()
		return <-code
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code := submit(ctx, func() {
		until(t, "a quarter is stored", func() bool { return bulkPlaceOf(file) > n/4 })
		cancel()
	})
	stopped := bulkPlaceOf(file)
	if code == exitDone || stopped >= n || !strings.Contains(errs.String(), "the same command goes on there") {
		t.Fatalf("exit %d at line %d: %s", code, stopped, errs.String())
	}
	code = submit(t.Context(), func() {
		until(t, "half is stored", func() bool { return bulkPlaceOf(file) > n/2 })
		c.node.kill()
		c.start(start)
	})
	var counts bulkCounts
	if err := json.Unmarshal(out.Bytes(), &counts); code != exitDone || err != nil {
		t.Fatalf("exit %d: %s%s%v", code, out.String(), errs.String(), err)
	}
	if counts.Lines != n || counts.Stored+counts.Existing != n {
		t.Errorf("%+v", counts)
	}
	if _, err := os.Stat(file + ".progress"); !os.IsNotExist(err) {
		t.Errorf("the place is still there: %v", err)
	}
	until(t, "all are tasks", func() bool { return c.tasks() >= n })
	if code := submit(t.Context(), func() {}); code != exitDone || !strings.Contains(out.String(), fmt.Sprintf(`"existing":%d`, n)) {
		t.Errorf("sent again: exit %d: %s%s", code, out.String(), errs.String())
	}
	if is := c.tasks(); is != n {
		t.Errorf("%d tasks of %d lines", is, n)
	}
	t.Logf("stopped at line %d; after the kill %+v", stopped, counts)
}

// TestSubmitFileOutcomes: lines that are not stored are said, kept as they were, and decide the exit status.
func TestSubmitFileOutcomes(t *testing.T) {
	t.Parallel()
	c := newBulkCluster(t, start)
	lines := []string{
		laterLine("o-1", "1"), `{"type":"later","id":"o-2","input":`, laterLine("o-3", "3"), `{"type":"nosuch","id":"o-4","input":1}`,
		laterLine("o-5", `"`+strings.Repeat("x", 300<<10)+`"`), laterLine("o-1", "2"), `{"type":"later","id":"o-7","input":7,"labels":{"a":"b"},"extra":1}`, laterLine("o-8", "8"),
	}
	file := writeLines(t, lines)
	failed := filepath.Join(t.TempDir(), "failed.ndjson")
	ask := func(args ...string) (int, string, string) {
		return command(t, "", append([]string{"submit", "-s", "http://" + c.addr}, args...)...)
	}
	code, out, errs := ask("--file", file, "--failed", failed)
	if code != exitFailed || out != "8 lines: 3 stored, 0 existed, 5 refused, 0 failed\n" {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	for _, want := range []string{"line 2 : refused: line 2 is not a JSON object", "line 4 o-4: refused: type \"nosuch\" is unknown", "line 5 : refused: line 5 has more than 270336 bytes, which is the limit", "line 6 o-1: refused: id \"o-1\" is a task already, with another input (409)", `unknown field "extra"`, "5 lines refused: they are in " + failed} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in %s", want, errs)
		}
	}
	data, err := os.ReadFile(failed)
	if err != nil || string(data) != strings.Join([]string{lines[1], lines[3], lines[4], lines[5], lines[6]}, "\n")+"\n" {
		t.Errorf("%.2000s %v", data, err)
	}
	if code, out, errs := ask("--file", writeLines(t, []string{laterLine("o-2", "2"), lines[0]})); code != exitDone || out != "2 lines: 1 stored, 1 existed, 0 refused, 0 failed\n" {
		t.Errorf("mended: exit %d: %s%s", code, out, errs)
	}
	for want, args := range map[string][]string{
		"want TYPE and ID, or --file FILE":     {},
		"go with --file":                       {"later", "x", "1", "--resume"},
		"stand in the lines of --file":         {"later", "--file", file},
		"as complete_by, start_at":             {"--file", file, "--complete-by", "1s"},
		"would not be encrypted":               {"--file", file, "--payload-keys", file},
		"is the file that is submitted":        {"--file", file, "--failed", file},
		"line 2 of .* has no id":               {"--file", writeLines(t, []string{lines[0], `{"type":"later","input":1}`})},
		"its first 1 lines have changed":       {"--file", otherPlace(t, file), "--resume"},
		"is not what an earlier run left":      {"--file", garbledPlace(t), "--resume"},
		"line 1 of .* has more than 4194304 b": {"--file", writeLines(t, []string{strings.Repeat("x", 5<<20)})},
	} {
		if code, _, errs := ask(args...); code != exitUse || !regexp.MustCompile(want).MatchString(errs) {
			t.Errorf("%v: exit %d: %s, want %s", args, code, errs, want)
		}
	}
	c.node.term()
	if code, _, errs := ask("--file", file, "--retry-for", "300ms"); code != exitUnreachable || !strings.Contains(errs, "nothing was taken for 300ms") {
		t.Errorf("no node: exit %d: %s", code, errs)
	}
}

// TestSubmitFileTriesLines: a line that may be taken later is tried again; one that is not taken for too long has failed, and
// those behind it are taken.
func TestSubmitFileTriesLines(t *testing.T) {
	t.Parallel()
	file := writeLines(t, []string{laterLine("o-1", "1"), laterLine("o-2", "2"), laterLine("o-3", "3")})
	for _, test := range []struct {
		fails int // requests in which line o-2 is not taken
		args  []string
		code  int
		want  string
	}{
		{2, nil, exitDone, "3 lines: 3 stored, 0 existed, 0 refused, 0 failed\n"},
		{2, []string{"--retry-for", "0s"}, exitUnreachable, "3 lines: 2 stored, 0 existed, 0 refused, 1 failed\n"},
	} {
		requests := 0
		node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests++
			lines := bufio.NewScanner(r.Body)
			for lines.Scan() {
				if strings.Contains(lines.Text(), `"o-2"`) && requests <= test.fails {
					fmt.Fprintln(w, `{"id":"o-2","outcome":"failed","error":{"status":503,"detail":"not decided"}}`)
				} else {
					fmt.Fprintln(w, `{"outcome":"stored"}`)
				}
			}
			fmt.Fprintln(w, `{"summary":{}}`)
		}))
		code, out, errs := command(t, "", append([]string{"submit", "--file", file, "-s", node.URL}, test.args...)...)
		node.Close()
		if code != test.code || out != test.want {
			t.Errorf("%v: exit %d: %s%s", test.args, code, out, errs)
		}
	}
}

// otherPlace is a file whose place is of another.
func otherPlace(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := bufio.NewReader(bytes.NewReader(data)).ReadLine()
	copied := writeLines(t, []string{string(line)})
	place := fmt.Sprintf(`{"lines":1,"bytes":%d,"sha256":"00"}`, len(line)+1)
	if err := os.WriteFile(copied+".progress", []byte(place), 0o600); err != nil {
		t.Fatal(err)
	}
	return copied
}

func garbledPlace(t *testing.T) string {
	t.Helper()
	file := writeLines(t, []string{laterLine("g-1", "1")})
	if err := os.WriteFile(file+".progress", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSubmitFileEnds: blanks after the last line are no line, and a node that answers none is not asked for ever.
func TestSubmitFileEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		end      string // of the file
		answers  bool
		requests int // at most
		code     int
		want     string
	}{
		{" \t ", true, 1, exitDone, "1 line: 1 stored"},
		{"", false, 2, exitUnreachable, "it answers no line after line 0"},
	} {
		file := filepath.Join(t.TempDir(), "tasks.ndjson")
		if err := os.WriteFile(file, []byte(laterLine("o-1", "1")+"\n"+test.end), 0o600); err != nil {
			t.Fatal(err)
		}
		requests := 0
		node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests++; requests > 5 {
				http.Error(w, "asked for ever", http.StatusGone)
				return
			}
			lines := bufio.NewScanner(r.Body)
			for lines.Scan() {
				if test.answers && len(bytes.TrimSpace(lines.Bytes())) > 0 {
					fmt.Fprintln(w, `{"outcome":"stored"}`)
				}
			}
			fmt.Fprintln(w, `{"summary":{}}`)
		}))
		code, out, errs := command(t, "", "submit", "--file", file, "--retry-for", "50ms", "-s", node.URL)
		node.Close()
		if code != test.code || requests > test.requests || !strings.Contains(out+errs, test.want) {
			t.Errorf("%+v: exit %d after %d requests: %s%s", test, code, requests, out, errs)
		}
	}
}
