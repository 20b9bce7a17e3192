package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/disk"
	"duly.dev/duly/internal/egress"
	"duly.dev/duly/internal/health"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/redact"
	"duly.dev/duly/internal/rights"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// What a finding can say.
const (
	findingOK      = "ok"
	FindingWrong   = "wrong"
	FindingUnknown = "not known" // it could not be looked at
)

// Names of what Examine looks at.
const (
	checkSettings     = "settings"
	checkDatabase     = "database"
	checkTables       = "database-version"
	checkDatabaseDisk = "database-disk"
	checkNATS         = "nats"
	checkNATSVersion  = "nats-version"
	checkStreams      = "stream-settings"
	checkReplicas     = "stream-replicas"
	checkStorage      = "stream-storage"
	CheckSync         = "nats-sync"
	checkNATSDisk     = "nats-disk"
	checkRights       = "nats-rights"
	CheckRightsWide   = "nats-rights-wide"
	checkWeights      = "weights"
	checkClocks       = "clocks"
	checkName         = "node-name"
	checkNode         = "node"
)

// Checks are all of them.
var Checks = []string{checkSettings, checkDatabase, checkTables, checkDatabaseDisk, checkNATS, checkNATSVersion, checkStreams, checkReplicas, checkStorage,
	CheckSync, checkNATSDisk, checkRights, CheckRightsWide, checkWeights, checkClocks, checkName, checkNode}

// Finding is one thing that a node needs and that was looked at.
type Finding struct {
	Check string `json:"check"`
	State string `json:"state"`          // ok, wrong or not known
	What  string `json:"what"`           // was found
	Why   string `json:"why,omitempty"`  // it matters
	Mend  string `json:"mend,omitempty"` // the command or setting that mends it
}

// Examination is what Examine is told besides the node's settings.
type Examination struct {
	// Monitors are the monitoring addresses of the NATS servers, http://host:8222: what servers tell their clients has
	// neither sync_interval nor the size of the store.
	Monitors []string
	Timeout  time.Duration // of one look
}

// examiner gathers findings.
type examiner struct {
	*Node
	o        Examination
	findings []Finding
}

// add adds what was found; id is of its sentence. Why it matters, and what mends it where nothing more exact is known, are the
// sentences of the check.
func (e *examiner) add(check, state, id string, values ...any) *Finding {
	f := Finding{Check: check, State: state, What: say.Of(id, values...)}
	if state == FindingWrong {
		f.Why, f.Mend = say.Of("doctor.why-"+check), say.Of("doctor.mend-"+check, "namespace", e.cfg.Namespace, "roles", e.kinds(), "tasks", natsbus.FlagTasksBytes, "events", natsbus.FlagEventsBytes)
	}
	e.findings = append(e.findings, f)
	return &e.findings[len(e.findings)-1]
}

// unknown says of checks that they were not made.
func (e *examiner) unknown(why string, checks ...string) {
	for _, c := range checks {
		e.add(c, FindingUnknown, "doctor.is", "text", why)
	}
}

// Examine looks at what a node with these settings stands on, with the same eyes as the node itself, and changes
// nothing. It looks at everything that it can, whatever else is wrong.
func Examine(ctx context.Context, cfg config.Config, o Examination) []Finding {
	o.Timeout = cmp.Or(o.Timeout, setupTimeout)
	err := cfg.Validate()
	named := cfg.NodeName != ""
	if err == nil {
		cfg, err = cfg.Resolve()
	}
	secrets := redact.SecretsOf(append([]string{cfg.DatabaseURL, cfg.NATSURL}, outboxURLs(&cfg)...)...)
	e := &examiner{o: o, Node: &Node{cfg: cfg, log: slog.New(slog.DiscardHandler), clock: newClock(cfg.Now)}}
	if err != nil {
		e.add(checkSettings, FindingWrong, "doctor.is", "text", err)
		return e.findings
	}
	e.add(checkSettings, findingOK, "doctor.settings", "roles", strings.Join(cfg.Roles, ", "), "partitions", cfg.Partitions, "streams", cfg.TaskStreams, "namespace", cfg.Namespace)
	e.database(ctx)
	e.nats(ctx, named)
	e.clocks(ctx)
	e.node(ctx)
	if e.conn != nil {
		e.conn.Close()
	}
	if e.store != nil {
		_ = e.store.Close() // nothing was written
	}
	for i := range e.findings {
		e.findings[i].What = secrets.Text(e.findings[i].What)
	}
	return e.findings
}

