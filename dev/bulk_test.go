package dev_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

const bulkPlan = `{"name":"bulk","version":1,"steps":[{"name":"only","agent":"bulk.only","undoable":false}]}`

// bulkLine is one answer of a bulk submission, the last one included.
type bulkLine struct {
	Line    int
	Outcome string
	ID      string
	Summary *struct{ Lines, Stored, Existing, Refused, Failed int }
}

// bulkLines are lines whose tasks begin in two hours.
func bulkLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"type\":\"bulk\",\"id\":\"bulk-%d\",\"input\":%d,\"start_at\":\"2h\"}\n", i, i)
	}
	return b.String()
}

// cut sends a part of a body, reads some answers and cuts the connection. It gives the last line that was answered.
func (w *world) cut(body string, sent, read int) (last int) {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body))
	from := bufio.NewReader(conn)
	if line, err := from.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
		w.t.Fatalf("%q %v, want 100 before anything is sent", line, err)
	}
	for line := "."; strings.TrimSpace(line) != ""; { // it may have headers
		if line, err = from.ReadString('\n'); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := io.WriteString(conn, body[:sent]); err != nil {
		w.t.Fatal(err)
	}
	resp, err := http.ReadResponse(from, nil)
	if err != nil || resp.StatusCode != 200 {
		w.t.Fatalf("%v %v", resp, err)
	}
	// The body is not closed: that would read it to its end.
	for answers := bufio.NewScanner(resp.Body); last < read && answers.Scan(); {
		var line bulkLine
		if err := json.Unmarshal(answers.Bytes(), &line); err != nil || line.Line != last+1 || line.Outcome != "stored" && line.Outcome != "existing" {
			w.t.Fatalf("answer %s after line %d: %v", answers.Text(), last, err)
		}
		last = line.Line
	}
	return last
}

// TestBulkIsCutAndSentAgain: a body whose connection is cut in the middle of a line, twice, and that is sent again, whole or
// from where it was answered, is each line once; what was answered is stored.
func TestBulkIsCutAndSentAgain(t *testing.T) {
	const n = 4_000
	w := start(t)
	w.plan(bulkPlan)
	body := bulkLines(n)
	first := w.cut(body, len(body)/3+5, n/5)
	second := w.cut(body, len(body)*2/3+5, n/2)
	if first != n/5 || second != n/2 {
		t.Fatalf("answered up to %d and %d", first, second)
	}
	for query, lines := range map[string]int{"": n, fmt.Sprintf("?from=%d", second+1): n - second} {
		code, answer := w.http("POST", "/v1/tasks"+query, body, map[string]string{"Content-Type": "application/x-ndjson"})
		all := strings.Split(strings.TrimSpace(answer), "\n")
		var last bulkLine
		err := json.Unmarshal([]byte(all[len(all)-1]), &last)
		if s := last.Summary; code != 200 || err != nil || s == nil || s.Lines != lines || s.Stored+s.Existing != lines || len(all) != lines+1 {
			t.Fatalf("%q: %d %s, %v", query, code, all[len(all)-1], err)
		}
	}
	w.until("each is a task", func() bool {
		_, counts := w.http("GET", "/v1/counts", "", nil)
		return strings.Contains(counts, fmt.Sprintf(`"tasks":%d}`, n))
	})
	for _, i := range []int{0, first - 1, second - 1, n - 1} {
		if v, found := w.task("bulk", fmt.Sprintf("bulk-%d", i)); !found || v.State != "pending" {
			t.Errorf("task %d: %+v", i, v)
		}
	}
}

// TestBulkNeedsTheRole: who may not submit one task may not submit many.
func TestBulkNeedsTheRole(t *testing.T) {
	cfg := settings()
	cfg.Auth = "token"
	w := startWith(t, cfg)
	code, answer := w.http("POST", "/v1/tasks", bulkLines(1), map[string]string{"Content-Type": "application/x-ndjson"})
	if code != 401 || !strings.Contains(answer, "token") {
		t.Errorf("%d %s", code, answer)
	}
}
