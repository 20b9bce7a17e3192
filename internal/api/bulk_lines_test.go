package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// TestBulkLines: a line is answered for each, in order; a bad one keeps none out.
func TestBulkLines(t *testing.T) {
	w, handler := world(t, nil)
	w.Warning = "tasks of its plan take 40s"
	server := httptest.NewServer(apitest.As(operate.RoleClient, handler))
	defer server.Close()
	body := strings.Join([]string{
		`{"type":"order","id":"m-1","input":{"cents":12345678901234567890},"complete_by":"30s","plan_version":"1"}`,
		`not json`, ``, `{"type":"order","input":1}`, `{"type":"nosuch","id":"m-2","input":1}`, `{"type":"order","id":"m-3","input":1,"extra":true}`, `{"type":"order"} {}`,
		`{"type":"order","id":"big","input":"` + strings.Repeat("x", core.InputBytesMax+9000) + `"}`, `{"type":"order","id":"m-4","input":{}}`,
		`{"type":"order","id":"m-5","input":{},"labels":{"tier":"gold","region":"eu"}}`, `{"type":"order","id":"m-6","input":{},"labels":{"tier":"gold,x=y"}}`,
		`{"type":"order","id":"m-7","input":{},"plan_version":1}`,
	}, "\n")
	resp, err := http.Post(server.URL+"/v1/tasks", "application/x-ndjson", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%d %v %s", resp.StatusCode, err, data)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	want := []string{`"line":1,"outcome":"stored","id":"m-1","type":"order","state":"pending","stream":"TASKS"`, `"line":2,"outcome":"refused","error"`, `line 3 is empty`, `"line":4,"outcome":"stored","id":"new-1"`, `"line":5,"outcome":"refused","id":"m-2","type":"nosuch","error"`,
		`unknown field \"extra\"`, `more than one JSON value`, `line 8 has more than`, `"warning":"tasks of its plan take 40s"}`, `"line":10,"outcome":"stored","id":"m-5"`, `want printable ASCII without a comma`, `labels: plan_version is of the kind number, want string`,
		fmt.Sprintf(`{"summary":{"lines":12,"stored":4,"existing":0,"refused":8,"failed":0,"bytes":%d}}`, len(body))}
	if len(lines) != len(want) {
		t.Fatalf("%d answers:\n%s", len(lines), data)
	}
	for i := range want {
		if !strings.Contains(lines[i], want[i]) {
			t.Errorf("answer %s, want %s", lines[i], want[i])
		}
	}
	if r := w.Submitted[0]; string(r.Input) != `{"cents":12345678901234567890}` || r.CompleteBy != "30s" || r.Version != "1" {
		t.Errorf("submitted %+v", r)
	}
	if r := w.Submitted[len(w.Submitted)-1]; r.ID != "m-5" || r.Labels != "region=eu,tier=gold" {
		t.Errorf("submitted %+v", r)
	}
	if got := ask(apitest.As(operate.RoleClient, handler), "POST", "/v1/tasks", `{}`); got.Code != 415 {
		t.Errorf("as JSON: %d %s", got.Code, got.Body)
	}
}

// TestBulkAsItComes: an answer does not wait for the lines that follow, and ten thousand lines pass in bounded room.
func TestBulkAsItComes(t *testing.T) {
	_, handler := world(t, nil)
	server := httptest.NewServer(apitest.As(operate.RoleClient, handler))
	defer server.Close()
	reader, writer := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/v1/tasks", reader)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answers := bufio.NewScanner(resp.Body)
	for i := range 3 {
		fmt.Fprintf(writer, "{\"type\":\"order\",\"id\":\"one-%d\",\"input\":1}\n", i)
		if !answers.Scan() || !strings.Contains(answers.Text(), fmt.Sprintf("one-%d", i)) {
			t.Fatalf("answer %q while the body is open, %v", answers.Text(), answers.Err())
		}
	}
	go func() {
		for i := range 10_000 {
			fmt.Fprintf(writer, "{\"type\":\"order\",\"id\":\"many-%d\",\"input\":1}\n", i)
		}
		writer.Close()
	}()
	n := 0
	for answers.Scan() {
		if n == 10_000 && strings.Contains(answers.Text(), `"summary"`) {
			break
		}
		if !strings.Contains(answers.Text(), fmt.Sprintf("\"many-%d\"", n)) {
			t.Fatalf("answer %d is %s", n, answers.Text())
		}
		n++
	}
	if n != 10_000 || answers.Err() != nil {
		t.Errorf("%d answers, %v", n, answers.Err())
	}
}
