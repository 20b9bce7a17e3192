package dev_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/dev"
	"duly.dev/duly/internal/config"
)

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

// world is a running system with a plain NATS connection to it: the tests in
// this package use nothing of Duly's own client library.
type world struct {
	t   *testing.T
	sys *dev.System
	nc  *nats.Conn
	js  nats.JetStreamContext
	url string // of the HTTP API
	dir string // of everything it stores
	log *addrLog
}

// addrLog finds in a node's log where it serves HTTP.
type addrLog struct {
	mu   sync.Mutex
	all  bytes.Buffer
	once sync.Once
	addr chan string
}

var addrLine = regexp.MustCompile(`msg="http is up".* addr=(\S+)`)

// Write implements io.Writer.
func (l *addrLog) Write(line []byte) (int, error) {
	if m := addrLine.FindSubmatch(line); m != nil {
		l.once.Do(func() { l.addr <- string(m[1]) })
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(line)
}

// tell shows the log of a test that failed.
func (l *addrLog) tell(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.Failed() {
		t.Logf("log:\n%s", l.all.String())
	}
}

func settings() config.Config {
	return config.Config{
		Roles: config.Roles, NodeName: "one", HTTPAddr: "127.0.0.1:0", Partitions: 4, Shards: 2, InFlight: 1024, AgentWindow: 512,
		ScanInterval: 50 * time.Millisecond, Lease: time.Second, Drain: 3 * time.Second,
		ReplyTo: []string{"_INBOX.", "_INBOX_shop.", "shop."}, StreamMaxAge: time.Hour, StreamMaxBytes: 256 << 20, StreamReplicas: 1,
	}
}

// start starts a system with all roles and waits until it is ready.
func start(t *testing.T) *world {
	t.Helper()
	return startWith(t, settings())
}

// startWith does it with a configuration of the test's own.
func startWith(t *testing.T, cfg config.Config) *world {
	t.Helper()
	return startIn(t, cfg, dev.StoreSQLite)
}

// startIn does it on a store as well.
func startIn(t *testing.T, cfg config.Config, store string) *world {
	t.Helper()
	log := &addrLog{addr: make(chan string, 1)}
	t.Cleanup(func() { log.tell(t) })
	dir := t.TempDir()
	sys, err := dev.Start(t.Context(), dev.Options{Dir: dir, Store: store, Config: cfg, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sys.Run(ctx) }()
	t.Cleanup(client.CloseIdleConnections)
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := sys.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	nc, err := nats.Connect(sys.NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, sys: sys, nc: nc, js: js, dir: dir, log: log}
	select {
	case addr := <-log.addr:
		w.url = "http://" + addr
	case <-time.After(patience):
		t.Fatal("http did not come up")
	}
	w.until("ready", func() bool { code, _ := w.http("GET", "/readyz", "", nil); return code == 200 })
	return w
}

// in is the world as a subtest sees it.
func (w *world) in(t *testing.T) *world {
	sub := *w
	sub.t = t
	return &sub
}

// until polls until ok; it fails the test when that takes too long.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			w.t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

var client = &http.Client{Timeout: patience}

// http makes one request.
func (w *world) http(method, path, body string, header map[string]string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// taskView is what the tests read of a task.
type taskView struct {
	ID     string
	State  string
	Reason string
	Steps  []struct {
		Name, Status, Error string
		Attempt, Code       int
		Result              json.RawMessage
	}
}

func (w *world) task(taskType, id string) (v taskView, found bool) {
	w.t.Helper()
	code, body := w.http("GET", "/v1/tasks/"+taskType+"/"+id, "", nil)
	if code == 404 || code == 503 { // a busy machine's store may not answer in its time; it is asked again
		return v, false
	}
	if err := json.Unmarshal([]byte(body), &v); err != nil || code != 200 {
		w.t.Fatalf("GET %s: %d %s", id, code, body)
	}
	return v, true
}

// ends waits for a task to come to a state, which must be its last one.
func (w *world) ends(taskType, id, state string) taskView {
	w.t.Helper()
	var v taskView
	w.until(taskType+" "+id+" ends", func() bool {
		var found bool
		v, found = w.task(taskType, id)
		return found && (v.State == "processed" || v.State == "undone" || v.State == "error")
	})
	if v.State != state {
		w.t.Fatalf("%s is %s, want %s: %+v", id, v.State, state, v)
	}
	return v
}

// apply stores a plan and returns the answer.
func (w *world) apply(spec string) string {
	w.t.Helper()
	msg, err := w.nc.Request("duly.plans.apply", []byte(spec), patience)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(msg.Data)
}

// plan stores a plan that must be taken.
func (w *world) plan(spec string) {
	w.t.Helper()
	if answer := w.apply(spec); !strings.Contains(answer, `"stored":true`) {
		w.t.Fatalf("plan not stored: %s", answer)
	}
}

// agent serves do and undo of an agent as any NATS program would.
func (w *world) agent(name string, do, undo nats.MsgHandler) {
	w.t.Helper()
	for subject, h := range map[string]nats.MsgHandler{"duly.do." + name: do, "duly.undo." + name: undo} {
		if h == nil {
			continue
		}
		if _, err := w.nc.QueueSubscribe(subject, "q", h); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.nc.Flush(); err != nil {
		w.t.Fatal(err)
	}
}

// answers responds always the same.
func answers(data string) nats.MsgHandler {
	return func(m *nats.Msg) {
		if err := m.Respond([]byte(data)); err != nil {
			panic(err)
		}
	}
}

// submit goes through the fast door and returns what it answers.
func (w *world) submit(taskType, id, input string, header nats.Header) string {
	w.t.Helper()
	msg, err := w.nc.RequestMsg(&nats.Msg{Subject: "duly.submit." + taskType + "." + id, Data: []byte(input), Header: header}, patience)
	if err != nil {
		w.t.Fatalf("submit %s %s: %v", taskType, id, err)
	}
	return string(msg.Data)
}

// accepted submits what must be accepted.
func (w *world) accepted(taskType, id, input string, header nats.Header) {
	w.t.Helper()
	if answer := w.submit(taskType, id, input, header); !strings.Contains(answer, `"seq":`) {
		w.t.Fatalf("submit %s %s: %s", taskType, id, answer)
	}
}
