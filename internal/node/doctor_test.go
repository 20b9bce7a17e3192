package node

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/freeport"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/internal/rights"
	"duly.dev/duly/internal/wire"
)

// patients is a NATS server with users and a monitor, and a database, on which a node can be examined.
type patients struct {
	t      *testing.T
	cfg    config.Config
	nats   *natsd.Server
	dir    string
	user   *natsd.User // the node's
	change func(*natsd.Options)
}

const patientInbox = "_INBOX_node"

// healthy makes everything as it should be, with the streams of a node that has run.
func healthy(t *testing.T) *patients {
	t.Helper()
	p := &patients{t: t, cfg: good(), dir: t.TempDir(), user: leastUser(t), change: func(*natsd.Options) {}}
	p.cfg.Namespace, p.cfg.ReplyTo, p.cfg.Lease, p.cfg.ScanInterval = wire.DefaultNamespace, []string{"_INBOX."}, time.Second, 100*time.Millisecond
	p.cfg.NATSInbox, p.cfg.StreamMaxBytes, p.cfg.StreamEventsMaxBytes = patientInbox, 64<<20, 16<<20
	p.cfg.StreamControlMaxBytes, p.cfg.StreamDeadMaxBytes = 8<<20, 8<<20
	p.cfg.DatabaseURL = pgtestdb.Installation(t)
	if err := Migrate(t.Context(), p.cfg.DatabaseURL); err != nil {
		t.Fatal(err)
	}
	p.start()
	p.visit()
	return p
}

// leastUser is a user of NATS that may do what a node of all roles needs, and no more.
func leastUser(t *testing.T) *natsd.User {
	t.Helper()
	var sets []rights.Set
	for _, role := range config.Roles {
		set, err := rights.Of(role, nil, rights.Options{Inbox: patientInbox, StatusTo: []string{"_INBOX."}})
		if err != nil {
			t.Fatal(err)
		}
		sets = append(sets, set)
	}
	all := rights.Merge(sets...)
	perms := &natsd.Permissions{Publish: &natsd.SubjectPermission{}, Subscribe: &natsd.SubjectPermission{},
		Response: &natsd.ResponsePermission{MaxMsgs: all.Answers.Max, Expires: all.Answers.Within}}
	for _, r := range all.Rights {
		list := perms.Subscribe
		if r.Publish {
			list = perms.Publish
		}
		list.Allow = append(list.Allow, r.String())
	}
	return &natsd.User{Username: "node", Password: "s3cret", Permissions: perms}
}

// start starts NATS.
func (p *patients) start() {
	p.t.Helper()
	o := &natsd.Options{ServerName: "solo", Host: "127.0.0.1", Port: natsd.RANDOM_PORT, HTTPHost: "127.0.0.1", HTTPPort: natsd.RANDOM_PORT, MaxPayload: natsserver.DefaultMaxPayload,
		MaxPending: 4 * natsserver.DefaultMaxPayload, JetStream: true, StoreDir: p.dir, SyncAlways: true, JetStreamMaxStore: 1 << 30, NoSigs: true, NoLog: true,
		Users: []*natsd.User{p.user, {Username: "admin", Password: "admin"}}}
	p.change(o)
	s, err := natsd.NewServer(o)
	if err != nil {
		p.t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		p.t.Fatal("NATS does not start")
	}
	p.nats = s
	p.cfg.NATSURL = "nats://node:s3cret@" + s.Addr().String()
	p.t.Cleanup(p.stop)
}

func (p *patients) stop() {
	p.nats.Shutdown()
	p.nats.WaitForShutdown()
}

// restart starts NATS again with other options.
func (p *patients) restart(change func(*natsd.Options)) {
	p.t.Helper()
	p.stop()
	p.change = change
	p.start()
}

// visit makes the streams as a node does.
func (p *patients) visit() {
	p.t.Helper()
	n, err := Open(p.t.Context(), p.cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		p.t.Fatal(err)
	}
}

// admin is JetStream for someone who may do everything.
func (p *patients) admin() jetstream.JetStream {
	p.t.Helper()
	nc, err := nats.Connect("nats://admin:admin@" + p.nats.Addr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		p.t.Fatal(err)
	}
	return js
}

