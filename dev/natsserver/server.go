package natsserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"

	"duly.dev/duly/internal/disk"
)

// The defaults of Options.
const (
	DefaultHost       = "127.0.0.1"
	DefaultMaxPayload = 8 << 20
	DefaultReady      = 10 * time.Second
)

// ports that are not numbers of their own.
const (
	FreePort    = 0  // the system chooses; ClientURL tells
	DefaultPort = -1 // NATS's own, 4222
)

// lockName is the file in the store directory that says it is in use.
const lockName = "duly.lock"

// ErrInUse says that another server has the store directory.
var ErrInUse = errors.New("store directory is in use by another server")

// Options of Start.
type Options struct {
	Dir             string // store directory; required, made if absent
	Host            string // default DefaultHost
	Port            int    // FreePort, DefaultPort or a number
	HTTPMonitorPort int    // of /varz and /jsz; 0: none, -1: the system chooses
	MaxPayload      int    // bytes of the largest message; default DefaultMaxPayload
	MaxStore        int64  // bytes that streams may reserve; default three quarters of the disk that is free at the start
	Name            string // of the server; default "duly"
	// SyncOff lets the server write to disk behind the answer. Only for
	// measurements: an accepted task can then be lost with the power.
	SyncOff bool
	Cluster *Cluster      // nil: a server by itself
	Logger  *slog.Logger  // default: the server is silent
	Ready   time.Duration // how long Start waits for the server; default DefaultReady
}

// Cluster says which servers are one. Options.Name then tells them apart.
type Cluster struct {
	Name   string   // the same for all
	Port   int      // for the others to connect to, on Options.Host
	Routes []string // nats-route://host:port of the others; its own may be among them
}

// Server is one running server.
type Server struct {
	options Options // as started, with the port that was chosen
	dir     string
	lock    *flock.Flock

	mu     sync.Mutex // held while it is started again
	server *server.Server
}

// Start starts a server and returns when it takes connections. Errors: ErrInUse;
// the store directory cannot be made; the port is taken.
func Start(o Options) (*Server, error) {
	if o.Dir == "" {
		return nil, errors.New("nats server: no store directory")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("nats server: store directory %s: %w", o.Dir, err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("nats server: store directory %s: %w", dir, err)
	}
	lock := flock.New(filepath.Join(dir, lockName))
	held, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("nats server: lock on store directory %s: %w", dir, err)
	}
	if !held {
		return nil, fmt.Errorf("nats server: %w: %s", ErrInUse, dir)
	}
	s, err := start(o, dir)
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	if a, ok := s.Addr().(*net.TCPAddr); ok {
		o.Port = a.Port
	}
	return &Server{options: o, dir: dir, server: s, lock: lock}, nil
}

// Restart stops the server and starts it again at the same address with what it has
// stored: nothing else helps a stream that met a write error. Clients connect again by
// themselves. Where the start fails the server is down, and Restart may be called again.
// Not after Shutdown.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server.Shutdown()
	s.server.WaitForShutdown()
	again, err := start(s.options, s.dir)
	if err != nil {
		return err
	}
	s.server = again
	return nil
}

// roomLeast is how many bytes must be free on the disk for a start to help a stream that could not be written.
const roomLeast = 16 << 20

// HasRoom reports whether the server can be started again with room to write: on a full disk it would fail again, and
// reckon then that it may use nothing. It is true where that is not known.
func (s *Server) HasRoom() bool {
	free, _, known := disk.Room(s.dir)
	return !known || free >= roomLeast
}

// Cramped reports whether the streams are larger than what the server may use, and it might use more than twice that if it
// were started now: it reckons once, from what is free when it starts.
func (s *Server) Cramped() bool {
	free, _, known := disk.Room(s.dir)
	v, err := s.running().Varz(nil)
	if !known || err != nil || v.JetStream.Config == nil || v.JetStream.Stats == nil {
		return false
	}
	most, is := v.JetStream.Config.MaxStore, v.JetStream.Stats
	return uint64(most) < is.ReservedStore && most < (free+int64(is.Store))/4*3/2
}

func (s *Server) running() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server
}

func start(o Options, dir string) (*server.Server, error) {
	config, err := o.server(dir)
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(config)
	if err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	}
	failed := make(failures, 1)
	s.SetLogger(logger{to: o.Logger, failed: failed}, false, false)
	s.Start()
	if err := awaitReady(s, failed, cmp.Or(o.Ready, DefaultReady)); err != nil {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, fmt.Errorf("nats server at %s: %w", net.JoinHostPort(config.Host, strconv.Itoa(config.Port)), err)
	}
	return s, nil
}