// within bounds one look.
func (e *examiner) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, e.o.Timeout)
}

// roomProber is a store that can look whether there is room.
type roomProber interface {
	ProbeRoom(ctx context.Context) error
}

func (e *examiner) database(ctx context.Context) {
	if e.cfg.DatabaseURL == "" {
		e.unknown(say.Of("doctor.no-database"), checkDatabase, checkTables, checkDatabaseDisk)
		return
	}
	ctx, cancel := e.within(ctx)
	defer cancel()
	store, err := dialects.Open(ctx, e.cfg.DatabaseURL, schema.Options{MaxConns: 2, Timeout: e.o.Timeout})
	var old *schema.ServerError
	switch {
	case errors.As(err, &old):
		f := e.add(checkTables, FindingWrong, "doctor.database-old", "have", old.Have, "want", old.Want)
		f.Why, f.Mend = say.Of("doctor.database-old-why"), say.Of("doctor.database-old-mend")
		e.unknown(say.Of("doctor.database-too-old"), checkDatabaseDisk)
		return
	case err != nil:
		e.add(checkDatabase, FindingWrong, "doctor.is", "text", err)
		e.unknown(say.Of("doctor.database-away"), checkTables, checkDatabaseDisk)
		return
	}
	e.store = store
	e.add(checkDatabase, findingOK, "doctor.answers", "server", store.Dialect())
	if err := store.CheckVersion(ctx); err != nil {
		f := e.add(checkTables, FindingWrong, "doctor.is", "text", err)
		if strings.Contains(err.Error(), "newer binary") {
			f.Mend = say.Of("doctor.binary-old")
		}
	} else {
		e.add(checkTables, findingOK, "doctor.tables", "version", store.Version())
		e.weights(ctx)
	}
	prober, ok := store.(roomProber)
	if !ok {
		e.unknown(say.Of("doctor.room-unknown", "server", store.Dialect()), checkDatabaseDisk)
		return
	}
	switch err := prober.ProbeRoom(ctx); {
	case err == nil:
		e.add(checkDatabaseDisk, findingOK, "doctor.room")
	case errors.Is(err, schema.ErrNoRoom):
		e.add(checkDatabaseDisk, FindingWrong, "doctor.is", "text", err)
	default:
		e.unknown(err.Error(), checkDatabaseDisk)
	}
}

// weights looks for shares of types that no stored plan has.
func (e *examiner) weights(ctx context.Context) {
	plans, err := e.store.Plans(ctx)
	unreadable, some := errors.AsType[core.UnreadablePlans](err)
	if err != nil && !some {
		e.unknown(err.Error(), checkWeights)
		return
	}
	shares, _ := e.cfg.Shares() // the settings are right
	for i := range plans {
		delete(shares.Types, plans[i].Name)
	}
	for i := range unreadable {
		delete(shares.Types, unreadable[i].Name)
	}
	if len(shares.Types) > 0 {
		e.add(checkWeights, FindingWrong, "doctor.weights-unknown", "types", strings.Join(slices.Sorted(maps.Keys(shares.Types)), ", "))
		return
	}
	e.add(checkWeights, findingOK, "doctor.weights", "n", len(e.cfg.Weights))
}

func (e *examiner) nats(ctx context.Context, named bool) {
	rest := []string{checkNATSVersion, checkStreams, checkReplicas, checkStorage, checkNATSDisk, checkRights, CheckRightsWide, checkName}
	bounded, cancel := e.within(ctx)
	conn, err := natsbus.Dial(bounded, e.cfg.NATS("duly-doctor", e.cfg.Namespace, e.log))
	cancel()
	monitors := e.monitors(ctx)
	switch {
	case errors.Is(err, natsbus.ErrServerTooOld):
		e.add(checkNATSVersion, FindingWrong, "doctor.is", "text", err)
		e.unknown(say.Of("doctor.nats-too-old"), rest[1:]...)
	case errors.Is(err, natsbus.ErrNoJetStream):
		e.add(checkNATS, FindingWrong, "doctor.no-jetstream", "error", err).Mend = say.Of("doctor.no-jetstream-mend")
		e.unknown(say.Of("doctor.jetstream-off"), rest...)
	case errors.Is(err, nats.ErrPermissionViolation):
		f := e.add(checkRights, FindingWrong, "doctor.is", "text", err)
		if errors.Is(err, natsbus.ErrInbox) {
			f.Mend = say.Of("doctor.inbox-mend")
		}
		e.unknown(say.Of("doctor.may-not-ask"), slices.DeleteFunc(rest, func(c string) bool { return c == checkRights })...)
	case err != nil:
		e.add(checkNATS, FindingWrong, "doctor.is", "text", err)
		e.unknown(say.Of("doctor.nats-away"), rest...)
	default:
		e.conn = conn
		e.add(checkNATS, findingOK, "doctor.answers", "server", conn.Server())
		e.versions(conn.ServerVersion(), monitors)
		e.rights(ctx)
		e.streams(ctx, monitors)
		e.name(ctx, named)
	}
	e.sync(monitors)
}

