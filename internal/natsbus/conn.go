package natsbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	neturl "net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/redact"
	"duly.dev/duly/internal/wire"
)

// The oldest server that Duly works with. In older ones compaction could lose synced messages when the power was cut, and a
// restart could change the creation time of a stream.
const (
	serverMajorMin = 2
	serverMinorMin = 15
)

// Defaults of Options.
const (
	defaultAckTimeout = 5 * time.Second
	defaultPacksMax   = 1024
)

const (
	connectTimeout = 2 * time.Second
	reconnectWait  = 100 * time.Millisecond
	reconnectDelay = 400 * time.Millisecond // the most jitter that is added to it
	drainTimeout   = 5 * time.Second
	pingInterval   = 10 * time.Second // a dead server is noticed within twice this
)

// Errors of Dial and of a connection.
var (
	ErrServerTooOld = errors.New("NATS server is too old")
	ErrNoJetStream  = errors.New("NATS server has no JetStream")
	ErrClosed       = errors.New("connection is closed")
)

// Options of Dial.
type Options struct {
	// URL is one address or more, separated by commas; default nats.DefaultURL.
	URL string
	// Name is how the server shows the connection.
	Name string
	// Context names a context of the nats command. The fields below win over it.
	Context string
	// CredentialsFile has a JWT and an nkey seed.
	CredentialsFile string
	// CAFile has the PEM certificates that the server's own is checked against.
	CAFile string
	// CertFile is the PEM certificate that this side shows, with its chain; KeyFile is its key.
	CertFile string
	KeyFile  string
	// InboxPrefix begins the subjects on which answers arrive. The default is the context's, or the
	// library's, or, if the user may not subscribe to those, wire.InboxOf the user.
	InboxPrefix string
	Logger      *slog.Logger // default slog.Default()
	// AckTimeout is how long a stream may take to confirm a message; default defaultAckTimeout.
	AckTimeout time.Duration
	Namespace  string // default DefaultNamespace
	// ReplyTo lists prefixes of the subjects that statuses may go to, and answers beside those in inboxes;
	// nil: wire.DefaultReplyPrefixes.
	ReplyTo []string
	// PacksMax bounds the packs of submissions that are not confirmed yet; default defaultPacksMax.
	PacksMax int
	// Report takes the outcome of what the connection retries for ever (TroubleReaders, TroubleWatch), nil
	// when it works; these are not logged. It must not block. It may be nil.
	Report func(trouble string, err error)
}

// Conn is a connection to NATS that speaks Duly's wire. Its methods may be
// called from any goroutine. Callbacks run on goroutines of the connection: one
// that blocks holds back its own subscription and nothing else. None runs after
// the Stop of its subscription, or Close, has returned.
type Conn struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	log     *slog.Logger
	names   wire.Names
	replyTo []string // prefixes; nil: wire.DefaultReplyPrefixes
	// own is whether Close closes nc too.
	own      bool
	closedCh chan struct{}
	acks     *acks
	// packs counts the packs that are not confirmed yet.
	packs    atomic.Int64
	packsMax int64
	// dropped counts messages that subscriptions, gone by now, had no room for; turnedAway those of them that
	// were requests.
	dropped    atomic.Int64
	turnedAway atomic.Int64

	// signer makes and checks reply tokens; nil until Setup.
	signer    atomic.Pointer[wire.Signer]
	forgeries atomic.Int64
	endBy     atomic.Pointer[time.Time] // see EndBy
	tries     tries

	// setting is held by a Setup, which may change streams.
	setting sync.Mutex
	// config is of the last Setup; nil: there was none.
	config atomic.Pointer[StreamConfig]
	// outcomes is how publishing goes, by the kind of stream.
	outcomes [allKinds]outcomes
	// watched is what Guard found.
	watched watched
	// away is since when there is no connection.
	away atomic.Pointer[time.Time]
	// refused is whether the log has the server's refusal of the credentials since the connection was lost.
	refused atomic.Bool

	mu      sync.Mutex
	subs    map[*Subscription]struct{}
	readers map[*Reader]struct{}
	buckets map[string]jetstream.KeyValue
	// answers is made when the first agent listens.
	answers *replier
	// instance is the name that replies give; it may be empty.
	instance string
	// variant is what agents of the connection listen as, dry whether they have no effects; see ServeAs.
	variant string
	dry     bool
	served  map[string]*Service
	denials []Denial
	// notified are submitters' subjects that statuses went to a short time ago.
	notified recentSubjects
	closed   bool

	unasked atomic.Bool // see errUnasked
	// unanswered counts answers that the agent's user may not publish.
	unanswered atomic.Int64
}

