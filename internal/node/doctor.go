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
	FindingOK      = "ok"
	FindingWrong   = "wrong"
	FindingUnknown = "not known" // it could not be looked at
)

// Names of what Examine looks at.
const (
	CheckSettings     = "settings"
	CheckDatabase     = "database"
	CheckTables       = "database-version"
	CheckDatabaseDisk = "database-disk"
	CheckNATS         = "nats"
	CheckNATSVersion  = "nats-version"
	CheckStreams      = "stream-settings"
	CheckReplicas     = "stream-replicas"
	CheckStorage      = "stream-storage"
	CheckSync         = "nats-sync"
	CheckNATSDisk     = "nats-disk"
	CheckRights       = "nats-rights"
	CheckRightsWide   = "nats-rights-wide"
	CheckClocks       = "clocks"
	CheckName         = "node-name"
	CheckNode         = "node"
)

// Finding is one thing that a node needs and that was looked at.
type Finding struct {
	Check string `json:"check"`
	State string `json:"state"`          // ok, wrong or not known
	What  string `json:"what"`           // was found
	Why   string `json:"why,omitempty"`  // it matters
	Mend  string `json:"mend,omitempty"` // the command or setting that mends it
}

// reasons are why a check matters, and what mends what it finds where nothing more exact is known.
var reasons = map[string][2]string{
	CheckSettings:     {"a node does not start with settings that cannot work", "duly serve --help"},
	CheckDatabase:     {"without the database nothing is accepted and nothing goes on", "psql \"$DATABASE_URL\" -c 'SELECT 1'"},
	CheckTables:       {"a node serves only tables that it knows", "duly migrate --database-url \"$DATABASE_URL\""},
	CheckDatabaseDisk: {"no commit succeeds on a full disk: tasks stand still and pass their deadlines", "df -h (on the database's machine); then make room or a larger disk"},
	CheckNATS:         {"without NATS nothing is accepted and no agent is reached", "nats --server \"$NATS_URL\" server check connection"},
	CheckNATSVersion:  {"older servers can lose messages that they have confirmed when the power is cut", "upgrade nats-server to 2.15 or newer, one server after the other"},
	CheckStreams:      {"a stream with these settings loses what was accepted, or does not take it", ""},
	CheckReplicas:     {"until the copy is there again the loss of one more server loses what was accepted, or stops it", ""},
	CheckStorage:      {"NATS refuses what is published when its own store is full, long before the stream is", ""},
	CheckSync:         {"without it NATS confirms submissions up to two minutes before they are on disk: a power cut loses them", "nats-server.conf: jetstream { sync_interval: always }; then restart nats-server"},
	CheckNATSDisk:     {"NATS takes nothing on a full disk, and a stream that met a write error stays off until its server is started again", "df -h (on the NATS server's machine); make room, then restart nats-server"},
	CheckRights:       {"a role without its rights does not do its work", ""},
	CheckRightsWide:   {"whoever may do that can forge answers of agents, read inputs or delete streams", ""},
	CheckClocks:       {"deadlines are moments: where a clock is wrong, good tasks are undone and late ones run on", "timedatectl set-ntp true; chronyc makestep"},
	CheckName:         {"two nodes of one name take each other's partitions; the second one does not start", "duly serve --node-name with a name of its own, or without one: then it is host and process"},
	CheckNode:         {"the node says itself what it lacks", "curl -s http://<http-addr>/readyz; docs/operations/health.md says what each condition means"},
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

func (e *examiner) add(check, state, format string, a ...any) *Finding {
	f := Finding{Check: check, State: state, What: fmt.Sprintf(format, a...)}
	if state == FindingWrong {
		f.Why, f.Mend = reasons[check][0], reasons[check][1]
	}
	e.findings = append(e.findings, f)
	return &e.findings[len(e.findings)-1]
}

// unknown says of checks that they were not made.
func (e *examiner) unknown(why string, checks ...string) {
	for _, c := range checks {
		e.add(c, FindingUnknown, "%s", why)
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
		e.add(CheckSettings, FindingWrong, "%v", err)
		return e.findings
	}
	e.add(CheckSettings, FindingOK, "roles %s, %s in %s, namespace %s", strings.Join(cfg.Roles, ", "), say.Count(int64(cfg.Partitions), "partition"), say.Count(int64(cfg.TaskStreams), "task stream"), cfg.Namespace)
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
		e.unknown("no database was named: --database-url or DATABASE_URL", CheckDatabase, CheckTables, CheckDatabaseDisk)
		return
	}
	ctx, cancel := e.within(ctx)
	defer cancel()
	store, err := dialects.Open(ctx, e.cfg.DatabaseURL, schema.Options{MaxConns: 2, Timeout: e.o.Timeout})
	var old *schema.ServerError
	switch {
	case errors.As(err, &old):
		f := e.add(CheckTables, FindingWrong, "the server is %s, want %s or newer", old.Have, old.Want)
		f.Why, f.Mend = "Duly is tested with no older one, and uses what older ones lack", "upgrade the database server (pg_upgrade), then: duly migrate --database-url \"$DATABASE_URL\""
		e.unknown("the database server is too old to go on", CheckDatabaseDisk)
		return
	case err != nil:
		e.add(CheckDatabase, FindingWrong, "%v", err)
		e.unknown("the database cannot be reached", CheckTables, CheckDatabaseDisk)
		return
	}
	e.store = store
	e.add(CheckDatabase, FindingOK, "%s answers", store.Dialect())
	if err := store.CheckVersion(ctx); err != nil {
		f := e.add(CheckTables, FindingWrong, "%v", err)
		if strings.Contains(err.Error(), "newer binary") {
			f.Mend = "install the newer binary on this machine; the database cannot go back"
		}
	} else {
		e.add(CheckTables, FindingOK, "%s, with the tables of this binary", store.Version())
	}
	prober, ok := store.(roomProber)
	if !ok {
		e.unknown(store.Dialect()+" cannot be asked", CheckDatabaseDisk)
		return
	}
	switch err := prober.ProbeRoom(ctx); {
	case err == nil:
		e.add(CheckDatabaseDisk, FindingOK, "it takes what is written")
	case errors.Is(err, schema.ErrNoRoom):
		e.add(CheckDatabaseDisk, FindingWrong, "%v", err)
	default:
		e.unknown(err.Error(), CheckDatabaseDisk)
	}
}