// spoil makes the task stream again with other settings.
func (p *patients) spoil(change func(*jetstream.StreamConfig)) {
	p.t.Helper()
	js, ctx := p.admin(), p.t.Context()
	stream, err := js.Stream(ctx, "DULY_TASKS")
	if err != nil {
		p.t.Fatal(err)
	}
	settings := stream.CachedInfo().Config
	change(&settings)
	if err := js.DeleteStream(ctx, settings.Name); err != nil {
		p.t.Fatal(err)
	}
	sealed := settings.Sealed
	settings.Sealed = false
	if _, err := js.CreateStream(ctx, settings); err != nil {
		p.t.Fatal(err)
	}
	if sealed {
		settings.Sealed = true
		if _, err := js.UpdateStream(ctx, settings); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *patients) examine() findings {
	p.t.Helper()
	return findings(Examine(p.t.Context(), p.cfg, Examination{Monitors: []string{"http://" + p.nats.MonitorAddr().String()}, Timeout: 20 * time.Second}))
}

type findings []Finding

func (f findings) of(check string) Finding {
	i := slices.IndexFunc(f, func(one Finding) bool { return one.Check == check })
	if i < 0 {
		return Finding{Check: check, State: "missing"}
	}
	return f[i]
}

// finds fails the test unless exactly these checks are wrong, and the first one says all of the texts.
func (p *patients) finds(checks []string, says ...string) {
	p.t.Helper()
	all := p.examine()
	for _, f := range all {
		if strings.Contains(fmt.Sprint(f), "s3cret") {
			p.t.Errorf("a password is shown: %+v", f)
		}
		if is, want := f.State == FindingWrong, slices.Contains(checks, f.Check); is != want {
			p.t.Errorf("%s is %s: %s", f.Check, f.State, f.What)
		}
	}
	if len(checks) == 0 {
		return
	}
	f := all.of(checks[0])
	for _, text := range says {
		if !strings.Contains(f.What, text) {
			p.t.Errorf("%s: %q does not say %q", f.Check, f.What, text)
		}
	}
	if f.Why == "" || f.Mend == "" {
		p.t.Errorf("%s does not say why or what mends it: %+v", f.Check, f)
	}
}

// TestDoctorFindsNothing: with nothing wrong each check says what is well, and none is left out.
func TestDoctorFindsNothing(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	all := p.examine()
	for _, check := range []string{checkSettings, checkDatabase, checkTables, checkDatabaseDisk, checkNATS, checkNATSVersion, checkStreams, checkReplicas,
		checkStorage, CheckSync, checkNATSDisk, checkRights, CheckRightsWide, checkClocks, checkName, checkWeights} {
		if f := all.of(check); f.State != findingOK || f.What == "" {
			t.Errorf("%+v", f)
		}
	}
	if f := all.of(checkNode); f.State != FindingUnknown { // none runs
		t.Errorf("%+v", f)
	}
}

// TestDoctorFindsWeights: a share of a type that nobody has heard of.
//
// covers: OP23
func TestDoctorFindsWeights(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.cfg.Weights = []string{"type:ordr=4", "class:high=20", "tenant:acme=2"}
	p.finds([]string{checkWeights}, "weights of types without a plan: ordr")
}

// between is a proxy that changes what a server says. Both sides end with the test.
func between(t *testing.T, to string, change func([]byte)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
			all.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
			all.Go(func() {
				defer client.Close()
				buf := make([]byte, 64<<10)
				for {
					n, err := server.Read(buf)
					change(buf[:n])
					if _, werr := client.Write(buf[:n]); err != nil || werr != nil {
						return
					}
				}
			})
		}
	})
	return l.Addr().String()
}

// replace puts a text of the same length in place of another.
func replace(in []byte, old, with string) {
	if i := strings.Index(string(in), old); i >= 0 {
		copy(in[i:], with)
	}
}