// Dial connects, waiting for a server that is not up yet until ctx ends, and
// stays connected until Close. Errors: ErrServerTooOld, ErrNoJetStream; the
// server's refusal of the credentials; ctx's, with the last reason.
func Dial(ctx context.Context, o Options) (*Conn, error) { return dialFor(ctx, o, true) }

// DialToAsk connects as Dial does, for a program that only sends requests to nodes: it needs neither
// JetStream nor the right to ask for it. Errors: the server's refusal of the credentials; ctx's, with the
// last reason.
func DialToAsk(ctx context.Context, o Options) (*Conn, error) { return dialFor(ctx, o, false) }

// dialFor connects a node, or a program that only asks. If the user may not subscribe to the library's
// inboxes and no prefix was set, it connects again with the user's own prefix, to which `duly
// nats-permissions` limits users. The library's inboxes are tried first, because agents with permissions that
// a person wrote may be able to answer only there.
func dialFor(ctx context.Context, o Options, node bool) (*Conn, error) {
	c, own, err := dialOnce(ctx, o, node)
	if errors.Is(err, ErrInbox) && own != "" {
		o.InboxPrefix = own
		c, _, err = dialOnce(ctx, o, node)
	}
	return c, err
}

// dialOnce is dialFor without the second try; own is the prefix to try then.
func dialOnce(ctx context.Context, o Options, node bool) (_ *Conn, own string, _ error) {
	c := newConn(o)
	c.own = true
	var err error
	if c.names, err = wire.NewNames(o.Namespace); err != nil {
		return nil, "", err
	}
	url, own, opts, err := c.options(o)
	if err != nil {
		return nil, "", err
	}
	if c.nc, err = connect(ctx, url, opts, c.log); err != nil {
		return nil, "", redact.Error(fmt.Errorf("nats at %s: %w", url, err))
	}
	if node && c.names.CheckAnswer(c.nc.NewInbox(), c.replyTo) != nil {
		err = fmt.Errorf("inbox prefix: %q is no prefix of subjects that requests are answered at; want _INBOX_<name>, or one of reply-to-prefixes", c.Inbox())
	} else if err = c.begin(); err == nil {
		if err = c.checkInbox(ctx); err == nil && node {
			err = c.checkServer(ctx)
		}
	}
	if err != nil {
		c.nc.Close()
		return nil, own, redact.Error(fmt.Errorf("nats at %s: %w", url, err))
	}
	if node {
		c.log.Info("connected to NATS", "url", c.nc.ConnectedUrlRedacted(), "version", c.nc.ConnectedServerVersion())
	}
	return c, own, nil
}

// Wrap speaks Duly's wire on a connection that the caller made and closes.
// It checks nothing: an agent needs neither JetStream nor the right to ask for
// it.
func Wrap(nc *nats.Conn, log *slog.Logger, names wire.Names) (*Conn, error) {
	c := newConn(Options{Logger: log})
	c.nc, c.names = nc, names
	c.listenForDenials()
	return c, c.begin()
}

// newConn makes the parts of a Conn that need no connection.
func newConn(o Options) *Conn {
	c := &Conn{log: o.Logger, replyTo: o.ReplyTo, closedCh: make(chan struct{}), packsMax: int64(o.PacksMax),
		subs: map[*Subscription]struct{}{}, readers: map[*Reader]struct{}{}, buckets: map[string]jetstream.KeyValue{}, served: map[string]*Service{},
		tries: tries{failed: map[string]map[any]error{}, report: o.Report}}
	if c.log == nil {
		c.log = slog.Default()
	}
	if c.packsMax <= 0 {
		c.packsMax = defaultPacksMax
	}
	timeout := o.AckTimeout
	if timeout <= 0 {
		timeout = defaultAckTimeout
	}
	c.acks = newAcks(timeout)
	return c
}

// begin makes the parts that need one.
func (c *Conn) begin() (err error) {
	c.acks.nc = c.nc
	c.js, err = jetstream.New(c.nc)
	return err
}

// userOf returns the user in the first of several addresses; empty: there is none.
func userOf(url string) string {
	first, _, _ := strings.Cut(url, ",")
	if at, err := neturl.Parse(first); err == nil && at.User != nil {
		return at.User.Username()
	}
	return ""
}

