package dronehttp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"duly.dev/duly"
	"duly.dev/duly/agents/httpagent"
	"duly.dev/duly/dev"
	"duly.dev/duly/examples/drone"
)

// No goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 90 * time.Second

// place is where one service listens; its books outlive it.
type place struct {
	t       *testing.T
	handler http.Handler
	addr    string
	server  *http.Server
	ended   chan error
}

// up starts the service, again at the address that it had.
func (p *place) up() {
	p.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.addr = listener.Addr().String()
	server := &http.Server{Handler: p.handler, ReadHeaderTimeout: patience}
	p.server, p.ended = server, make(chan error, 1)
	ended := p.ended
	go func() { ended <- server.Serve(listener) }()
}

// kill ends it in the middle of whatever it does.
func (p *place) kill() {
	_ = p.server.Close()
	<-p.ended
}

// world is a server with the five services behind HTTP.
type world struct {
	services *drone.Services
	places   [drone.StepCount]*place
	system   *dev.System
	flow     *drone.Workflow
	client   *duly.Client
	nc       *nats.Conn
}

func start(t *testing.T, faults drone.Faults) *world {
	t.Helper()
	w := &world{flow: drone.NewWorkflow(drone.QuickPlan())}
	var err error
	if w.services, err = drone.NewServices(drone.ServiceOptions{Seed: 1, Scale: 0.1, Faults: faults}); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("agents.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(file)
	for i := range w.places {
		p := &place{t: t, handler: NewService(w.services, drone.Step(i)), addr: "127.0.0.1:0"}
		if drone.Step(i) == drone.StepDelivery {
			p.handler = fussy(p.handler)
		}
		p.up()
		t.Cleanup(p.kill)
		w.places[i] = p
		text = strings.Replace(text, "127.0.0.1:920"+string(rune('1'+i)), p.addr, 1)
	}
	all, err := httpagent.Read("agents.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	w.serve(t)
	w.run(t, "agents", func(ctx context.Context) error { return all.Run(ctx, w.nc, duly.Drain(time.Second)) })
	if err := w.flow.Plan.Apply(t.Context(), w.client); err != nil {
		t.Fatal(err)
	}
	return w
}

// serve starts the server and connects a client.
func (w *world) serve(t *testing.T) {
	t.Helper()
	cfg := dev.Config("one", 4)
	cfg.ScanInterval, cfg.Lease = 100*time.Millisecond, time.Second
	var err error
	if w.system, err = dev.Start(t.Context(), dev.Options{Dir: t.TempDir(), Store: dev.StoreSQLite, Config: cfg, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.system.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if w.nc, err = nats.Connect(w.system.NATSURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.nc.Close)
	w.run(t, "server", w.system.Run)
	if w.client, err = duly.NewClient(w.nc); err != nil {
		t.Fatal(err)
	}
}

// run runs something until the test ends.
func (w *world) run(t *testing.T, name string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
}

// fussy refuses the deliveries whose id ends with a digit below 3, so that there is something to undo.
func fussy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if task, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/delivery/"), "/"); r.Method == http.MethodPut && strings.ContainsAny(task[len(task)-1:], "012") {
			http.Error(w, "no such address", http.StatusUnprocessableEntity)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// TestDeliveriesOverHTTP: deliveries by services that know nothing of Duly, which refuse, fail, hang and are killed in the
// middle, one after the other. What was done is undone, and the books of the services agree with Duly.
//
// covers: D4, E3, I2
func TestDeliveriesOverHTTP(t *testing.T) {
	const tasks = 200
	w := start(t, drone.Faults{Refused: 0.1, Transient: 0.05, TimedOut: 0.01, Silent: 0.01})
	requests := drone.NewGenerator(1)
	var mu sync.Mutex
	var ids []string
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < tasks; i = int(next.Add(1)) - 1 {
				r := requests.Request(i)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				_, err := w.flow.Plan.Submit(ctx, w.client, r.DeliveryID, r)
				cancel()
				if err != nil {
					t.Errorf("submit: %v", err)
					return
				}
				mu.Lock()
				ids = append(ids, r.DeliveryID)
				mu.Unlock()
			}
		})
	}
	for _, step := range []drone.Step{drone.StepDrone, drone.StepDelivery, drone.StepPackage} {
		w.reaches(t, step)
		w.places[step].kill()
		<-time.After(150 * time.Millisecond)
		w.places[step].up()
	}
	wg.Wait()
	w.ended(t, ids)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.services.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	audit, err := w.system.Node.Books(ctx)
	if err != nil {
		t.Fatal(err)
	}
	report := w.services.Books().Check(ids, drone.OutcomesOf(audit.States))
	if !report.Clean() || report.Accepted != tasks || report.Processed == 0 || report.Undone == 0 || report.Processed+report.Undone != tasks {
		t.Errorf("the books are not clean: %+v", report)
	}
	compared, err := w.system.CompareBooks(ctx, w.services.Books().ByAgent())
	if err != nil {
		t.Fatal(err)
	}
	if !compared.Closed {
		t.Errorf("the books are not closed: %v", compared.Kinds)
	}
	back := 0
	for _, id := range ids {
		if e := w.services.Books().Entry(id, drone.StepPackage); e.Applied > 0 && e.Live == 0 {
			back++
		}
	}
	if back < 10 {
		t.Errorf("%d packages were made and taken back, want 10 at least", back)
	}
	t.Logf("%d processed, %d undone, of which %d had packages", report.Processed, report.Undone, back)
}

// reaches waits until a service has been called some more.
func (w *world) reaches(t *testing.T, step drone.Step) {
	t.Helper()
	before := w.services.Service(step).Stats().Calls
	until(t, step.String()+" is called", func() bool { return w.services.Service(step).Stats().Calls >= before+10 })
}

// ended waits for the ends of all tasks.
func (w *world) ended(t *testing.T, ids []string) {
	t.Helper()
	until(t, "all tasks end", func() bool {
		n, err := w.system.Node.EndedTasks(t.Context())
		return err == nil && n >= len(ids)
	})
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

// TestServiceOverHTTP: 201, then 204; what was undone is not made again.
func TestServiceOverHTTP(t *testing.T) {
	services, err := drone.NewServices(drone.ServiceOptions{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, handler: NewService(services, drone.StepDrone), addr: "127.0.0.1:0"}
	p.up()
	defer p.kill()
	defer http.DefaultClient.CloseIdleConnections()
	made := ""
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/drone/t-1/drone/0", "", 404}, {"PUT", "/drone/t-1/drone/0", "", 201}, {"PUT", "/drone/t-1/drone/0", "", 204}, {"GET", "/drone/t-1/drone/0", "", 200},
		{"DELETE", "/drone/t-1/drone/0", "", 204}, {"DELETE", "/drone/t-1/drone/0", "", 204}, {"PUT", "/drone/t-1/drone/0", "", 410}, {"DELETE", "/drone/t-2/drone/0", "", 204},
		{"PUT", "/drone/t-2/drone/0", "", 410}, {"PUT", "/drone/x", "", 400}, {"PUT", "/drone/t-3/package/0", "", 400}, {"POST", "/drone/t-1/drone/0", "", 405},
		{"PUT", "/drone/t-4/drone/0", `{"drone":"kite"}`, 422}, {"PUT", "/drone/t-4/drone/0", `{"drone":"drone-1f"}`, 201},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+p.addr+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(resp.Body.Close()); err != nil || resp.StatusCode != c.status {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, resp.StatusCode, c.status)
		}
		if id := resp.Header.Get("Made"); id != "" && strings.Contains(c.path, "t-1") {
			if made != "" && id != made {
				t.Errorf("%s %s: made %s, want %s", c.method, c.path, id, made)
			}
			made = id
		}
	}
}
