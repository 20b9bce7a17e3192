package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
			resp, err := http.Get(base + "/api/probe")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("probe: %s", resp.Status)
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