// TestDoctorFindsAnOldServer: a NATS server whose greeting says an old version: it is a real one behind a proxy, because
// none so old is at hand.
//
// covers: OP23
func TestDoctorFindsAnOldServer(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	old := "2.14.9"
	if len(old) != len(natsd.VERSION) {
		t.Fatalf("the server's version is %s", natsd.VERSION)
	}
	address := between(t, p.nats.Addr().String(), func(said []byte) { replace(said, `"version":"`+natsd.VERSION, `"version":"`+old) })
	p.cfg.NATSURL = "nats://node:s3cret@" + address
	p.finds([]string{checkNATSVersion}, old, "want 2.15 or newer")
	if f := p.examine().of(checkStreams); f.State != FindingUnknown {
		t.Errorf("what could not be looked at is %s", f.State)
	}
	// Another server of the same cluster.
	p.cfg.NATSURL = "nats://node:s3cret@" + p.nats.Addr().String()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"server_name":"other","version":"2.10.1","jetstream":{"config":{"max_storage":1073741824,"sync_always":true}}}`)
	}))
	t.Cleanup(other.Close)
	all := findings(Examine(t.Context(), p.cfg, Examination{Monitors: []string{other.URL}}))
	if f := all.of(checkNATSVersion); f.State != FindingWrong || !strings.Contains(f.What, "server other has version 2.10.1; 2.15 or newer is required") {
		t.Errorf("%+v", f)
	}
}

// TestDoctorFindsStreamSettings: a stream that confirms before it writes, does not confirm at all, or takes nothing.
//
// covers: OP23
func TestDoctorFindsStreamSettings(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	for says, change := range map[string]func(*jetstream.StreamConfig){
		"DULY_TASKS: persist mode is Async, want Default": func(s *jetstream.StreamConfig) { s.PersistMode = jetstream.AsyncPersistMode },
		"DULY_TASKS: no ack is true, want false":          func(s *jetstream.StreamConfig) { s.NoAck = true },
		"DULY_TASKS: sealed is true, want false":          func(s *jetstream.StreamConfig) { s.Sealed = true },
		"DULY_TASKS: mirror of is DULY_DEAD, want none": func(s *jetstream.StreamConfig) {
			s.Mirror, s.Subjects, s.SubjectTransform = &jetstream.StreamSource{Name: "DULY_DEAD"}, nil, nil
		},
	} {
		p.spoil(change)
		p.finds([]string{checkStreams}, says)
		if f := p.examine().of(checkStreams); !strings.Contains(f.Mend, "nats stream rm DULY_TASKS") {
			t.Errorf("%s: %s", says, f.Mend)
		}
		if err := p.admin().DeleteStream(t.Context(), "DULY_TASKS"); err != nil {
			t.Fatal(err)
		}
		p.finds([]string{checkStreams}, "missing: DULY_TASKS")
		p.visit()
	}
	p.finds(nil)
}

// TestDoctorFindsSync: a server that syncs from time to time.
//
// covers: OP23
func TestDoctorFindsSync(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.restart(func(o *natsd.Options) { o.SyncAlways, o.SyncInterval = false, 10*time.Second })
	p.finds([]string{CheckSync}, "server solo syncs every 10s, not always")
	all := findings(Examine(t.Context(), p.cfg, Examination{}))
	if f := all.of(CheckSync); f.State != FindingUnknown || !strings.Contains(f.What, "--nats-monitor") {
		t.Errorf("without a monitor: %+v", f)
	}
}

// TestDoctorFindsAStreamThatIsTooLarge: for the server's store, for the account, or without any bound.
//
// covers: OP23
func TestDoctorFindsAStreamThatIsTooLarge(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.cfg.StreamMaxBytes = 2 << 30
	p.finds([]string{checkStorage}, "of server solo has 1.0 GiB")
	p.cfg.StreamMaxBytes = 0
	p.spoil(func(s *jetstream.StreamConfig) { s.MaxBytes = -1 })
	p.finds([]string{checkStorage}, "DULY_TASKS has no size limit")
	p.spoil(func(s *jetstream.StreamConfig) { s.MaxBytes = 64 << 20 })
	p.finds(nil)
}

// TestDoctorFindsALaggingReplica: of three servers of a cluster one is away, and its copies fall behind.
//
// covers: OP23
func TestDoctorFindsALaggingReplica(t *testing.T) {
	t.Parallel()
	ports := make([]int, 3)
	var routes []string
	for i := range ports {
		ports[i] = freeport.Of(t)
		routes = append(routes, "nats-route://"+freeport.Addr(ports[i]))
	}
	servers := make([]*natsserver.Server, 3)
	var urls, monitors []string
	for i := range servers {
		var err error
		if servers[i], err = natsserver.Start(natsserver.Options{Dir: t.TempDir(), Name: fmt.Sprintf("n%d", i), HTTPMonitorPort: -1, Ready: 30 * time.Second,
			Cluster: &natsserver.Cluster{Name: "c", Port: ports[i], Routes: routes}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = servers[i].Shutdown() }) // one is down already
		urls = append(urls, servers[i].ClientURL())
		monitors = append(monitors, servers[i].MonitorURL())
	}
	p := &patients{t: t, cfg: good()}
	p.cfg.Namespace, p.cfg.StreamReplicas, p.cfg.DatabaseURL, p.cfg.NATSURL = wire.DefaultNamespace, 3, pgtestdb.Installation(t), strings.Join(urls, ",")
	p.cfg.StreamMaxBytes, p.cfg.StreamEventsMaxBytes, p.cfg.StreamControlMaxBytes, p.cfg.StreamDeadMaxBytes = 64<<20, 16<<20, 8<<20, 8<<20
	if err := Migrate(t.Context(), p.cfg.DatabaseURL); err != nil {
		t.Fatal(err)
	}
	until(t, "the cluster takes the streams", func() bool {
		n, err := Open(t.Context(), p.cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			return false
		}
		return n.Close() == nil
	})
	look := func() Finding {
		return findings(Examine(t.Context(), p.cfg, Examination{Monitors: monitors, Timeout: 20 * time.Second})).of(checkReplicas)
	}
	until(t, "every copy is up to date", func() bool { return look().State == findingOK })
	if err := servers[2].Shutdown(); err != nil {
		t.Fatal(err)
	}
	until(t, "the copy of the server that is away is named", func() bool {
		f := look()
		return f.State == FindingWrong && strings.Contains(f.What, "n2 is away") && f.Why != "" && f.Mend != ""
	})
}

// TestDoctorFindsTheDatabasesVersion: tables of another version, and a server that is too old: a real one behind a proxy,
// because none so old is at hand.
//
// covers: OP23
func TestDoctorFindsTheDatabasesVersion(t *testing.T) {
	p := healthy(t)
	db, err := pgx.Connect(t.Context(), p.cfg.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(context.WithoutCancel(t.Context())) })
	exec := func(query string, a ...any) {
		t.Helper()
		if _, err := db.Exec(t.Context(), query, a...); err != nil {
			t.Fatal(err)
		}
	}
	var newest, number int64
	if err := db.QueryRow(t.Context(), `SELECT max(version_id), current_setting('server_version_num')::INT8 FROM goose_db_version`).Scan(&newest, &number); err != nil {
		t.Fatal(err)
	}
	exec(`DELETE FROM goose_db_version WHERE version_id = $1`, newest)
	p.finds([]string{checkTables}, "run `duly migrate`")
	exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, TRUE), ($2, TRUE)`, newest, newest+100)
	p.finds([]string{checkTables}, "newer binary")
	exec(`DELETE FROM goose_db_version WHERE version_id = $1`, newest+100)
	p.finds(nil)

	u, err := url.Parse(p.cfg.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	was := string(binary.BigEndian.AppendUint64(nil, uint64(number)))
	old := string(binary.BigEndian.AppendUint64(nil, 130012))
	u.Host = between(t, u.Host, func(said []byte) { replace(said, was, old) })
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	p.cfg.DatabaseURL = u.String()
	p.finds([]string{checkTables}, "PostgreSQL 14 or newer is required")
}