// options returns the address and the options for nats.go. own is the prefix of the user's own inboxes;
// empty: the user is not known, or a prefix was given.
func (c *Conn) options(o Options) (url, own string, opts []nats.Option, err error) {
	at, user, opts, err := loadContext(o.Context)
	if err != nil {
		return "", "", nil, err
	}
	url = cmp.Or(o.URL, at, nats.DefaultURL)
	if name := cmp.Or(userOf(url), user); o.InboxPrefix == "" && core.CheckName("user", name) == nil {
		var said nats.Options
		for _, set := range opts {
			if err := set(&said); err != nil {
				return "", "", nil, fmt.Errorf("nats context %s: %w", o.Context, err)
			}
		}
		if said.InboxPrefix == "" {
			own = wire.InboxOf(name)
		}
	}
	if o.CredentialsFile != "" {
		opts = append(opts, nats.UserCredentials(o.CredentialsFile))
	}
	// The library reads these files for each connection that it makes.
	if o.CAFile != "" {
		opts = append(opts, nats.RootCAs(o.CAFile))
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return "", "", nil, errors.New("nats-cert and nats-key go together: one is given, want both or none")
	}
	if o.CertFile != "" {
		opts = append(opts, nats.ClientCert(o.CertFile, o.KeyFile))
	}
	if o.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(o.InboxPrefix))
	}
	return url, own, append(opts,
		nats.Name(o.Name),
		nats.Timeout(connectTimeout),
		nats.MaxReconnects(-1),
		// Credentials that are refused, while they are rotated for instance, are tried
		// again for as long as it takes; the library gives up after the second time.
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectDelay, reconnectDelay),
		// While there is no server a publish fails at once. Kept for later it
		// would arrive when its caller has given up.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval),
		nats.DrainTimeout(drainTimeout),
		nats.DisconnectErrHandler(c.onDisconnect),
		nats.ReconnectHandler(c.onReconnect),
		nats.ClosedHandler(func(*nats.Conn) { close(c.closedCh) }),
		nats.ErrorHandler(c.onError),
	), nil
}

// connect tries until it succeeds, ctx ends, or the server refuses the credentials.
func connect(ctx context.Context, url string, opts []nats.Option, log *slog.Logger) (*nats.Conn, error) {
	wait := reconnectWait
	for logged := false; ; logged = true {
		nc, err := nats.Connect(url, opts...)
		if err == nil {
			return nc, nil
		}
		if credentialsRefused(err) || !retryable(err) {
			return nil, err
		}
		if !logged {
			log.Warn("waiting for NATS", "url", redact.Text(url), "error", redact.Error(err))
		}
		if ended := pause.For(ctx, wait); ended != nil {
			return nil, fmt.Errorf("%w: %w", ended, err)
		}
		wait = min(2*wait, 2*time.Second)
	}
}

// retryable reports whether an error means that the server is not there, rather than that the options cannot
// work.
func retryable(err error) bool {
	text := err.Error()
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrConnectionClosed) ||
		strings.Contains(text, "dial") || strings.Contains(text, "i/o") || strings.Contains(text, "EOF") || strings.Contains(text, "lookup")
}

// checkServer refuses a server that is too old or has no JetStream.
func (c *Conn) checkServer(ctx context.Context) error {
	version := c.nc.ConnectedServerVersion()
	if !newEnough(version) {
		return fmt.Errorf("%w: version %s, want %d.%d or newer: older ones can lose messages that they have confirmed when the power is cut", ErrServerTooOld, version, serverMajorMin, serverMinorMin)
	}
	ctx, end := c.UntilDenied(ctx, "$JS.API.INFO")
	_, err := c.js.AccountInfo(ctx)
	err = end(err)
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: version %s: %w", ErrNoJetStream, version, err)
	case err != nil:
		return fmt.Errorf("account: %w", err)
	}
	return nil
}

// newEnough compares the first two numbers of a version.
func newEnough(version string) bool {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	return err1 == nil && err2 == nil && (a > serverMajorMin || a == serverMajorMin && b >= serverMinorMin)
}

// NATS returns the connection itself.
func (c *Conn) NATS() *nats.Conn { return c.nc }

// Names returns the names of the installation.
func (c *Conn) Names() wire.Names { return c.names }

// MaxPayload returns the size of the largest message that the server takes.
func (c *Conn) MaxPayload() int { return int(c.nc.MaxPayload()) }

// Connected reports whether there is a server just now.
func (c *Conn) Connected() bool { return c.nc.IsConnected() }

// Dropped counts the messages that this connection's subscriptions had no room for. They are lost: if there
// are any, something here is too slow.
func (c *Conn) Dropped() int64 {
	lost, requests := c.drops()
	return lost + requests
}

// drops counts the messages that were lost, and apart from them the requests, which their senders repeat.
func (c *Conn) drops() (lost, requests int64) {
	lost, requests = c.dropped.Load(), c.turnedAway.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.subs {
		if s.asks {
			requests += s.drops()
		} else {
			lost += s.drops()
		}
	}
	return lost, requests
}

