package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/health"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/telemetry"
)

// HealthPaths are the paths every node answers, whatever its roles.
var HealthPaths = []string{"/healthz", "/readyz"}

// Times of the HTTP server: a slow client must not hold it up.
const (
	headerTimeout = 5 * time.Second
	readWriteMax  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	headerBytes   = 64 << 10
)

// Bounds of the connections of the HTTP server: an eighth of the node's memory, by what one takes that sends as long a header
// as it may.
const (
	connectionShare  = 8
	connectionBytes  = headerBytes
	connectionsLeast = 128
	connectionsMost  = 16 << 10
)

// connectionsFor is how many connections a node with that much memory has.
func connectionsFor(memory int64) int {
	return int(min(max(memory/connectionShare/connectionBytes, connectionsLeast), connectionsMost))
}

// serveHTTP serves health, and the API where the node runs ingest, until ctx
// ends.
func (n *Node) serveHTTP(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", n.cfg.HTTPAddr)
	if err != nil {
		return fmt.Errorf("http-addr %s: %w", n.cfg.HTTPAddr, err)
	}
	// The port may have been left to the system.
	n.log.Info("http is up", "addr", listener.Addr().String())
	n.listens <- listener.Addr().String()
	own, _ := listener.Addr().(*net.TCPAddr)
	loopback := own != nil && own.IP.IsLoopback()
	faces, err := n.newOperatorsHTTP()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	handler, err := n.handler(loopback, faces)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	secure, err := n.tlsConfig()
	if err = errors.Join(err, n.checkOpen(loopback)); err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: readWriteMax, WriteTimeout: readWriteMax,
		IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes, TLSConfig: secure, ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
	}
	faces.connections.Bound(server)
	server.RegisterOnShutdown(sync.OnceFunc(func() { close(faces.closing) }))
	var running sync.WaitGroup
	live, stopLive := context.WithCancel(ctx)
	defer running.Wait()
	defer stopLive()
	running.Go(func() { faces.run(live) })
	ended := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		bounded, cancel := n.ending(ctx, n.cfg.Drain)
		defer cancel()
		err := server.Shutdown(bounded)
		if errors.Is(err, context.DeadlineExceeded) {
			n.log.Info("requests are cut off by the end of the drain")
			err = server.Close()
		}
		ended <- err
	})
	defer stop()
	serve := func() error { return server.Serve(listener) }
	if secure != nil {
		serve = func() error { return server.ServeTLS(listener, "", "") }
	}
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http server: %w", err)
	}
	return <-ended
}

// handler serves everything; loopback says that only this machine reaches it. What every node serves, whatever its
// roles, is mounted here.
func (n *Node) handler(loopback bool, faces *operatorsHTTP) (http.Handler, error) {
	mux := http.NewServeMux()
	probes := health.Handler(standing{n.ground})
	for _, path := range HealthPaths {
		mux.Handle(path, probes)
	}
	mux.Handle("GET "+telemetry.PathMetrics, n.metrics())
	if n.cfg.Has(config.RoleIngest) {
		if err := faces.mount(mux); err != nil {
			return nil, err
		}
	}
	return n.around(mux, loopback), nil
}

// Submit implements api.Submitter: the door that is open now.
func (n *Node) Submit(req ingest.Request) {
	door := n.door.Load()
	if door == nil {
		req.Answer(ingest.Answer{Task: req.ID, Err: &ingest.Refusal{Code: 503, Description: say.Of("refuse.door-closed"), Retry: time.Second}})
		return
	}
	door.Submit(req)
}

// Late implements api.Submitter.
func (n *Node) Late(f *submit.Form) *ingest.Refusal {
	if door := n.door.Load(); door != nil {
		return door.Late(f)
	}
	return nil // Submit says that it is closed
}

// standing is health.Source: what the node's ground says.
type standing struct{ ground *ground.Ground }

// Ready implements health.Source.
func (s standing) Ready() []health.Failure { return failures(s.ground.Ready()) }

// Live implements health.Source.
func (s standing) Live() []health.Failure { return failures(s.ground.Live()) }

// Health gives the names of what does not hold: for /readyz, and for /healthz. Both are empty where all is well.
func (n *Node) Health() (unready, dead []string) {
	names := func(all []ground.Trouble) (names []string) {
		for _, t := range all {
			names = append(names, t.Name)
		}
		return names
	}
	return names(n.ground.Ready()), names(n.ground.Live())
}

func failures(troubles []ground.Trouble) []health.Failure {
	all := make([]health.Failure, len(troubles))
	for i, t := range troubles {
		all[i] = health.Failure{Name: t.Name, Key: t.Key, Text: t.Text, Reason: t.Reason.Error(), Since: t.Since, Times: t.Times}
	}
	return all
}