func (e *examiner) nats(ctx context.Context, named bool) {
	rest := []string{CheckNATSVersion, CheckStreams, CheckReplicas, CheckStorage, CheckNATSDisk, CheckRights, CheckRightsWide, CheckName}
	bounded, cancel := e.within(ctx)
	conn, err := natsbus.Dial(bounded, e.cfg.NATS("duly-doctor", e.cfg.Namespace, e.log))
	cancel()
	monitors := e.monitors(ctx)
	switch {
	case errors.Is(err, natsbus.ErrServerTooOld):
		e.add(CheckNATSVersion, FindingWrong, "%v", err)
		e.unknown("NATS is too old to go on", rest[1:]...)
	case errors.Is(err, natsbus.ErrNoJetStream):
		e.add(CheckNATS, FindingWrong, "%v (a server whose disk is full switches JetStream off)", err).Mend =
			"df -h (on the NATS server's machine); make room, or give nats-server a jetstream { } section; then restart it"
		e.unknown("NATS has no JetStream", rest...)
	case errors.Is(err, nats.ErrPermissionViolation):
		f := e.add(CheckRights, FindingWrong, "%v", err)
		if f.Mend = e.permissions(); errors.Is(err, natsbus.ErrInbox) {
			f.Mend = "NATS_INBOX_PREFIX=<what the user's rights have, such as _INBOX_door> in the node's environment"
		}
		e.unknown("the NATS user may not ask", slices.DeleteFunc(rest, func(c string) bool { return c == CheckRights })...)
	case err != nil:
		e.add(CheckNATS, FindingWrong, "%v", err)
		e.unknown("NATS cannot be reached", rest...)
	default:
		e.conn = conn
		e.add(CheckNATS, FindingOK, "%s answers", conn.Server())
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
			old = append(old, fmt.Sprintf("server %s has %s", m.varz.Name, m.varz.Version))
		}
	}
	if len(old) > 0 {
		e.add(CheckNATSVersion, FindingWrong, "%s, want 2.15 or newer", some(old))
		return
	}
	e.add(CheckNATSVersion, FindingOK, "%s", here)
}

// permissions is the command that prints what the node's roles need.
func (e *examiner) permissions() string {
	kinds := e.cfg.Roles
	if len(kinds) == len(config.Roles) {
		kinds = []string{"node"}
	}
	for i, k := range kinds {
		kinds = slices.Clone(kinds)
		kinds[i] = "duly=" + k
	}
	return "duly nats-permissions --namespace " + e.cfg.Namespace + " " + strings.Join(kinds, " ") + " > duly-users.conf; include it in nats-server.conf, then: nats-server --signal reload"
}

