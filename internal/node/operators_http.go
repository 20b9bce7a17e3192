package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"duly.dev/duly/internal/alerts"
	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/console"
	"duly.dev/duly/internal/live"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/telemetry"
	"duly.dev/duly/internal/wire"
)

// operatorsHTTP is what a node serves to those who submit and operate.
type operatorsHTTP struct {
	node    *Node
	auth    *auth.Auth
	ports   api.Ports
	closing chan struct{} // closed when the server stops: what never ends by itself ends then

	connections *auth.Connections // of the server
}

// newOperatorsHTTP makes it. Error: a setting that cannot work, a file that cannot be read.
func (n *Node) newOperatorsHTTP() (*operatorsHTTP, error) {
	o := &operatorsHTTP{node: n, ports: n.ports(), closing: make(chan struct{}), connections: auth.NewConnections(connectionsFor(n.budget()))}
	o.ports.Live = live.New(live.Config{Reader: o.ports.Reader, Operations: n.store, Agents: o.ports.Agents, Pauses: o.ports.Pauses, Limits: o.ports.Limits, Troubles: n.troubles, Mark: markOf(n.store), Interval: n.cfg.LiveInterval, Log: n.log})
	c := auth.Config{Mode: auth.Mode(n.cfg.Auth), Tokens: n.store, Sessions: n.store, URL: n.cfg.URL, Refuse: api.WriteRefusal, Log: n.log}
	if c.Mode == "" {
		c.Mode = auth.Off
	}
	if c.Mode == auth.OIDC {
		secret := ""
		if n.cfg.OIDCSecretFile != "" {
			data, err := os.ReadFile(n.cfg.OIDCSecretFile)
			if err != nil {
				return nil, fmt.Errorf("oidc-client-secret-file: %w", err)
			}
			secret = strings.TrimSpace(string(data))
		}
		c.OIDC = auth.Provider{Issuer: n.cfg.OIDCIssuer, ClientID: n.cfg.OIDCClientID, Secret: secret, Claim: n.cfg.OIDCClaim, Groups: map[operate.Role][]string{
			operate.RoleViewer: n.cfg.OIDCViewers, operate.RoleOperator: n.cfg.OIDCOperators, operate.RoleAdmin: n.cfg.OIDCAdmins,
		}}
	}
	if n.cfg.ClientCA != "" {
		c.Certificates = auth.Certificates{operate.RoleClient: n.cfg.CertClients, operate.RoleViewer: n.cfg.CertViewers, operate.RoleOperator: n.cfg.CertOperators, operate.RoleAdmin: n.cfg.CertAdmins}
	}
	var err error
	o.auth, err = auth.New(c)
	return o, err
}

// ports are what of this node operators use, but for what needs requests about tasks.
func (n *Node) ports() api.Ports {
	store, desk := n.store, n.desk()
	return api.Ports{
		Reader: causeReader{store, newCauses(store, n.now)}, Trail: operate.Discreet{TrailReader: store}, Desk: desk,
		OperationStore: store, Tokens: store, Notes: store, Settings: store, Forecaster: n, Events: eventSource{n.conn}, AcceptLoss: n.acceptLoss, PutPlan: n.putPlan, Level: n.cfg.Level,
		Alerts: &alerts.Book{Store: store, Sender: n.Alerts}, Operations: n.repairs(n.agents), Agents: n.agents,
		Breakers: &operate.Breaking{Store: store, Desk: desk, Flow: store, Now: n.now, Announce: func() error {
			n.agents.Forget()
			return n.conn.AnnouncePauses()
		}},
		Pauses: &operate.Pausing{Store: store, Desk: desk, Flow: store, Announce: n.conn.AnnouncePauses, Now: n.now},
		Partitions: &operate.Partitioning{
			Flow: store, Desk: desk, Wishes: n.conn, Live: n.members.get, Now: n.now,
			Lags: func(ctx context.Context) (map[int]uint64, error) {
				lags, err := n.conn.Lags(ctx)
				pending := make(map[int]uint64, len(lags))
				for p, lag := range lags {
					pending[p] = lag.Pending
				}
				return pending, err
			},
			Chains: n.chains,
		},
		Limits:   &operate.Limiting{Store: store, Desk: desk, Plans: store.Plans, Announce: n.conn.AnnouncePauses, Now: n.now},
		Versions: &operate.Versioning{Store: store, Desk: desk, Plans: store.Plans, Announce: n.conn.AnnouncePlans, Now: n.now},
	}
}

// troubles are what does not hold on this node, as readiness has it.
func (n *Node) troubles() []operate.Trouble {
	failing := n.ground.Ready()
	all := make([]operate.Trouble, len(failing))
	for i, t := range failing {
		all[i] = operate.Trouble{Name: t.Name, Text: t.Text, Since: t.Since}
	}
	return all
}

