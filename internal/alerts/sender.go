package alerts

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/redact"
	"duly.dev/duly/internal/say"
)

// Defaults of Config.
const (
	defaultRetryFor = 10 * time.Minute
	defaultLook     = 10 * time.Second
)

const (
	backoffFirst = time.Second
	backoffMost  = time.Minute
	leadEvery    = time.Second     // between two looks whether this sender leads
	workingEvery = 2 * time.Second // between two words that an alert is still being delivered
	saveMax      = 2 * time.Second // how long the store may take for the state
	textMax      = 512             // bytes of a failure that is shown
)

// Message is an alert of the stream. Until Done is called it comes again, to this sender or to the next one.
type Message struct {
	Alert   core.Alert
	Done    func() error
	Working func() error // it is still being delivered
}

// Source is where alerts come from: those that are not done, also of the time when there was no sender.
type Source interface {
	// Read calls take with each until ctx ends (nil) or reading fails. At most InFlightMost are handed out that are not done.
	Read(ctx context.Context, take func(Message)) error
}

// Config is what a sender works with. Store, Source and Leads are required.
type Config struct {
	Store     operate.SettingStore // has the channels and the state
	Source    Source
	Leads     func() bool                         // whether this sender is the one that delivers now
	Live      func() (nodes []string, known bool) // the nodes that live; nil: not known
	Namespace string                              // of the installation, told to receivers
	Report    func(err error)                     // takes what keeps alerts from being delivered, nil when nothing does; may be nil
	Log       *slog.Logger                        // default slog.Default()
	RetryFor  time.Duration                       // how long a channel is tried for one alert; default defaultRetryFor
	Look      time.Duration                       // between two looks at the channels and the live nodes; default defaultLook

	AllowLocal bool           // alerts may go to loopback and link-local addresses
	SecretsDir string         // of the files that channels may name, and of nothing else; empty: they may name none
	Roots      *x509.CertPool // of receivers; nil: the system's
}

// Sender delivers alerts. Its methods may be called from any goroutine.
type Sender struct {
	cfg    Config
	client *http.Client
	counts map[string]*counts // by kind of channel

	mu       sync.Mutex
	channels map[string]*ChannelState
}

type counts struct{ sent, failed atomic.Int64 }

// Count is how many alerts the channels of a kind have taken, and how many they were given up for.
type Count struct {
	Kind         string
	Sent, Failed int64
}

// ChannelState is how a channel does, as this sender knows.
type ChannelState struct {
	Name   string    `json:"name"`
	Kind   string    `json:"kind"`
	Sent   int64     `json:"sent"`            // since this sender leads
	Failed int64     `json:"failed"`          // alerts that were given up
	Error  string    `json:"error,omitempty"` // of the newest try, if it failed, or of its document
	At     time.Time `json:"at,omitzero"`     // of the newest try
}

// New makes a sender. It does nothing until Run or Test.
func New(cfg Config) (*Sender, error) {
	if cfg.Store == nil || cfg.Source == nil || cfg.Leads == nil {
		return nil, errors.New("alerts: store, source and leads are required")
	}
	cfg.RetryFor = cmp.Or(cfg.RetryFor, defaultRetryFor)
	cfg.Look = cmp.Or(cfg.Look, defaultLook)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Report == nil {
		cfg.Report = func(error) {}
	}
	s := &Sender{cfg: cfg, client: httpClient(cfg.AllowLocal, cfg.Roots), counts: map[string]*counts{}, channels: map[string]*ChannelState{}}
	for _, kind := range []string{kindWebhook, kindEmail} {
		s.counts[kind] = &counts{}
	}
	return s, nil
}

// Counts are the totals of this sender, by kind of channel.
func (s *Sender) Counts() []Count {
	var all []Count
	for _, kind := range slices.Sorted(maps.Keys(s.counts)) {
		all = append(all, Count{kind, s.counts[kind].sent.Load(), s.counts[kind].failed.Load()})
	}
	return all
}