// rights compares what the user may do with what the roles need, in both directions.
func (e *examiner) rights(ctx context.Context) {
	ctx, cancel := e.within(ctx)
	defer cancel()
	has, err := e.conn.Permissions(ctx)
	if err != nil {
		e.unknown(fmt.Sprintf("the server does not tell them: %v", err), CheckRights, CheckRightsWide)
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
		e.add(CheckRights, FindingWrong, "%s", some(texts)).Mend = e.permissions()
	} else {
		e.add(CheckRights, FindingOK, "the NATS user %smay do what the roles need", user)
	}
	sets := make([]rights.Set, 0, len(e.cfg.Roles))
	for _, s := range e.roleSets() {
		sets = append(sets, s.Set)
	}
	publish, subscribe := rights.Merge(sets...).Wider(has, e.cfg.ReplyTo)
	var texts []string
	if len(publish) > 0 {
		texts = append(texts, "may publish to "+some(publish))
	}
	if len(subscribe) > 0 {
		texts = append(texts, "may subscribe to "+some(subscribe))
	}
	switch {
	case len(texts) == 0:
		e.add(CheckRightsWide, FindingOK, "the NATS user %smay do no more than that", user)
	case has.User == "" && slices.Contains(publish, ">"):
		e.add(CheckRightsWide, FindingWrong, "NATS asks for no user: whoever reaches it may do everything").Mend = e.permissions()
	default:
		e.add(CheckRightsWide, FindingWrong, "the NATS user %s%s, which no role of this node needs", user, strings.Join(texts, ", and ")).Mend = e.permissions()
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
		e.unknown(err.Error(), CheckStreams, CheckReplicas, CheckStorage, CheckNATSDisk)
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
		e.add(CheckStreams, FindingWrong, "%s", some(wrong)).Mend = mendStreams(all)
	case len(unread) > 0:
		e.unknown(some(unread), CheckStreams)
	case len(missing) > 0:
		e.add(CheckStreams, FindingOK, "none yet: the first node with the role scheduler makes them")
	default:
		e.add(CheckStreams, FindingOK, "%d streams and buckets as they have to be", len(all))
	}
	if len(lag) > 0 {
		e.add(CheckReplicas, FindingWrong, "%s", some(lag)).Mend =
			"start the server that is away, or repair its network and disk; nats stream cluster peer-remove STREAM SERVER moves the copy to another one"
	} else {
		e.add(CheckReplicas, FindingOK, "every copy is up to date")
	}
	e.storage(ctx, all, monitors)
	switch {
	case len(write) > 0:
		e.add(CheckNATSDisk, FindingWrong, "%s", some(write))
	default:
		e.natsDisk(monitors)
	}
}

// mendStreams is what to do about streams with other settings. NATS changes some in place; the others want a stream made
// again, which the node does by itself when it is missing, and then reads what SQL has not.
func mendStreams(all []natsbus.Examined) string {
	for i := range all {
		if s := &all[i]; s.Foreign != nil {
			return "duly serve --namespace with one of its own, or the NATS of this installation"
		} else if len(s.Differs) > 0 {
			return fmt.Sprintf("nats stream edit %s where NATS allows the change; else stop the submitters, wait until `duly partitions list` shows no lag, nats stream rm %s: "+
				"a running node makes it again", s.Name, s.Name)
		}
	}
	return "start a node with the role scheduler: it makes what is missing"
}