// versions looks at the server that answers, and at all whose monitors are known.
func (e *examiner) versions(here string, monitors []monitor) {
	var old []string
	for _, m := range monitors {
		if m.err == nil && !natsbus.NewEnough(m.varz.Version) {
			old = append(old, say.Of("doctor.nats-has", "name", m.varz.Name, "version", m.varz.Version))
		}
	}
	if len(old) > 0 {
		e.add(checkNATSVersion, FindingWrong, "doctor.nats-old", "servers", some(old))
		return
	}
	e.add(checkNATSVersion, findingOK, "doctor.is", "text", here)
}

// kinds are the roles of the node as the command that prints permissions takes them.
func (e *examiner) kinds() string {
	kinds := e.cfg.Roles
	if len(kinds) == len(config.Roles) {
		kinds = []string{"node"}
	}
	named := make([]string, len(kinds))
	for i, k := range kinds {
		named[i] = "duly=" + k
	}
	return strings.Join(named, " ")
}

// rights compares what the user may do with what the roles need, in both directions.
func (e *examiner) rights(ctx context.Context) {
	ctx, cancel := e.within(ctx)
	defer cancel()
	has, err := e.conn.Permissions(ctx)
	if err != nil {
		e.unknown(say.Of("doctor.rights-unknown", "error", err), checkRights, CheckRightsWide)
		return
	}
	user := ""
	if has.User != "" {
		user = has.User + " "
	}
	if lacks, _ := e.lacking(&has); len(lacks) > 0 {
		texts := make([]string, len(lacks))
		for i := range lacks {
			texts[i] = lacks[i].text(user).Error()
		}
		e.add(checkRights, FindingWrong, "doctor.is", "text", some(texts))
	} else {
		e.add(checkRights, findingOK, "doctor.rights", "user", user)
	}
	sets := make([]rights.Set, 0, len(e.cfg.Roles))
	for _, s := range e.roleSets() {
		sets = append(sets, s.Set)
	}
	publish, subscribe := rights.Merge(sets...).Wider(has, e.cfg.ReplyTo)
	var texts []string
	if len(publish) > 0 {
		texts = append(texts, say.Of("doctor.publish", "subjects", some(publish)))
	}
	if len(subscribe) > 0 {
		texts = append(texts, say.Of("doctor.subscribe", "subjects", some(subscribe)))
	}
	switch {
	case len(texts) == 0:
		e.add(CheckRightsWide, findingOK, "doctor.rights-tight", "user", user)
	case has.User == "" && slices.Contains(publish, ">"):
		e.add(CheckRightsWide, FindingWrong, "doctor.no-user")
	default:
		e.add(CheckRightsWide, FindingWrong, "doctor.rights-wide", "user", user, "texts", strings.Join(texts, ", and "))
	}
}

// some is the first of several texts, and how many there are.
func some(all []string) string {
	const most = 3
	text := strings.Join(all[:min(most, len(all))], "; ")
	if len(all) > most {
		text += fmt.Sprintf("; and %d more", len(all)-most)
	}
	return text
}