// awaitReady polls in small steps so that a fatal error, a port that is taken
// for instance, is told at once and not after the whole wait.
func awaitReady(s *server.Server, failed failures, wait time.Duration) error {
	const step = 50 * time.Millisecond
	for waited := time.Duration(0); waited < wait; waited += step {
		if s.ReadyForConnections(step) {
			if !s.JetStreamEnabled() {
				return errors.New("JetStream did not start")
			}
			return nil
		}
		select {
		case why := <-failed:
			return errors.New(why)
		default:
		}
	}
	return fmt.Errorf("not ready after %v", wait)
}

// server translates the options.
func (o Options) server(dir string) (*server.Options, error) {
	if o.MaxPayload < 0 || o.MaxPayload > math.MaxInt32 {
		return nil, fmt.Errorf("nats server: max payload %d, want 1 to %d bytes", o.MaxPayload, math.MaxInt32)
	}
	port := o.Port
	switch port {
	case FreePort:
		port = server.RANDOM_PORT
	case DefaultPort:
		port = server.DEFAULT_PORT
	}
	payload := cmp.Or(o.MaxPayload, DefaultMaxPayload)
	// Pending must exceed payload, or a subscriber that waits for one largest
	// message counts as slow.
	pending := max(int64(server.MAX_PENDING_SIZE), 4*int64(payload))
	config := &server.Options{
		ServerName: cmp.Or(o.Name, "duly"),
		Host:       cmp.Or(o.Host, DefaultHost),
		Port:       port,
		HTTPHost:   cmp.Or(o.Host, DefaultHost),
		HTTPPort:   o.HTTPMonitorPort,
		MaxPayload: int32(payload),
		MaxPending: pending,
		JetStream:  true,
		StoreDir:   dir,

		JetStreamMaxStore: o.MaxStore,
		SyncAlways:        !o.SyncOff,
		// Most subjects here are used once: a reply's is the fence of its command.
		// The cache of matches would be filled and emptied for each.
		NoSublistCache: true,
		NoSigs:         true,
	}
	return config, o.Cluster.join(config)
}

// join makes a server one of a cluster.
func (c *Cluster) join(config *server.Options) error {
	if c == nil {
		return nil
	}
	if c.Name == "" || c.Port < 1 || c.Port > math.MaxUint16 {
		return fmt.Errorf("nats server: cluster %q at port %d, want a name and 1 to %d", c.Name, c.Port, math.MaxUint16)
	}
	config.Cluster = server.ClusterOpts{Name: c.Name, Host: config.Host, Port: c.Port}
	for _, r := range c.Routes {
		u, err := url.Parse(r)
		if err != nil || u.Host == "" {
			return fmt.Errorf("nats server: route %q, want nats-route://host:port", r)
		}
		config.Routes = append(config.Routes, u)
	}
	return nil
}

// ClientURL is where clients connect.
func (s *Server) ClientURL() string { return s.running().ClientURL() }

// MonitorURL is where the monitoring pages are, or empty.
func (s *Server) MonitorURL() string {
	if a := s.running().MonitorAddr(); a != nil {
		return "http://" + a.String()
	}
	return ""
}

// SyncAlways reports whether the server syncs every write before it answers.
func (s *Server) SyncAlways() bool {
	v, err := s.running().Varz(nil)
	return err == nil && v.JetStream.Config != nil && v.JetStream.Config.SyncAlways
}

// Shutdown stops the server, waits until it has, and gives the directory free.
// It may be called again.
func (s *Server) Shutdown() error {
	running := s.running()
	running.Shutdown()
	running.WaitForShutdown()
	if err := s.lock.Unlock(); err != nil {
		return fmt.Errorf("nats server: unlock of store directory: %w", err)
	}
	return nil
}

// failures carries the first fatal message of a starting server.
type failures chan string

// logger hands the server's log to slog.
type logger struct {
	to     *slog.Logger
	failed failures
}

func (l logger) log(level slog.Level, format string, v []any) {
	if l.to != nil && l.to.Enabled(context.Background(), level) {
		l.to.Log(context.Background(), level, fmt.Sprintf(format, v...), "from", "nats-server")
	}
}

func (l logger) Noticef(format string, v ...any) { l.log(slog.LevelDebug, format, v) }
func (l logger) Warnf(format string, v ...any)   { l.log(slog.LevelWarn, format, v) }
func (l logger) Errorf(format string, v ...any)  { l.log(slog.LevelError, format, v) }
func (l logger) Debugf(format string, v ...any)  { l.log(slog.LevelDebug-1, format, v) }
func (l logger) Tracef(format string, v ...any)  { l.log(slog.LevelDebug-2, format, v) }

// Fatalf does not end the process, as nats-server's own logger would.
func (l logger) Fatalf(format string, v ...any) {
	l.log(slog.LevelError, format, v)
	select {
	case l.failed <- fmt.Sprintf(format, v...):
	default: // the first one is kept
	}
}
