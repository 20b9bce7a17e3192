package dev_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestHTTP is the API of a running system.
//
// covers: C4, G7
func TestHTTP(t *testing.T) {
	w := start(t)
	w.plan(`{"name":"web","version":1,"grace_ms":50,"steps":[{"name":"only","agent":"web.only","undoable":true,"complete_by_ms":60000,"backoff_ms":20}]}`)
	held := make(chan *nats.Msg, 10)
	w.agent("web.only", func(m *nats.Msg) {
		if strings.Contains(string(m.Data), "hold") {
			held <- m
			return
		}
		answers(`{"ok":true}`)(m)
	}, answers(""))
	t.Run("put", func(t *testing.T) { httpPut(t, w.in(t)) })
	t.Run("post", func(t *testing.T) { httpPost(t, w.in(t)) })
	t.Run("delete", func(t *testing.T) { httpDelete(t, w.in(t), held) })
	t.Run("read", func(t *testing.T) { httpRead(t, w.in(t)) })
	t.Run("health", func(t *testing.T) {
		w := w.in(t)
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, body := w.http("GET", path, "", nil); code != 200 {
				t.Errorf("GET %s: %d %s", path, code, body)
			}
		}
	})
}

// acceptedBody is what a 202 says.
type acceptedBody struct {
	ID       string
	State    string
	Stream   string
	Position string `json:"stream_position"`
}

func accepted(t *testing.T, code int, body string) (a acceptedBody) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &a); err != nil || code != 202 || a.State != "pending" || a.Stream != "DULY_TASKS" || !strings.Contains(a.Position, ".") {
		t.Fatalf("%d %s, want 202 and a position", code, body)
	}
	return a
}

func httpPut(t *testing.T, w *world) {
	const path, input = "/v1/tasks/web/p1", `{"n":1}`
	code, body := w.http("PUT", path, input, nil)
	a := accepted(t, code, body)
	// With the position of the 202 a GET is never a 404.
	if code, body := w.http("GET", path+"?after="+a.Position, "", nil); code != 200 {
		t.Errorf("GET right after the 202: %d %s", code, body)
	}
	w.ends("web", "p1", "processed")
	if code, body := w.http("PUT", path, input, nil); code != 200 || !strings.Contains(body, `"state":"processed"`) {
		t.Errorf("PUT again: %d %s", code, body)
	}
	if code, body := w.http("PUT", path, `{"n":2}`, nil); code != 409 {
		t.Errorf("PUT with another input: %d %s", code, body)
	}
	for _, after := range []string{"x", "1", "99.1", "1.0"} {
		if code, body := w.http("GET", path+"?after="+after, "", nil); code != 400 || !strings.Contains(body, "after") {
			t.Errorf("GET ?after=%s: %d %s", after, code, body)
		}
	}
	if code, body := w.http("PATCH", path, "", nil); code != 405 {
		t.Errorf("PATCH: %d %s", code, body)
	}
	if code, _ := w.http("GET", "/v1/tasks/web/no-such", "", nil); code != 404 {
		t.Errorf("GET of an unknown task: %d", code)
	}
}

func httpPost(t *testing.T, w *world) {
	code, body := w.http("POST", "/v1/tasks/web", `{"n":1}`, nil)
	w.ends("web", accepted(t, code, body).ID, "processed")
	key := map[string]string{"Idempotency-Key": "an order, with spaces"}
	code, body = w.http("POST", "/v1/tasks/web", `{"n":2}`, key)
	first := accepted(t, code, body)
	code, body = w.http("POST", "/v1/tasks/web", `{"n":2}`, key)
	if code == http.StatusAccepted { // the door has not looked, or its owner had not read the first yet
		if again := accepted(t, code, body); again.ID != first.ID {
			t.Errorf("the same key made %s and %s", first.ID, again.ID)
		}
	} else if code != http.StatusOK || !strings.Contains(body, first.ID) {
		t.Errorf("the same key: %d %s, want the task %s", code, body, first.ID)
	}
	w.ends("web", first.ID, "processed")
	w.until("the door tells its state", func() bool {
		code, body = w.http("POST", "/v1/tasks/web", `{ "n" : 2 }`, key)
		return code == http.StatusOK && strings.Contains(body, `"state":"processed"`)
	})
}

func httpDelete(t *testing.T, w *world, held chan *nats.Msg) {
	code, body := w.http("PUT", "/v1/tasks/web/c1", `{"hold":1}`, nil)
	accepted(t, code, body)
	call := <-held
	code, body = w.http("DELETE", "/v1/tasks/web/c1?reason=changed", "", nil)
	if code != http.StatusAccepted || !strings.Contains(body, `"asked":"cancel"`) {
		t.Errorf("DELETE: %d %s", code, body)
	}
	w.until("it is undoing", func() bool { v, _ := w.task("web", "c1"); return v.State != "processing" })
	answers(`{"ok":true}`)(call) // it happened, so it is taken back
	w.ends("web", "c1", "undone")
	if code, body := w.http("DELETE", "/v1/tasks/web/p1", "", nil); code != 409 || !strings.Contains(body, "is processed") {
		t.Errorf("DELETE of what is processed: %d %s", code, body)
	}
	// A cancel that comes before its task takes the id, if that is asked for.
	for _, path := range []string{"/v1/tasks/web/c2", "/v1/tasks/nosuch/c2?even_if_unknown=true"} {
		if code, body := w.http("DELETE", path, "", nil); code != 404 {
			t.Errorf("DELETE of an unknown task: %d %s", code, body)
		}
	}
	if code, body := w.http("DELETE", "/v1/tasks/web/c2?even_if_unknown=true", "", nil); code != http.StatusAccepted {
		t.Errorf("DELETE before PUT: %d %s", code, body)
	}
	w.ends("web", "c2", "undone")
	if code, body := w.http("PUT", "/v1/tasks/web/c2", `{}`, nil); code != 409 || !strings.Contains(body, "cancelled") {
		t.Errorf("PUT after DELETE: %d %s", code, body)
	}
}

func httpRead(t *testing.T, w *world) {
	seen, after := map[string]bool{}, ""
	for {
		code, body := w.http("GET", "/v1/tasks?type=web&limit=2&after="+after, "", nil)
		var page struct {
			Tasks []taskView
			Next  string
		}
		if err := json.Unmarshal([]byte(body), &page); err != nil || code != 200 || len(page.Tasks) > 2 {
			t.Fatalf("list: %d %s", code, body)
		}
		for _, v := range page.Tasks {
			if seen[v.ID] {
				t.Errorf("%s is on two pages", v.ID)
			}
			seen[v.ID] = true
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(seen) != 5 || !seen["p1"] || !seen["c2"] {
		t.Errorf("listed %v, want 5 with p1 and c2", seen)
	}
	code, body := w.http("GET", "/v1/counts", "", nil)
	for _, want := range []string{`{"type":"web","state":"processed","tasks":3}`, `{"type":"web","state":"undone","tasks":2}`} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("counts: %d %s, want %s", code, body, want)
		}
	}
	for _, query := range []string{"limit=0", "limit=1001", "state=gone", "type=a%20b"} {
		if code, body := w.http("GET", "/v1/tasks?"+query, "", nil); code != 400 {
			t.Errorf("list ?%s: %d %s", query, code, body)
		}
	}
}

// TestSlowHeader: a client that never ends its header is not waited for.
//
// covers: inv12
func TestSlowHeader(t *testing.T) {
	w := start(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(15 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("the connection is open after 15 s: %v", err)
	}
}