// streams looks at the streams and buckets, at their copies, and whether what they may hold has room.
func (e *examiner) streams(ctx context.Context, monitors []monitor) {
	ctx, cancel := e.within(ctx)
	defer cancel()
	config := e.streamConfig()
	if e.store != nil {
		// An id that cannot be read is not compared.
		config.Installation, _ = e.store.Installation(ctx, e.cfg.Namespace)
	}
	all, err := e.conn.Examine(ctx, config)
	if err != nil {
		e.unknown(err.Error(), checkStreams, checkReplicas, checkStorage, checkNATSDisk)
		return
	}
	var wrong, missing, unread, lag, write []string
	for i := range all {
		s := &all[i]
		switch {
		case s.Missing:
			missing = append(missing, s.Name)
			continue
		case s.Err != nil:
			unread = append(unread, fmt.Sprintf("%s: %v", s.Name, s.Err))
			continue
		case s.Foreign != nil:
			wrong = append(wrong, s.Foreign.Error())
		}
		wrong = append(wrong, s.Differs...)
		for _, r := range s.Lagging {
			lag = append(lag, s.Name+": "+r.String())
		}
		if s.Write != nil {
			write = append(write, fmt.Sprintf("%s: %v", s.Name, s.Write))
		}
	}
	if len(missing) > 0 && len(missing) < len(all) {
		wrong = append(wrong, "missing: "+strings.Join(missing, ", "))
	}
	switch {
	case len(wrong) > 0:
		e.add(checkStreams, FindingWrong, "doctor.is", "text", some(wrong)).Mend = mendStreams(all)
	case len(unread) > 0:
		e.unknown(some(unread), checkStreams)
	case len(missing) > 0:
		e.add(checkStreams, findingOK, "doctor.streams-none")
	default:
		e.add(checkStreams, findingOK, "doctor.streams", "n", len(all))
	}
	if len(lag) > 0 {
		e.add(checkReplicas, FindingWrong, "doctor.is", "text", some(lag))
	} else {
		e.add(checkReplicas, findingOK, "doctor.replicas")
	}
	e.storage(ctx, all, monitors)
	switch {
	case len(write) > 0:
		e.add(checkNATSDisk, FindingWrong, "doctor.is", "text", some(write))
	default:
		e.natsDisk(monitors)
	}
}

// mendStreams is what to do about streams with other settings. NATS changes some in place; the others want a stream made
// again, which the node does by itself when it is missing, and then reads what SQL has not.
func mendStreams(all []natsbus.Examined) string {
	for i := range all {
		if s := &all[i]; s.Foreign != nil {
			return say.Of("doctor.foreign-mend")
		} else if len(s.Differs) > 0 {
			return say.Of("doctor.streams-mend", "stream", s.Name)
		}
	}
	return say.Of("doctor.mend-" + checkStreams)
}

// storage compares what the streams may hold with what there is for them.
func (e *examiner) storage(ctx context.Context, all []natsbus.Examined, monitors []monitor) {
	var wrong []string
	var reserved, growth, more int64
	for i := range all {
		s := &all[i]
		if !s.Missing && s.Err == nil && s.MaxBytes <= 0 {
			wrong = append(wrong, say.Of("doctor.unbounded", "stream", s.Name))
		}
		have := max(0, s.MaxBytes)
		more += max(0, s.WantMax-have)
		reserved += max(have, s.WantMax)
		growth += max(0, max(have, s.WantMax)-s.Bytes)
	}
	known := false
	if free, err := e.conn.Offered(ctx, e.cfg.StreamReplicas); err == nil && free >= 0 {
		known = true
		if more > free {
			wrong = append(wrong, say.Of("doctor.account", "more", natsbus.Bytes(more), "free", natsbus.Bytes(free)))
		}
	}
	for _, m := range monitors {
		if m.err != nil || m.varz.JetStream.Config == nil {
			continue
		}
		known = true
		if store := m.varz.JetStream.Config.MaxStore; store > 0 && reserved > store {
			wrong = append(wrong, say.Of("doctor.store", "want", natsbus.Bytes(reserved), "server", m.varz.Name, "have", natsbus.Bytes(store)))
		}
		if free, _, ok := m.disk(); ok && growth > free {
			wrong = append(wrong, say.Of("doctor.growth", "want", natsbus.Bytes(growth), "server", m.varz.Name, "have", natsbus.Bytes(free)))
		}
	}
	switch {
	case len(wrong) > 0:
		e.add(checkStorage, FindingWrong, "doctor.is", "text", some(wrong))
	case !known:
		e.unknown(say.Of("doctor.no-limit"), checkStorage)
	default:
		e.add(checkStorage, findingOK, "doctor.storage", "bytes", natsbus.Bytes(reserved))
	}
}

// A disk is full when it has less left than one of these.
const (
	diskLeast    = 64 << 20
	diskLeastPct = 1
)

