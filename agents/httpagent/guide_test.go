package httpagent

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// TestGuide: the file of the guide works against a service as the guide describes it.
func TestGuide(t *testing.T) {
	page, err := os.ReadFile("../../docs/guide/http-agent.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	file, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("the guide has no file")
	}
	var mu sync.Mutex
	charges := map[string]string{} // empty: deleted
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, has := charges[r.URL.Path]
		data, _ := io.ReadAll(r.Body)
		switch {
		case r.Header.Get("Authorization") != "Bearer s3cr3t":
			w.WriteHeader(401)
		case r.Method == http.MethodPut && has && body == "":
			w.WriteHeader(410)
		case r.Method == http.MethodPut:
			charges[r.URL.Path] = string(data)
			_, _ = w.Write([]byte(`{"id":"p-1"}`))
		case body == "":
			charges[r.URL.Path] = ""
			w.WriteHeader(404)
		case r.Method == http.MethodGet:
			_, _ = w.Write([]byte(`{"id":"p-1","state":"paid"}`))
		default:
			charges[r.URL.Path] = ""
			w.WriteHeader(204)
		}
	}, "", plain)
	secret := filepath.Join(t.TempDir(), "payments")
	if err := os.WriteFile(secret, []byte("s3cr3t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	served := strings.NewReplacer("https://payments.example.org/v1", w.server.URL+"/v1\n    allow: [127.0.0.1]", "/run/secrets/payments", secret).Replace(file)
	if served == file {
		t.Fatal("nothing was put in place of what the guide has")
	}
	w.serveFile(served)
	of := func(cmd core.Command) core.Command {
		cmd.Agent, cmd.Results = "payment.charge", []core.StepResult{{Step: "credit", Result: []byte(`{"customer":"c-1"}`)}}
		return cmd
	}
	w.want(of(undo()), 0, "") // of what was never made
	w.want(of(command()), 410, "")
	again := of(command())
	again.Round = 1
	for range 2 {
		w.want(again, 0, `{"id":"p-1"}`)
	}
	if got, want := charges["/v1/charges/order-17.charge.1"], `{"cents":1999,"customer":"c-1"}`; got != want {
		t.Errorf("the service got %s, want %s", got, want)
	}
	p, _, err := w.runtime.Probe(t.Context(), core.InstantOf(time.Now()), &again)
	if err != nil || p.Outcome != core.ProbeDone || string(p.Result) != `{"id":"p-1"}` {
		t.Errorf("probe: %+v %v, want the result of the do", p, err)
	}
	back := again
	back.Undo = true
	for range 2 {
		w.want(back, 0, "")
	}
	if p, _, err = w.runtime.Probe(t.Context(), core.InstantOf(time.Now()), &again); err != nil || p.Outcome != core.ProbeAbsent {
		t.Errorf("probe: %+v %v", p, err)
	}
}