// Hears identifies a stretch without loss: it returns the same number as long as every message for this
// connection's subscriptions has arrived, requests aside. 0: nothing arrives, because there is no server.
func (c *Conn) Hears() int64 {
	if !c.Connected() {
		return 0
	}
	lost, _ := c.drops()
	return 1 + int64(c.nc.Stats().Reconnects) + lost
}

// Close stops what still runs, lets subscriptions finish what they have, and closes the connection if Dial
// made it. It must not be called from a callback.
func (c *Conn) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	readers, subs := keys(c.readers), keys(c.subs)
	c.mu.Unlock()
	for _, r := range readers {
		r.Stop()
	}
	for _, s := range subs {
		s.Stop()
	}
	c.acks.close()
	if c.answers != nil { // closed is set, so that none is made any more
		c.answers.close()
	}
	if !c.own {
		return
	}
	// Without a server nothing that is pending can leave, and Drain would wait for one.
	if !c.nc.IsConnected() || c.nc.Drain() != nil {
		c.nc.Close()
	}
	timer := time.NewTimer(c.patience(2 * drainTimeout))
	defer timer.Stop()
	select {
	case <-c.closedCh:
	case <-timer.C:
		c.nc.Close()
		<-c.closedCh
	}
}

// NameInstance sets the name that replies give for this instance; empty: none. Call it before the first agent
// listens.
func (c *Conn) NameInstance(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instance = core.CleanActor(name)
}

// ServeAs makes the connection's agents listen as a variant (see wire.VariantOf); empty: under their own
// names. With dry they have no effects: they say so, take only dos that are copies (wire.HeaderDryRun), and
// listen to nothing else. Call it before an agent is served.
func (c *Conn) ServeAs(variant string, dry bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.variant, c.dry = variant, dry
}

// isDry reports whether its agents have no effects.
func (c *Conn) isDry() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dry
}

// listensAs returns the name under which an agent listens. Error: the name is not valid.
func (c *Conn) listensAs(agent string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := core.CheckAgent(agent); err != nil || c.variant == "" {
		return agent, err
	}
	at := wire.VariantOf(agent, c.variant)
	return at, core.CheckAgent(at)
}

// replier returns the connection's replier; nil: the connection is closed.
func (c *Conn) replier() *replier {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers == nil && !c.closed {
		c.answers = newReplier(c.nc, c.instance, func(err error) { c.log.Warn("an agent's reply was not sent", "error", err) })
	}
	return c.answers
}

// onDisconnect runs once for each lost connection, not for each attempt to reconnect.
func (c *Conn) onDisconnect(_ *nats.Conn, err error) {
	now := time.Now()
	c.away.CompareAndSwap(nil, &now)
	// The confirmations under way are lost with the connection.
	c.acks.failAll(&BusyError{Retry: retryLater, Unknown: true, Err: nats.ErrDisconnected})
	if err != nil {
		c.log.Warn("lost the connection to NATS", "error", err)
	}
}

// onReconnect has everything looked at again that a new server, or a restarted one, may have changed.
func (c *Conn) onReconnect(nc *nats.Conn) {
	c.log.Info("connected to NATS again", "url", nc.ConnectedUrlRedacted())
	c.away.Store(nil)
	c.refused.Store(false)
	for i := range c.outcomes {
		c.outcomes[i].clear() // the server may be another one, or have been restarted
	}
	c.unasked.Store(false)
	c.mu.Lock()
	c.denials = nil // what is still denied was tried again, and is reported after this
	readers := keys(c.readers)
	c.mu.Unlock()
	for _, r := range readers {
		r.recheck()
	}
}

// onError logs what the library reports, except denials, which Denials returns.
func (c *Conn) onError(_ *nats.Conn, sub *nats.Subscription, err error) {
	if credentialsRefused(err) {
		if !c.refused.Swap(true) {
			c.log.Error("NATS refuses the credentials; trying again until it takes them", "error", err)
		}
		return
	}
	if c.denied(err) {
		c.log.Debug("NATS denies a right", "error", err) // users of Denials log it
		return
	}
	if sub == nil {
		c.log.Error("NATS reports an error", "error", err)
		return
	}
	dropped, _ := sub.Dropped() // of a subscription that is gone: 0
	c.log.Error("NATS reports an error", "subject", sub.Subject, "error", err, "dropped", dropped)
}

// credentialsRefused reports that the server does not accept the client's credentials.
func credentialsRefused(err error) bool {
	for _, refusal := range [...]error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// keys lists the keys of a map in no order.
func keys[K comparable](m map[K]struct{}) []K {
	list := make([]K, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	return list
}
