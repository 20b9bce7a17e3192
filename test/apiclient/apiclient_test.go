package apiclient

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	_ "github.com/oapi-codegen/runtime" // the client that is made imports it

	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

const description = "../../docs/reference/openapi.json"

// TestGeneratedClient: a client made of the description calls each of its operations, and understands every answer.
func TestGeneratedClient(t *testing.T) {
	dir := t.TempDir()
	made := filepath.Join(dir, "client.gen.go")
	run(t, "go", "tool", "oapi-codegen", "-config", "testdata/config.yaml", "-o", made, description)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "testdata", "client", "client.gen.go"): made}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}

	world := apitest.New()
	second := world.Plan
	second.Version = 2
	world.Later = []core.Plan{second}
	world.Add("t-person", core.StatePending)
	person := &world.Tasks[len(world.Tasks)-1]
	person.Steps = append(person.Steps, core.StepView{Name: "approve", Kind: core.SignalStep, Status: core.StepRunning.String()})
	world.Tell(operate.Event{Type: "order", Task: "t-1", Status: core.StateProcessed, At: apitest.At})
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()
	world.Documents["alerts/channels/ops"] = []byte(`{"kind":"webhook","url":"` + receiver.URL + `"}`)
	if err := world.Deliver(); err != nil {
		t.Fatal(err)
	}
	var ports api.Ports
	handler, err := world.Handler(func(c *api.Config) {
		c.Ports.Forecaster = chances{}
		ports = c.Ports
	})
	if err != nil {
		t.Fatal(err)
	}
	a, err := auth.New(auth.Config{Mode: auth.Token, Tokens: world, Refuse: api.WriteRefusal, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ports.Live.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	token := world.Token(operate.RoleAdmin)
	seen := &seen{next: a.Middleware(handler)}
	server := httptest.NewServer(seen)
	defer server.Close()
	run(t, "go", "run", "-overlay", filepath.Join(dir, "overlay.json"), "./testdata/caller", server.URL, token)

	data, err := os.ReadFile(description)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	n := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			n++
			if !slices.ContainsFunc(seen.requests, func(r [2]string) bool { return r[0] == strings.ToUpper(method) && matches(path, r[1]) }) {
				t.Errorf("operation %s was not called", op.OperationID)
			}
		}
	}
	if n < 45 {
		t.Errorf("%d operations are described, want all", n)
	}
}

// chances is a forecast of a few tasks.
type chances struct{}

func (chances) Forecast(context.Context) (operate.Forecast, error) {
	return operate.Forecast{At: apitest.At, Tasks: operate.Count{N: 3}, Sampled: 3}, nil
}

// seen notes what is asked.
type seen struct {
	next     http.Handler
	mu       sync.Mutex
	requests [][2]string
}

func (s *seen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, [2]string{r.Method, r.URL.Path})
	s.mu.Unlock()
	s.next.ServeHTTP(w, r)
}

// matches reports whether a path is one of a template.
func matches(template, path string) bool {
	want, is := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(is) {
		return false
	}
	for i := range want {
		if want[i] != is[i] && !strings.HasPrefix(want[i], "{") {
			return false
		}
	}
	return true
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