// mount serves the API, and the pages for signing in. Other faces are mounted here, behind o.auth.Middleware.
func (o *operatorsHTTP) mount(mux *http.ServeMux) error {
	n := o.node
	asks, err := n.newRequests()
	if err != nil {
		return err
	}
	o.ports.Actions = api.NewActions(asks)
	o.ports.Books, o.ports.Schedules = n.bookkeeping(o.ports.Actions), n.scheduling()
	tasks := api.New(api.Config{Partitions: n.cfg.Partitions, PartitionOf: wire.PartitionOf, NewID: nuid.Next, StreamsMax: n.cfg.Streams, Ports: o.ports, Closing: o.closing, Now: n.now,
		BulkRequests: n.cfg.BulkRequests, BulkLines: n.cfg.BulkLines, BulkBytes: n.cfg.BulkBytes, BulkLineBytes: n.cfg.BulkLineBytes, BulkInFlight: n.cfg.BulkInFlight,
		BulkHeldBytes: n.cfg.BulkHeldBytes, BulkWait: n.cfg.BulkWait},
		n, doorReader{n.store, newCauses(n.store, n.now)}, asks, n.log)
	o.auth.Mount(mux)
	pages, err := n.newConsole(&o.ports, o.closing)
	if err != nil {
		return err
	}
	lists := o.auth.Middleware(o.connections.Keep(telemetry.Below(tasks)))
	mux.Handle("/", lists)
	base, pages := n.basePath(), o.auth.Middleware(o.connections.Keep(o.signedIn(telemetry.Below(pages))))
	mux.Handle(console.Path, pages)
	if base != "" {
		mux.Handle(base+console.Path, pages)
		mux.Handle("GET "+base+"/v1/", http.StripPrefix(base, lists)) // what pages export, and no change: see guard
	}
	mux.Handle("GET /{$}", o.auth.Middleware(console.Home(base, tasks)))
	return nil
}

// signedIn leads a browser without an actor to the page for signing in, and back.
func (o *operatorsHTTP) signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := operate.ActorFrom(r.Context()); !ok && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") {
			http.Redirect(w, r, o.auth.SignInURL(r.URL.RequestURI()), http.StatusSeeOther)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// run runs what the faces need until ctx ends.
func (o *operatorsHTTP) run(ctx context.Context) {
	_ = o.ports.Live.Run(ctx) // it ends with ctx only
}

// around is what every answer of the node passes, whatever its path.
func (n *Node) around(mux http.Handler, loopback bool) http.Handler {
	return auth.Headers(api.WithRequestID(guard(limited(n.requests.Around(mux)), loopback, n.cfg.Auth == "" || n.cfg.Auth == config.AuthOff, n.cfg.Hosts)))
}

// certificateLook is how often the files of a certificate are looked at, at most.
const certificateLook = 10 * time.Second

// reloaded is what was made of files, made again when they change. What cannot be read then leaves what was.
type reloaded[T any] struct {
	what   string   // it is, for errors
	files  []string // that tell a change by size and time
	load   func() (T, error)
	now    func() time.Time
	failed func(error)

	mu     sync.Mutex
	is     T
	looked time.Time
	stamp  string // of the files that it was read from
}

func newReloaded[T any](what string, files []string, load func() (T, error), now func() time.Time, failed func(error)) (*reloaded[T], error) {
	w := &reloaded[T]{what: what, files: files, load: load, now: now, failed: failed, looked: now()}
	return w, w.read()
}

// read reads the files if they have changed; mu is held, or nothing else knows w yet.
func (w *reloaded[T]) read() error {
	var stamp strings.Builder
	for _, file := range w.files {
		info, err := os.Stat(file)
		if err != nil {
			return fmt.Errorf("%s: %w", w.what, err)
		}
		fmt.Fprintf(&stamp, "%d %d ", info.Size(), info.ModTime().UnixNano())
	}
	if stamp.String() == w.stamp {
		return nil
	}
	is, err := w.load()
	if err != nil {
		return fmt.Errorf("%s: %w", w.what, err)
	}
	w.is, w.stamp = is, stamp.String()
	return nil
}

// get is what the files say now.
func (w *reloaded[T]) get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.now(); now.Sub(w.looked) >= certificateLook {
		w.looked = now
		if err := w.read(); err != nil {
			w.failed(err)
		}
	}
	return w.is
}

// certificate is that of HTTPS.
type certificate struct{ *reloaded[*tls.Certificate] }

// newCertificate reads it. Error: the files are no certificate and its key.
func newCertificate(certFile, keyFile string, now func() time.Time, failed func(error)) (*certificate, error) {
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("http-tls-cert %s, http-tls-key %s: %w", certFile, keyFile, err)
		}
		return &pair, nil
	}
	w, err := newReloaded("certificate of HTTPS", []string{certFile, keyFile}, load, now, failed)
	if err != nil {
		return nil, err
	}
	return &certificate{w}, nil
}

// get is tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.reloaded.get(), nil
}

// tlsConfig is how HTTPS is served; nil: it is not.
func (n *Node) tlsConfig() (*tls.Config, error) {
	if n.cfg.TLSCert == "" {
		return nil, nil
	}
	c, err := newCertificate(n.cfg.TLSCert, n.cfg.TLSKey, time.Now, func(err error) { n.log.Warn("the certificate of HTTPS stays as it was", "error", err) })
	if err != nil {
		return nil, err
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get, NextProtos: []string{"h2", "http/1.1"}}
	if n.cfg.ClientCA != "" {
		ca, err := newClientCAs(n.cfg.ClientCA, time.Now, func(err error) { n.log.Warn("the authorities of client certificates stay as they were", "error", err) })
		if err != nil {
			return nil, err
		}
		ca.ask(secure)
	}
	return secure, nil
}

// checkOpen refuses to serve everyone where that was not said: the address that is listened at counts, whatever its name
// was.
func (n *Node) checkOpen(loopback bool) error {
	if loopback || n.cfg.Insecure || n.cfg.Auth == config.AuthToken || n.cfg.Auth == config.AuthOIDC {
		return nil
	}
	return errors.New("http-addr: it can be reached from other machines, and auth is off: give --auth token or --auth oidc, or --insecure where every host of the network may do everything")
}
