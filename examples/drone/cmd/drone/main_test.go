package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"duly.dev/duly/examples/drone"
)

// fakeDuly answers what the program asks of Duly before and at a submission.
func fakeDuly(t *testing.T, namespace string) (natsURL, httpURL string, submitted <-chan string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("NATS server does not come up")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ids := make(chan string, 10)
	for subject, handler := range map[string]nats.MsgHandler{
		namespace + ".plans.apply": func(m *nats.Msg) { _ = m.Respond([]byte(`{"name":"delivery","version":1,"stored":true}`)) },
		namespace + ".submit.delivery.*": func(m *nats.Msg) {
			id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
			_ = m.Respond(fmt.Appendf(nil, `{"stream":"DULY_TASKS","seq":1,"task":%q,"partition":0}`, id))
			ids <- id
		},
	} {
		if _, err := nc.Subscribe(subject, handler); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	tasks := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(tasks.Close)
	return s.ClientURL(), tasks.URL, ids
}

func TestRun(t *testing.T) {
	for faults, namespace := range map[string]string{"none": "duly", "storm": "prod"} {
		t.Run(faults, func(t *testing.T) {
			natsURL, httpURL, submitted := fakeDuly(t, namespace)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			address, stopped := make(chan string, 1), make(chan error, 1)
			go func() {
				s := settings{NATSURL: natsURL, DulyURL: httpURL, Listen: "127.0.0.1:0", Faults: faults, Seed: 1, Workers: 8, Namespace: namespace}
				stopped <- run(ctx, s, func(at string) { address <- at })
			}()
			var base string
			select {
			case at := <-address:
				base = "http://" + at
			case err := <-stopped:
				t.Fatalf("did not come up: %v", err)
			}
			request := drone.NewGenerator(1).Request(0)
			if status := post(t, base, request); status != http.StatusAccepted {
				t.Errorf("post: %d", status)
			}
			if id := <-submitted; id != request.DeliveryID {
				t.Errorf("submitted %s, want %s", id, request.DeliveryID)
			}
			for _, path := range []string{"/api/probe", "/readyz", "/healthz"} {
				if status := get(t, base+path); status != http.StatusOK {
					t.Errorf("%s: %d", path, status)
				}
			}
			http.DefaultClient.CloseIdleConnections()
			cancel()
			if err := <-stopped; err != nil {
				t.Errorf("stopped with %v", err)
			}
		})
	}
}

func post(t *testing.T, base string, request drone.Request) int {
	t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(base+"/api/deliveryrequests", "application/json", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func get(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// TestNotReadyWithoutNATS: a page whose agents lost their NATS lives, and is not
// ready.
func TestNotReadyWithoutNATS(t *testing.T) {
	natsURL, _, _ := fakeDuly(t, "duly")
	agents, err := nats.Connect(natsURL)
	if err != nil {
		t.Fatal(err)
	}
	face := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/probe" {
			http.NotFound(w, r)
		}
	})
	page := httptest.NewServer(withHealth(face, agents))
	defer page.Close()
	if status := get(t, page.URL+"/readyz"); status != http.StatusOK {
		t.Errorf("ready with NATS: %d", status)
	}
	agents.Close()
	if status := get(t, page.URL+"/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("ready without NATS: %d", status)
	}
	if status := get(t, page.URL+"/healthz"); status != http.StatusOK {
		t.Errorf("alive without NATS: %d", status)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestListens: the page opens where compose.yaml's health check asks.
func TestListens(t *testing.T) {
	for _, c := range []struct {
		name, env, value string
		args             []string
		want             string
	}{
		{"default", "", "", nil, "127.0.0.1:8080"},
		{"as every node", "DULY_HTTP_ADDR", ":7310", nil, ":7310"},
		{"its own name", "DRONE_LISTEN", ":81", nil, ":81"},
		{"a flag goes first", "DULY_HTTP_ADDR", ":7310", []string{"--listen=:82"}, ":82"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("DRONE_LISTEN", "")
			t.Setenv("DULY_HTTP_ADDR", "")
			os.Unsetenv("DRONE_LISTEN")
			os.Unsetenv("DULY_HTTP_ADDR")
			if c.env != "" {
				t.Setenv(c.env, c.value)
			}
			var s settings
			parser, err := kong.New(&s)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			if s.Listen != c.want {
				t.Errorf("listens at %q, want %q", s.Listen, c.want)
			}
		})
	}
}

func TestRunRefusesWhatCannotWork(t *testing.T) {
	natsURL, httpURL, _ := fakeDuly(t, "duly")
	good := settings{NATSURL: natsURL, DulyURL: httpURL, Listen: "127.0.0.1:0", Faults: "none"}
	for name, change := range map[string]func(*settings){
		"faults":  func(s *settings) { s.Faults = "lots" },
		"NATS":    func(s *settings) { s.NATSURL = "nats://127.0.0.1:1" },
		"Duly":    func(s *settings) { s.DulyURL = "nowhere" },
		"space":   func(s *settings) { s.Namespace = "Prod" },
		"address": func(s *settings) { s.Listen = "256.0.0.1:1" },
	} {
		s := good
		change(&s)
		if err := run(t.Context(), s, func(string) { t.Errorf("%s: came up", name) }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