// storage compares what the streams may hold with what there is for them.
func (e *examiner) storage(ctx context.Context, all []natsbus.Examined, monitors []monitor) {
	var wrong []string
	var reserved, growth, more int64
	for i := range all {
		s := &all[i]
		if !s.Missing && s.Err == nil && s.MaxBytes <= 0 {
			wrong = append(wrong, s.Name+" has no bound, and takes all that there is")
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
			wrong = append(wrong, fmt.Sprintf("the settings want %s more than the streams have, and the NATS account has %s left", natsbus.Bytes(more), natsbus.Bytes(free)))
		}
	}
	for _, m := range monitors {
		if m.err != nil || m.varz.JetStream.Config == nil {
			continue
		}
		known = true
		if store := m.varz.JetStream.Config.MaxStore; store > 0 && reserved > store {
			wrong = append(wrong, fmt.Sprintf("the streams may hold %s, and the store of server %s has %s", natsbus.Bytes(reserved), m.varz.Name, natsbus.Bytes(store)))
		}
		if free, _, ok := m.disk(); ok && growth > free {
			wrong = append(wrong, fmt.Sprintf("the streams may grow by %s, and the disk of server %s has %s free", natsbus.Bytes(growth), m.varz.Name, natsbus.Bytes(free)))
		}
	}
	switch {
	case len(wrong) > 0:
		e.add(CheckStorage, FindingWrong, "%s", some(wrong)).Mend =
			fmt.Sprintf("duly serve --%s=<bytes> (and --%s) with less, or more for NATS: jetstream { max_file_store: … } and its disk", natsbus.FlagTasksBytes, natsbus.FlagEventsBytes)
	case !known:
		e.unknown("NATS tells its clients of no limit; --nats-monitor http://<server>:8222 asks the server", CheckStorage)
	default:
		e.add(CheckStorage, FindingOK, "the streams may hold %s, which there is", natsbus.Bytes(reserved))
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
			e.add(CheckNATSDisk, FindingWrong, "the disk of server %s (%s) has %s of %s left", m.varz.Name, m.varz.JetStream.Config.StoreDir, natsbus.Bytes(free), natsbus.Bytes(size))
			return
		}
	}
	if looked == 0 {
		e.add(CheckNATSDisk, FindingOK, "every stream takes what is written; how full the disk is shows on the server's machine, with --nats-monitor")
		return
	}
	e.add(CheckNATSDisk, FindingOK, "every stream takes what is written, and the disk has room")
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
			unread = append(unread, "server "+m.varz.Name+" has no JetStream")
		case !c.SyncAlways:
			wrong = append(wrong, fmt.Sprintf("server %s syncs every %v", m.varz.Name, cmp.Or(c.SyncInterval, 2*time.Minute)))
		default:
			asked++
		}
	}
	switch {
	case len(wrong) > 0:
		e.add(CheckSync, FindingWrong, "%s, not always", some(wrong))
	case len(unread) > 0:
		e.unknown(some(unread), CheckSync)
	case asked == 0:
		e.unknown("NATS does not tell its clients; --nats-monitor http://<server>:8222 asks the server", CheckSync)
	default:
		e.add(CheckSync, FindingOK, "%d servers sync always", asked)
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
		e.unknown("neither NATS nor the database can be asked", CheckClocks)
		return
	}
	ctx, cancel := e.within(ctx)
	defer cancel()
	wrong := e.compareClocks(ctx)
	if err := clocksDiffer(wrong); err != nil {
		e.add(CheckClocks, FindingWrong, "%v", err)
		return
	}
	compared := e.clock.comparedWith()
	if len(compared) == 0 {
		e.unknown("neither NATS nor the database told its time", CheckClocks)
		return
	}
	e.add(CheckClocks, FindingOK, "within %v of %s", clockSlack, strings.Join(compared, " and "))
}

// name looks for another live node of this node's name: one that holds the lease, while this node itself does not serve
// where its settings say, or says that the name is taken.
func (e *examiner) name(ctx context.Context, named bool) {
	if !named {
		e.add(CheckName, FindingOK, "none is set: host and process make one")
		return
	}
	holder, err := e.holder(ctx)
	if err != nil {
		e.unknown(err.Error(), CheckName)
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
		e.add(CheckName, FindingOK, "no other live node is called %s", e.cfg.NodeName)
		return
	}
	failing, err := e.readiness(ctx)
	var none *net.OpError
	switch {
	case err != nil && !(errors.As(err, &none) && none.Op == "dial"):
		e.unknown(fmt.Sprintf("a live node is called %s; whether it is this one cannot be asked: %v", e.cfg.NodeName, err), CheckName)
	case err != nil:
		e.add(CheckName, FindingWrong, "%v; and no node serves http-addr %s here: it is another one", taken, cmp.Or(e.cfg.HTTPAddr, "(none)"))
	case slices.ContainsFunc(failing, func(f failingCondition) bool { return f.Name == condNodeLease }):
		e.add(CheckName, FindingWrong, "%v; the node at http-addr %s does not have it", taken, e.cfg.HTTPAddr)
	default:
		e.add(CheckName, FindingOK, "%s is the node that serves http-addr %s", e.cfg.NodeName, e.cfg.HTTPAddr)
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
		e.unknown(fmt.Sprintf("it does not run at http-addr %s", cmp.Or(e.cfg.HTTPAddr, "(none)")), CheckNode)
		return
	}
	if len(failing) == 0 {
		e.add(CheckNode, FindingOK, "ready")
		return
	}
	texts := make([]string, len(failing))
	for i, f := range failing {
		texts[i] = strings.TrimSuffix(f.Name+": "+f.What+": "+f.Error, ": ")
	}
	e.add(CheckNode, FindingWrong, "not ready: %s", some(texts))
}