// TestDoctorFindsAWrongClock: this machine's is 90 s ahead.
//
// covers: OP23
func TestDoctorFindsAWrongClock(t *testing.T) {
	p := healthy(t)
	p.cfg.Now = func() time.Time { return time.Now().Add(90 * time.Second) }
	p.finds([]string{checkClocks}, "ahead of NATS's", "ahead of the database's", "1m")
}

// TestDoctorFindsRights: one that is missing, an inbox that the user may not hear, some that no role needs, and no user at all.
//
// covers: OP23, U1
func TestDoctorFindsRights(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	least := p.user.Permissions.Publish.Allow
	lacks := slices.DeleteFunc(slices.Clone(least), func(s string) bool { return s == "duly.control.*" })
	p.user.Permissions.Publish.Allow = lacks
	p.restart(func(*natsd.Options) {})
	p.finds([]string{checkRights}, "may not publish to duly.control.*", "role")
	if f := p.examine().of(checkRights); !strings.Contains(f.Mend, "duly nats-permissions --namespace duly duly=node") {
		t.Errorf("%s", f.Mend)
	}
	p.cfg.NATSInbox = "_INBOX_other"
	p.finds([]string{checkRights}, "NATS_INBOX_PREFIX", "_INBOX_other")
	if f := p.examine().of(checkRights); !strings.Contains(f.Mend, "NATS_INBOX_PREFIX=") {
		t.Errorf("%s", f.Mend)
	}
	p.cfg.NATSInbox = ""
	p.user.Permissions.Publish.Allow = append(slices.Clone(least), "$JS.API.STREAM.DELETE.*", "shop.>")
	p.restart(func(*natsd.Options) {})
	p.finds([]string{CheckRightsWide}, "may publish to $JS.API.STREAM.DELETE.*; shop.>", "no role of this node needs")
	p.user.Permissions = nil
	p.restart(func(*natsd.Options) {})
	p.finds([]string{CheckRightsWide}, "may publish to >, and may subscribe to >")
	p.restart(func(o *natsd.Options) { o.Users = nil })
	p.cfg.NATSURL = "nats://" + p.nats.Addr().String()
	p.finds([]string{CheckRightsWide}, "anyone who can reach it may do everything")
}