// Channels are the channels as this sender last saw them; none where it has never led.
func (s *Sender) Channels() []ChannelState {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []ChannelState
	for _, name := range slices.Sorted(maps.Keys(s.channels)) {
		all = append(all, *s.channels[name])
	}
	return all
}

// Test sends a test alert through a channel as it is stored, once, whatever the channel wants to hear, and returns what
// became of it. Error: core.ErrNotFound.
func (s *Sender) Test(ctx context.Context, channel string) error {
	document, err := s.cfg.Store.Setting(ctx, ChannelPrefix+channel)
	if err != nil {
		return fmt.Errorf("channel %s: %w", core.QuoteShort(channel), err)
	}
	c, err := parseChannel(channel, document)
	if err != nil {
		return err
	}
	a := core.Alert{ID: "test-" + rand.Text(), Name: "test", Node: "operator", Phase: core.AlertOnce, Severity: core.SeverityInfo,
		Text: say.Of("alert.trial", "channel", channel), At: core.InstantOf(time.Now()), Times: 1}
	err = s.try(ctx, &c, &a)
	s.tried(&c, err)
	if err != nil {
		return fmt.Errorf("channel %s: %w", channel, redact.Error(err))
	}
	return nil
}

// try sends an alert through a channel once.
func (s *Sender) try(ctx context.Context, c *Channel, a *core.Alert) error {
	clean := cleaned(a)
	secret, err := s.secret(ctx, c)
	if err != nil {
		return err
	}
	if c.Kind == kindEmail {
		err = s.mail(ctx, c, secret, &clean)
	} else {
		err = s.post(ctx, c, secret, &clean)
	}
	return redact.Of(strings.Fields(secret)...).Error(err) // a receiver may repeat it
}

// cleaned is an alert as it may leave: without secrets in its texts, and within its limits.
func cleaned(a *core.Alert) core.Alert {
	out := *a
	out.Text, out.Error, out.Attrs = redact.Text(a.Text), redact.Text(a.Error), slices.Clone(a.Attrs)
	for i := range out.Attrs {
		out.Attrs[i].Value = redact.Text(out.Attrs[i].Value)
	}
	return out.Short() // a secret that is cut is not seen for one
}

// tried notes how a channel does.
func (s *Sender) tried(c *Channel, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.channels[c.Name]
	if st == nil {
		st = &ChannelState{Name: c.Name, Kind: c.Kind}
		s.channels[c.Name] = st
	}
	st.Error, st.At = "", time.Now()
	if err != nil {
		st.Error = core.ShortText(redact.Text(err.Error()), textMax)
	}
}

// ended counts what became of an alert at a channel.
func (s *Sender) ended(c *Channel, err error) {
	s.mu.Lock()
	if st := s.channels[c.Name]; st != nil {
		if err == nil {
			st.Sent++
		} else {
			st.Failed++
		}
	}
	s.mu.Unlock()
	if err == nil {
		s.counts[c.Kind].sent.Add(1)
		return
	}
	s.counts[c.Kind].failed.Add(1)
	s.cfg.Log.Error("an alert is given up: the channel does not take it", "channel", c.Name, "error", redact.Error(err))
}

// report reports the channels that fail.
func (s *Sender) report() {
	s.mu.Lock()
	var failing []string
	for _, name := range slices.Sorted(maps.Keys(s.channels)) {
		if st := s.channels[name]; st.Error != "" {
			failing = append(failing, name+": "+st.Error)
		}
	}
	s.mu.Unlock()
	if len(failing) == 0 {
		s.cfg.Report(nil)
		return
	}
	s.cfg.Report(errors.New(strings.Join(failing, "; ")))
}

// Run delivers while this sender leads, until ctx ends.
func (s *Sender) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if !s.cfg.Leads() {
			s.cfg.Report(nil) // what failed here is another's now
		} else if err := s.lead(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Report(fmt.Errorf("alerts cannot be read: %w", err))
		}
		if pause.For(ctx, leadEvery) != nil {
			break
		}
	}
	s.client.CloseIdleConnections()
	return nil
}