// natsDisk looks at the disk of NATS, where the server is on this machine.
func (e *examiner) natsDisk(monitors []monitor) {
	looked := 0
	for _, m := range monitors {
		free, size, ok := m.disk()
		if !ok {
			continue
		}
		looked++
		if free < diskLeast || free < size/100*diskLeastPct {
			e.add(checkNATSDisk, FindingWrong, "doctor.disk-full", "server", m.varz.Name, "dir", m.varz.JetStream.Config.StoreDir, "free", natsbus.Bytes(free), "size", natsbus.Bytes(size))
			return
		}
	}
	if looked == 0 {
		e.add(checkNATSDisk, findingOK, "doctor.disk-unknown")
		return
	}
	e.add(checkNATSDisk, findingOK, "doctor.disk")
}

// sync looks whether the servers sync always.
func (e *examiner) sync(monitors []monitor) {
	var wrong, unread []string
	asked := 0
	for _, m := range monitors {
		switch c := m.varz.JetStream.Config; {
		case m.err != nil:
			unread = append(unread, m.err.Error())
		case c == nil:
			unread = append(unread, say.Of("doctor.jetstream-none", "server", m.varz.Name))
		case !c.SyncAlways:
			wrong = append(wrong, say.Of("doctor.sync-every", "server", m.varz.Name, "time", cmp.Or(c.SyncInterval, 2*time.Minute)))
		default:
			asked++
		}
	}
	switch {
	case len(wrong) > 0:
		e.add(CheckSync, FindingWrong, "doctor.sync-wrong", "servers", some(wrong))
	case len(unread) > 0:
		e.unknown(some(unread), CheckSync)
	case asked == 0:
		e.unknown(say.Of("doctor.sync-unknown"), CheckSync)
	default:
		e.add(CheckSync, findingOK, "doctor.sync", "n", asked)
	}
}

// monitor is what a server says on its monitoring port.
type monitor struct {
	address string
	err     error
	varz    struct {
		Name      string `json:"server_name"`
		Version   string `json:"version"`
		JetStream struct {
			Config *struct {
				MaxStore     int64         `json:"max_storage"`
				StoreDir     string        `json:"store_dir"`
				SyncInterval time.Duration `json:"sync_interval"`
				SyncAlways   bool          `json:"sync_always"`
			} `json:"config"`
		} `json:"jetstream"`
	}
}

// varzBytesMax bounds what a server may say.
const varzBytesMax = 4 << 20

func (e *examiner) monitors(ctx context.Context) []monitor {
	var all []monitor
	for _, address := range e.o.Monitors {
		m := monitor{address: address}
		if data, err := e.get(ctx, strings.TrimSuffix(address, "/")+"/varz", false); err != nil {
			m.err = fmt.Errorf("nats-monitor %s: %w", redact.Text(address), err)
		} else if err := json.Unmarshal(data, &m.varz); err != nil {
			m.err = fmt.Errorf("nats-monitor %s: no /varz of a NATS server: %w", redact.Text(address), err)
		}
		all = append(all, m)
	}
	return all
}

// get reads what is at a URL, whatever its status; own: of the node itself, on this machine.
func (e *examiner) get(ctx context.Context, address string, own bool) ([]byte, error) {
	ctx, cancel := e.within(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if own {
		// Nothing secret is sent, and the certificate of a node is not for 127.0.0.1.
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	}
	resp, err := (&http.Client{Transport: transport, CheckRedirect: egress.SameOrigin}).Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, varzBytesMax))
}

// disk is what the disk of the server's store has, where that is on this machine.
func (m *monitor) disk() (free, size int64, ok bool) {
	u, err := url.Parse(m.address)
	if err != nil || m.err != nil || m.varz.JetStream.Config == nil {
		return 0, 0, false
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return 0, 0, false
	}
	// A loopback port may be that of a container, which has a disk of its own.
	if _, err := os.Stat(m.varz.JetStream.Config.StoreDir); err != nil {
		return 0, 0, false
	}
	return disk.Room(m.varz.JetStream.Config.StoreDir)
}

// clocks compares this machine's clock with those of NATS and the database.
func (e *examiner) clocks(ctx context.Context) {
	if e.conn == nil && e.store == nil {
		e.unknown(say.Of("doctor.clocks-away"), checkClocks)
		return
	}
	ctx, cancel := e.within(ctx)
	defer cancel()
	wrong := e.compareClocks(ctx)
	if err := clocksDiffer(wrong); err != nil {
		e.add(checkClocks, FindingWrong, "doctor.is", "text", err)
		return
	}
	compared := e.clock.comparedWith()
	if len(compared) == 0 {
		e.unknown(say.Of("doctor.clocks-unknown"), checkClocks)
		return
	}
	e.add(checkClocks, findingOK, "doctor.clocks", "slack", clockSlack, "others", strings.Join(compared, " and "))
}