// TestDoctorFindsANodesNameTwice: another node has this node's name; the one that has it is no mistake.
//
// covers: OP23
func TestDoctorFindsANodesNameTwice(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	address := freeport.Addr(freeport.Of(t))
	mine := p.cfg
	mine.HTTPAddr, mine.TLSCert, mine.TLSKey = address, filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	writeCertificate(t, "n1", mine.TLSCert, mine.TLSKey)
	running(t, mine)
	p.cfg.HTTPAddr, p.cfg.TLSCert, p.cfg.TLSKey = address, mine.TLSCert, mine.TLSKey
	until(t, "the node is ready", func() bool { return p.examine().of(checkNode).State == findingOK })
	p.finds(nil)
	if f := p.examine().of(checkName); !strings.Contains(f.What, "is the node that serves http-addr "+address) {
		t.Errorf("%+v", f)
	}
	p.cfg.HTTPAddr = "127.0.0.1:1"
	p.finds([]string{checkName}, `another live process has it: "n1", since`)
	p.cfg.HTTPAddr = p.nats.MonitorAddr().String() // something else serves there
	if f := p.examine().of(checkName); f.State != FindingUnknown || !strings.Contains(f.What, "whether it is this one cannot be determined") {
		t.Errorf("%+v", f)
	}
}

// TestDoctorLooksAtWhatItCan: with NATS and database away each is told, and nothing else is called well or wrong.
func TestDoctorLooksAtWhatItCan(t *testing.T) {
	t.Parallel()
	cfg := good()
	cfg.NATSURL, cfg.DatabaseURL = "nats://127.0.0.1:1", "postgres://u:s3cret@127.0.0.1:1/d"
	all := findings(Examine(t.Context(), cfg, Examination{Timeout: time.Second}))
	for _, f := range all {
		want := FindingUnknown
		switch f.Check {
		case checkNATS, checkDatabase:
			want = FindingWrong
		case checkSettings:
			want = findingOK
		}
		if f.State != want || strings.Contains(f.What, "s3cret") {
			t.Errorf("%+v", f)
		}
	}
	cfg.DatabaseURL = ""
	for _, check := range []string{checkDatabase, checkTables, checkDatabaseDisk} {
		if f := findings(Examine(t.Context(), cfg, Examination{Timeout: time.Second})).of(check); f.State != FindingUnknown || !strings.Contains(f.What, "--database-url") {
			t.Errorf("%+v", f)
		}
	}
	cfg.Partitions = 0
	if all := Examine(t.Context(), cfg, Examination{}); len(all) != 1 || all[0].State != FindingWrong || !strings.Contains(all[0].What, "partitions: 0") {
		t.Errorf("%+v", all)
	}
}

// TestExamineChangesNothing: the streams are the same after an examination as before.
func TestExamineChangesNothing(t *testing.T) {
	p := healthy(t)
	before := streamsOf(t, p)
	p.cfg.StreamMaxBytes, p.cfg.StreamReplicas = 128<<20, 3
	p.examine()
	if after := streamsOf(t, p); before != after {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

func streamsOf(t *testing.T, p *patients) string {
	t.Helper()
	var b strings.Builder
	list := p.admin().ListStreams(t.Context())
	for info := range list.Info() {
		data, err := json.Marshal(info.Config)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d\n", data, info.State.LastSeq)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
