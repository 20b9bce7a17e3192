// The drone program runs the reference application on a Duly that is up: it
// stores the plan of a delivery, serves its five agents over mock services, and
// opens the HTTP face.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"duly.dev/duly"
	"duly.dev/duly/examples/drone"
)

// settings come from a flag, else the environment, else the default.
type settings struct {
	NATSURL string  `name:"nats-url" env:"NATS_URL" default:"nats://127.0.0.1:4222" help:"NATS server."`
	DulyURL string  `name:"duly-url" env:"DULY_URL" default:"http://127.0.0.1:7310" help:"Duly's HTTP API, for the state of deliveries."`
	Listen  string  `env:"DRONE_LISTEN,DULY_HTTP_ADDR" default:"127.0.0.1:8080" help:"Address of the HTTP face and of health."`
	Faults  string  `env:"DRONE_FAULTS" enum:"none,some,storm" default:"none" help:"What goes wrong: none, some or storm."`
	Seed    uint64  `env:"DRONE_SEED" default:"1" help:"Seed of latencies and faults."`
	Scale   float64 `env:"DRONE_SCALE" default:"1" help:"Factor on the published latencies; 0 for none."`
	Workers int     `env:"DRONE_WORKERS" default:"1024" help:"Calls at work at a time, per agent."`

	Namespace string `env:"DULY_NAMESPACE" default:"duly" help:"Namespace of the Duly to work with, as its nodes have it."`
}

func main() {
	var s settings
	kong.Parse(&s, kong.Name("drone"), kong.Description("The drone-delivery reference application on Duly."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, s, func(address string) {
		slog.Info("drone is up", "http", "http://"+address+"/api/deliveryrequests", "nats", withoutUser(s.NATSURL), "faults", s.Faults)
	})
	stop()
	if err != nil {
		slog.Error("drone stopped", "error", err)
		os.Exit(1)
	}
}

// run works until ctx ends and then finishes what is in hand. It tells the
// address of the HTTP face once that is open.
func run(ctx context.Context, s settings, up func(address string)) error {
	faults, err := drone.FaultsNamed(s.Faults)
	if err != nil {
		return err
	}
	services, err := drone.NewServices(drone.ServiceOptions{Seed: s.Seed, Scale: s.Scale, Faults: faults})
	if err != nil {
		return err
	}
	tamper, err := drone.NewTamper(s.Seed, faults)
	if err != nil {
		return err
	}
	agentConn, err := connect(s.NATSURL, "drone-agents", tamperOf(tamper, faults)...)
	if err != nil {
		return err
	}
	defer agentConn.Close()
	faceConn, err := connect(s.NATSURL, "delivery-requests")
	if err != nil {
		return err
	}
	defer faceConn.Close()

	workflow := drone.NewWorkflow(planOf(faults))
	agent, err := drone.NewAgent(agentConn, workflow, services, duly.Running(s.Workers), duly.Namespace(s.Namespace))
	if err != nil {
		return err
	}
	agentDoors, err := drone.NewDoors(agentConn, workflow, duly.Namespace(s.Namespace))
	if err != nil {
		return err
	}
	if err := workflow.Rescheduling.Serve(agent, agentDoors); err != nil {
		return err
	}
	face, err := newFace(faceConn, workflow, s)
	if err != nil {
		return err
	}
	if err := apply(ctx, faceConn, workflow, s.Namespace); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Listen)
	if err != nil {
		return fmt.Errorf("open the HTTP face: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return agent.Run(ctx) })
	group.Go(func() error { return serve(ctx, listener, drone.NewServer(s.Listen, withHealth(face, agentConn))) })
	up(listener.Addr().String())
	return group.Wait()
}

// planOf gives a plan with quick time-outs where time-outs are wanted. It is
// another version, because another content under version 1 would be refused.
func planOf(faults drone.Faults) drone.PlanOptions {
	if faults == drone.FaultsNone {
		return drone.PlanOptions{}
	}
	options := drone.QuickPlan()
	options.Version = 2
	return options
}

// tamperOf leaves the connection alone unless replies shall suffer: it cannot
// read along on TLS.
func tamperOf(t *drone.Tamper, faults drone.Faults) []nats.Option {
	if faults.Doubled+faults.Dropped == 0 {
		return nil
	}
	return []nats.Option{t.Option()}
}

func connect(url, name string, options ...nats.Option) (*nats.Conn, error) {
	options = append(options, nats.Name(name), nats.MaxReconnects(-1))
	nc, err := nats.Connect(url, options...)
	if err != nil {
		if wrong, ok := errors.AsType[*neturl.Error](err); ok {
			err = wrong.Err // its text has the whole address
		}
		return nil, fmt.Errorf("connect to NATS at %s: %w", withoutUser(url), err)
	}
	return nc, nil
}

// withoutUser leaves out of an address, or of a list of them, what may be a password.
func withoutUser(url string) string { return url[strings.LastIndexByte(url, '@')+1:] }

func newFace(nc *nats.Conn, w *drone.Workflow, s settings) (*drone.Face, error) {
	doors, err := drone.NewDoors(nc, w, duly.Namespace(s.Namespace))
	if err != nil {
		return nil, err
	}
	tasks, err := drone.NewHTTPTasks(s.DulyURL)
	if err != nil {
		return nil, err
	}
	return drone.NewFace(drone.FaceOptions{Doors: doors, Tasks: tasks}), nil
}

// withHealth answers container checks beside the face: alive while the process
// answers, ready while the agents and the face have NATS.
func withHealth(face http.Handler, agents *nats.Conn) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", face)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if !agents.IsConnected() {
			http.Error(w, "the agents have no connection to NATS", http.StatusServiceUnavailable)
			return
		}
		probe := r.Clone(r.Context())
		probe.URL.Path = "/api/probe"
		face.ServeHTTP(w, probe)
	})
	return mux
}

// apply waits for Duly to come up, within bounds: the two may be started together.
func apply(ctx context.Context, nc *nats.Conn, w *drone.Workflow, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client, err := duly.NewClient(nc, duly.Namespace(namespace))
	if err != nil {
		return err
	}
	return w.Apply(ctx, client)
}

// serve ends with ctx, after the requests in hand.
func serve(ctx context.Context, listener net.Listener, server *http.Server) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("HTTP face on %s: %w", server.Addr, err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := server.Shutdown(ctx)
	if closed := <-failed; !errors.Is(closed, http.ErrServerClosed) {
		err = errors.Join(err, closed)
	}
	return err
}