// name looks for another live node of this node's name: one that holds the lease, while this node itself does not serve
// where its settings say, or says that the name is taken.
func (e *examiner) name(ctx context.Context, named bool) {
	if !named {
		e.add(checkName, findingOK, "doctor.name-none")
		return
	}
	holder, err := e.holder(ctx)
	if err != nil {
		e.unknown(err.Error(), checkName)
		return
	}
	var first claim
	var taken error
	until := time.Now().Add(e.cfg.Lease + nameMargin + time.Second)
	for holder != nil && taken == nil && time.Now().Before(until) {
		bounded, cancel := e.within(ctx)
		taken = first.check(bounded, e.Node)
		cancel()
		if taken == nil && first.since.IsZero() { // it has ended
			break
		}
		if taken == nil && pause.For(ctx, min(e.cfg.Lease/4, time.Second)) != nil {
			break
		}
	}
	if taken == nil {
		e.add(checkName, findingOK, "doctor.name-free", "name", e.cfg.NodeName)
		return
	}
	failing, err := e.readiness(ctx)
	var none *net.OpError
	switch {
	case err != nil && !(errors.As(err, &none) && none.Op == "dial"):
		e.unknown(say.Of("doctor.name-unknown", "name", e.cfg.NodeName, "error", err), checkName)
	case err != nil:
		e.add(checkName, FindingWrong, "doctor.name-elsewhere", "taken", taken, "address", cmp.Or(e.cfg.HTTPAddr, "(none)"))
	case slices.ContainsFunc(failing, func(f failingCondition) bool { return f.Name == condNodeLease }):
		e.add(checkName, FindingWrong, "doctor.name-taken", "taken", taken, "address", e.cfg.HTTPAddr)
	default:
		e.add(checkName, findingOK, "doctor.name-own", "name", e.cfg.NodeName, "address", e.cfg.HTTPAddr)
	}
}

// holder is who has the lease of this node's name; nil: it is free.
func (e *examiner) holder(ctx context.Context) (*natsbus.Holder, error) {
	ctx, cancel := e.within(ctx)
	defer cancel()
	holder, err := e.conn.Holder(ctx, wire.NodeKey(e.cfg.NodeName))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil // no node has been here yet
	}
	return holder, err
}

// failingCondition is a condition of a node as /readyz has it.
type failingCondition struct {
	Name  string `json:"name"`
	What  string `json:"what"`
	Error string `json:"error"`
}

// readiness is what the running node says of itself. Error: no node serves there.
func (e *examiner) readiness(ctx context.Context) ([]failingCondition, error) {
	if e.cfg.HTTPAddr == "" {
		return nil, errors.New("no http-addr is set")
	}
	host, port, err := net.SplitHostPort(e.cfg.HTTPAddr)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http"
	if e.cfg.TLSCert != "" {
		scheme = "https"
	}
	data, err := e.get(ctx, scheme+"://"+net.JoinHostPort(host, port)+health.PathReady, true)
	if err != nil {
		return nil, err
	}
	var body struct {
		Status  string             `json:"status"`
		Failing []failingCondition `json:"failing"`
	}
	if err := json.Unmarshal(data, &body); err != nil || body.Status == "" {
		return nil, fmt.Errorf("what serves %s is no node", e.cfg.HTTPAddr)
	}
	return body.Failing, nil
}

// node asks the node itself, if it runs.
func (e *examiner) node(ctx context.Context) {
	failing, err := e.readiness(ctx)
	if err != nil {
		e.unknown(say.Of("doctor.node-away", "address", cmp.Or(e.cfg.HTTPAddr, "(none)")), checkNode)
		return
	}
	if len(failing) == 0 {
		e.add(checkNode, findingOK, "doctor.ready")
		return
	}
	texts := make([]string, len(failing))
	for i, f := range failing {
		texts[i] = strings.TrimSuffix(f.Name+": "+f.What+": "+f.Error, ": ")
	}
	e.add(checkNode, FindingWrong, "doctor.not-ready", "conditions", some(texts))
}
