package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/internal/rights"
	"duly.dev/duly/internal/wire"
)

// violations is a server's log, of which it keeps what tells of a missing right, and which
// subjects were published and subscribed to.
type violations struct {
	mu   sync.Mutex
	all  []string
	used map[string]bool
}

func (*violations) Noticef(string, ...any)          {}
func (*violations) Fatalf(string, ...any)           {}
func (*violations) Debugf(string, ...any)           {}
func (v *violations) Warnf(format string, a ...any) { v.Errorf(format, a...) }
func (v *violations) Errorf(format string, a ...any) {
	if line := fmt.Sprintf(format, a...); strings.Contains(line, "iolation") {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.all = append(v.all, line)
	}
}

// tracedUse finds the subject in the trace of what a client sent.
var tracedUse = regexp.MustCompile(`<<- \[(?:H?PUB|SUB) (\S+)`)

func (v *violations) Tracef(format string, a ...any) {
	if m := tracedUse.FindStringSubmatch(fmt.Sprintf(format, a...)); m != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.used[m[1]] = true
	}
}

// list is what was denied, without each process's first question: whether it may hear the library's inboxes.
func (v *violations) list() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(v.all), func(line string) bool {
		return strings.Contains(line, `Subscription Violation - Subject "_INBOX.`)
	})
}

// secured is a NATS server whose users are those of `duly nats-permissions`, and an
// administrator.
type secured struct {
	*violations
	t       *testing.T
	server  *natsd.Server // nil after secureApart
	addr    string
	reloads func() // nil after secure
	config  string // the file
	users   string // what the command printed
}

var userLine = regexp.MustCompile(`user = "([^"]+)", password = \$(\w+)`)

// secure starts one; each call of the command is one list of arguments.
func secure(t *testing.T, calls ...[]string) *secured {
	t.Helper()
	s := configured(t, calls...)
	s.start()
	return s
}

// secureApart starts one whose users can be changed while it runs. It does not record violations.
func secureApart(t *testing.T, calls ...[]string) *secured {
	t.Helper()
	s := configured(t, calls...)
	s.addr, s.reloads = natsApart(t, s.config)
	return s
}

// configured writes the configuration of one that is not started yet.
func configured(t *testing.T, calls ...[]string) *secured {
	t.Helper()
	s := &secured{t: t, violations: &violations{used: map[string]bool{}}, config: filepath.Join(t.TempDir(), "nats.conf")}
	for _, args := range calls {
		code, out, errs := command(t, "", append([]string{"nats-permissions"}, args...)...)
		if code != 0 {
			t.Fatalf("nats-permissions %q: %d %s", args, code, errs)
		}
		_, out, _ = strings.Cut(out, "users = [\n")
		s.users += userLine.ReplaceAllString(strings.TrimSuffix(out, "]\n"), `user = "$1", password = "secret-of-$1"`)
	}
	s.write(s.users)
	return s
}

// start starts the server of the configuration.
func (s *secured) start() {
	s.t.Helper()
	options, err := natsOptions(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	options.Trace = true
	server, err := natsd.NewServer(options)
	if err != nil {
		s.t.Fatal(err)
	}
	server.SetLoggerV2(s.violations, false, true, false)
	go server.Start()
	s.t.Cleanup(func() {
		server.Shutdown()
		server.WaitForShutdown()
	})
	if !server.ReadyForConnections(10 * time.Second) {
		s.t.Fatal("the server does not start")
	}
	s.server, s.addr = server, server.Addr().String()
}

// write makes the configuration, with these users.
func (s *secured) write(users string) {
	s.t.Helper()
	text := fmt.Sprintf(`
listen: "127.0.0.1:-1"
max_payload: 8MB
jetstream { store_dir: %q }
accounts {
  SYS { users = [ { user = sys, password = sys } ] }
  APP {
    jetstream: enabled
    users = [
      { user = admin, password = admin }
%s    ]
  }
}
system_account: SYS
`, filepath.Join(filepath.Dir(s.config), "store"), users)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// reload changes the users of a server that secureApart started. Its port stays.
func (s *secured) reload(users string) {
	s.t.Helper()
	s.write(users)
	s.reloads()
}

func (s *secured) url(user string) string {
	return fmt.Sprintf("nats://%s:%s@%s", user, s.password(user), s.addr)
}

func (s *secured) password(user string) string {
	if user == "admin" {
		return user
	}
	return "secret-of-" + user
}

// connect connects as a user with its inbox prefix; what the server refuses goes to refused.
func (s *secured) connect(user string, refused func(error)) *nats.Conn {
	s.t.Helper()
	nc, err := nats.Connect("nats://"+s.addr, nats.UserInfo(user, s.password(user)), nats.Name(user), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
		nats.CustomInboxPrefix(wire.InboxOf(user)), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				refused(err)
			}
		}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	return nc
}

// mustNot is for connections that may do all they try.
func (s *secured) mustNot(err error) { s.t.Error(err) }

// args are those of a node as a user.
func (s *secured) args(user, roles, db string, more ...string) []string {
	return append([]string{"serve", "--roles", roles, "--node-name", user, "--nats-url", s.url(user),
		"--database-url", db, "--http-addr", "127.0.0.1:0", "--partitions", "4", "--lease", "1s", "--scan-interval", "100ms", "--drain", "2s"}, more...)
}

// serve starts a node as a user.
func (s *secured) serve(user, roles, db string, more ...string) *child {
	s.t.Helper()
	return start(s.t, s.args(user, roles, db, more...)...)
}

func migrated(t *testing.T) (db string) {
	t.Helper()
	db = pgtestdb.Installation(t)
	if code, _, errs := command(t, "", "migrate", "--database-url", db); code != 0 {
		t.Fatal(errs)
	}
	return db
}

// What is traded under permissions.
type (
	goods struct {
		Cents int
		Pad   string
	}
	receipt struct{ ID string }
)

var (
	payStep  = duly.NewStep[goods, receipt]("pay", "till.pay")
	postStep = duly.NewStep[goods, receipt]("post", "post", duly.CompleteBy(2*time.Second))
	shipStep = duly.NewStep[goods, receipt]("ship", "ship", duly.Attempts(1))
	failStep = duly.NewStep[goods, receipt]("fail", "ship.fail", duly.Attempts(1), duly.OnExhausted(duly.PolicyError))
	// A check: under load a retry may count as heard by an agent that is not there, whose undo would wait for it.
	goneStep = duly.NewCheck[goods, receipt]("gone", "absent", duly.CompleteBy(2*time.Second), duly.Attempts(2), duly.Backoff(10*time.Millisecond, 20*time.Millisecond))
	holdStep = duly.NewCheck[goods, receipt]("hold", "absent", duly.CompleteBy(5*time.Second))

	orders  = duly.NewPlan("orders", 1, payStep, postStep, shipStep)
	broken  = duly.NewPlan("broken", 1, failStep)
	lonely  = duly.NewPlan("lonely", 1, payStep, goneStep)
	waiting = duly.NewPlan("waiting", 1, payStep, holdStep)
)

// guarded is everything at work under the permissions of `duly nats-permissions`.
type guarded struct {
	*secured
	db                 string
	done               atomic.Int64 // calls of agents
	chief, shop, till  *duly.Client
	shopConn, tillConn *nats.Conn
}

// guard starts everything but the schedulers.
func guard(t *testing.T, namespace string) *guarded {
	t.Helper()
	ns := []string{"--namespace", namespace}
	g := &guarded{db: migrated(t), secured: secure(t,
		append(ns, "door=ingest", "first=scheduler", "second=scheduler", "watcher=supervisor", "crew=agent:till.pay,ship,ship.fail", "alien=foreign-agent:post",
			"chief=operator", "till=submitter:orders,broken,lonely,waiting", "--reply-to-prefixes", "_INBOX_,_INBOX_shop.,status."),
		append(ns, "shop=submitter:orders", "--plain-door", "--events"))}
	return g
}

func (g *guarded) populate(namespace string) {
	t := g.t
	t.Helper()
	crew := g.connect("crew", g.mustNot)
	agent, err := duly.NewAgent(crew, duly.Namespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	paid := func(_ context.Context, call duly.Call[goods]) (receipt, error) {
		g.done.Add(1)
		return receipt{call.Key}, nil
	}
	shipped := func(_ context.Context, call duly.Call[goods]) (receipt, error) {
		if call.Input.Cents == 13 {
			return receipt{}, duly.Refuse(errors.New("that cannot be sent"))
		}
		return receipt{call.Key}, nil
	}
	failed := func(context.Context, duly.Call[goods]) (receipt, error) { return receipt{}, errors.New("broken") }
	undone := func(context.Context, duly.Undo[goods, receipt]) error { return nil }
	if err := errors.Join(payStep.Serve(agent, paid, undone), shipStep.Serve(agent, shipped, undone), failStep.Serve(agent, failed, undone)); err != nil {
		t.Fatal(err)
	}
	background(t, agent.Run)

	alien := g.connect("alien", g.mustNot)
	for _, verb := range []string{"do", "undo"} {
		if _, err := alien.QueueSubscribe(namespace+"."+verb+".post", "q", func(m *nats.Msg) {
			if err := m.Respond([]byte(`{"ID":"posted"}`)); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := alien.Flush(); err != nil {
		t.Fatal(err)
	}
	g.shopConn, g.tillConn = g.connect("shop", g.mustNot), g.connect("till", g.mustNot)
	client := func(nc *nats.Conn, options ...duly.ClientOption) *duly.Client {
		c, err := duly.NewClient(nc, append(options, duly.Namespace(namespace))...)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	g.chief, g.shop, g.till = client(g.connect("chief", g.mustNot)), client(g.shopConn), client(g.tillConn, duly.WithoutEvents())
}

func (g *guarded) within() context.Context {
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	g.t.Cleanup(cancel)
	return ctx
}

// ends watches a task to its end.
func (g *guarded) ends(c *duly.Client, typ, id string, want duly.State) {
	g.t.Helper()
	var last duly.Status
	for status, err := range c.Watch(g.within(), typ, id) {
		if err != nil {
			g.t.Errorf("watch %s: %v", id, err)
			return
		}
		last = status
	}
	if last.State != want {
		g.t.Errorf("%s: %+v, want %s", id, last, want)
	}
}

// TestLeastPrivilege runs everything with exactly the permissions that `duly
// nats-permissions` prints: both doors, do, undo, errors, deadlines, cancel, watch, lists,
// plans, a takeover, streams that are lost, and one that fills up. The server refuses
// nothing; after that it refuses everybody what is not theirs.
//
// covers: C11, C17, U1
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	const namespace = "prod"
	g := guard(t, namespace)
	// The others wait for a scheduler, which makes the streams.
	door, watcher := g.serve("door", "ingest", g.db, "--namespace", namespace), g.serve("watcher", "supervisor", g.db, "--namespace", namespace)
	until(t, "the door waits for the streams", func() bool { return strings.Contains(door.log(), "stream is missing") })
	size := []string{"--namespace", namespace, "--stream-max-bytes", fmt.Sprint(8 << 20)}
	first := mortal(t, g.args("first", "scheduler", g.db, size...)...)
	metrics := first.ready() + "/metrics"
	door.ready()
	watcher.ready()
	g.populate(namespace)
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience) // of all of it
	defer cancel()
	for _, err := range []error{orders.Apply(ctx, g.chief), broken.Apply(ctx, g.chief), lonely.Apply(ctx, g.chief), waiting.Apply(ctx, g.chief)} {
		if err != nil {
			t.Fatal(err)
		}
	}

	// Both doors, do and undo; many at once, so that commands and replies go in batches.
	work := func(from, to int) {
		t.Helper()
		var wg sync.WaitGroup
		for i := from; i < to; i++ {
			wg.Go(func() {
				id, order, end := fmt.Sprintf("o-%d", i), goods{Cents: 100}, duly.StateProcessed
				if i%5 == 0 {
					order.Cents, end = 13, duly.StateUndone
				}
				client := g.shop
				switch i % 3 {
				case 0:
					client = g.till
				case 1:
					js, err := g.shopConn.JetStream()
					if err != nil {
						t.Error(err)
						return
					}
					data, _ := json.Marshal(order)
					// A confirmation is lost with the connection; the same id again is the same task.
					for _, err = js.Publish(namespace+".in.orders."+id, data); err != nil; _, err = js.Publish(namespace+".in.orders."+id, data) {
						if ctx.Err() != nil {
							t.Errorf("plain door: %v", err)
							return
						}
					}
					g.ends(client, "orders", id, end)
					return
				}
				if _, err := orders.Submit(ctx, client, id, order); err != nil {
					t.Error(err)
					return
				}
				g.ends(client, "orders", id, end)
			})
		}
		wg.Wait()
	}
	round := 0
	until(t, "batches of replies", func() bool {
		work(round, round+100)
		round += 100
		return g.usedBy(namespace + `\.batch\.reply\.[^.]+\.till\.pay\.`)
	})

	until(t, "the lag of the task stream is told", func() bool { return strings.Contains(page(t, metrics), "\nduly_partition_lag{") })

	// Statuses at the submitters' own subjects.
	for _, x := range []struct {
		nc *nats.Conn
		c  *duly.Client
	}{{g.shopConn, g.shop}, {g.tillConn, g.till}} {
		inbox := x.nc.NewInbox()
		sub, err := x.nc.SubscribeSync(inbox)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := orders.Submit(ctx, x.c, "s-"+x.nc.Opts.Name, goods{Cents: 1}, duly.ReplyTo(inbox)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []duly.State{duly.StateReceived, duly.StateProcessed} {
			msg, err := sub.NextMsg(patience)
			if err != nil {
				t.Fatalf("%s: status %s: %v", x.nc.Opts.Name, want, err)
			}
			if status, err := duly.ParseStatus(msg.Data); err != nil || status.State != want {
				t.Errorf("%s: %+v, %v, want %s", x.nc.Opts.Name, status, err, want)
			}
		}
	}

	// What operators want of the flow: who lives, a pin that is put, read and forgotten, and that pauses have changed.
	flow, err := natsbus.Dial(ctx, natsbus.Options{URL: "nats://door:" + g.password("door") + "@" + g.addr, Name: "door", InboxPrefix: wire.InboxOf("door"), Namespace: namespace, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer flow.Close()
	pin := core.Wish{Partition: 1, Node: "first"}
	if err := errors.Join(flow.PutWish(ctx, pin), flow.AnnouncePauses()); err != nil {
		t.Fatal(err)
	}
	if is, err := flow.Wish(ctx, 1); err != nil || is != pin {
		t.Errorf("%+v, %v", is, err)
	}
	if err := flow.PutWish(ctx, core.Wish{Partition: 1}); err != nil {
		t.Error(err)
	}
	if all, more, err := flow.Instances(ctx, []string{"till.pay", "ship", "post"}); err != nil || more || !slices.ContainsFunc(all, func(is natsbus.AgentInstance) bool { return is.Agent == "till.pay" }) {
		t.Errorf("agents %+v, %v, %v", all, more, err)
	}
	if lags, err := flow.Lags(ctx); err != nil || len(lags) == 0 {
		t.Errorf("%v, %v", lags, err)
	}

	// What the plain door cannot be, and what an operator must see.
	js, err := g.shopConn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct{ id, data string }{{"bad-1", `no JSON`}, {"o-1", `{"other":1}`}} {
		if _, err := js.Publish(namespace+".in.orders."+bad.id, []byte(bad.data)); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range g.shop.Watch(ctx, "orders", "bad-1") {
		if !errors.Is(err, duly.ErrRefused) {
			t.Errorf("bad-1: %v", err)
		}
	}
	for end, err := range g.shop.Ends(ctx, "orders", 0) {
		if err != nil {
			t.Errorf("ends: %v", err)
		}
		if err != nil || end.Task == "bad-1" {
			break
		}
	}
	if _, err := broken.Submit(ctx, g.till, "b-1", goods{}); err != nil {
		t.Fatal(err)
	}
	g.ends(g.till, "broken", "b-1", duly.StateError)
	until(t, "the supervisor tells of the error", func() bool { return strings.Contains(watcher.log(), "task=b-1") })
	// What is overdue.
	if _, err := lonely.Submit(ctx, g.till, "l-1", goods{}, duly.Within(3*time.Second)); err != nil {
		t.Fatal(err)
	}
	g.ends(g.till, "lonely", "l-1", duly.StateUndone)
	// Cancelling, and looking.
	if _, err := waiting.Submit(ctx, g.till, "w-1", goods{}); err != nil {
		t.Fatal(err)
	}
	if err := g.till.Cancel(ctx, "waiting", "w-1", "no longer wanted"); err != nil {
		t.Error(err)
	}
	g.ends(g.till, "waiting", "w-1", duly.StateUndone)
	if task, err := g.till.Get(ctx, "orders", "o-0"); err != nil || task.State != duly.StateUndone {
		t.Errorf("get: %+v, %v", task, err)
	}
	for _, c := range []struct {
		client *duly.Client
		filter duly.Filter
	}{{g.till, duly.Filter{Type: "orders"}}, {g.chief, duly.Filter{}}} {
		if page, err := c.client.List(ctx, c.filter); err != nil || len(page.Tasks) == 0 {
			t.Errorf("list %+v: %d, %v", c.filter, len(page.Tasks), err)
		}
	}
	if _, err := waiting.Submit(ctx, g.till, "w-2", goods{}); err != nil {
		t.Fatal(err)
	}
	if err := g.chief.Cancel(ctx, "waiting", "w-2", "by the operator"); err != nil {
		t.Error(err)
	}

	// A second scheduler takes over what the first one leaves.
	if _, err := waiting.Submit(ctx, g.till, "w-3", goods{}); err != nil {
		t.Fatal(err)
	}
	second := g.serve("second", "scheduler", g.db, append(size, "--stream-events-max-bytes", fmt.Sprint(64<<20), "--stream-replicas", "1")...) // which changes a stream
	second.ready()
	first.kill()
	work(round, round+40)
	if err := g.till.Cancel(ctx, "waiting", "w-3", ""); err != nil {
		t.Error(err)
	}
	g.ends(g.till, "waiting", "w-3", duly.StateUndone)

	// A stream and the buckets are lost while all runs, and a scheduler makes them again.
	admin, err := g.connect("admin", g.mustNot).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range []string{"PROD_CONTROL", "KV_PROD_NODES", "KV_PROD_PARTITIONS", "KV_PROD_KEYS", "PROD_EVENTS", "PROD_DEAD"} {
		if err := admin.DeleteStream(stream); err != nil {
			t.Fatal(err)
		}
		until(t, stream+" is made again", func() bool { _, err := admin.StreamInfo(stream); return err == nil })
	}
	work(round+40, round+50)

	// What cannot be read goes to the dead letters.
	for _, subject := range []string{namespace + ".tasks.0.pack", namespace + ".control.0"} {
		if _, err := admin.Publish(subject, []byte("garbage")); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "dead letters", func() bool {
		info, err := admin.StreamInfo("PROD_DEAD")
		return err == nil && info.State.Msgs >= 2
	})

	// All connections are lost.
	connections, err := g.server.Connz(&natsd.ConnzOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range connections.Conns {
		if err := g.server.DisconnectClientByID(c.Cid); err != nil {
			t.Fatal(err)
		}
	}
	work(round+50, round+60)

	// The task stream fills up, and room is made in it.
	pad := strings.Repeat("x", 200<<10)
	for i := range 40 {
		if _, err := orders.Submit(ctx, g.till, fmt.Sprintf("big-%d", i), goods{Cents: 1, Pad: pad}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "room is made in the task stream", func() bool {
		info, err := admin.StreamInfo("PROD_TASKS")
		return err == nil && info.State.FirstSeq > 1
	})

	if code := second.term(); code != 0 {
		t.Errorf("the second scheduler ended with %d", code)
	}
	if all := g.list(); len(all) > 0 {
		t.Errorf("%d violations:\n%s", len(all), strings.Join(all, "\n"))
	}
	if os.Getenv("DULY_TEST_LOG") != "" {
		g.unused()
	}
}

// page is what is served at an address.
func page(t *testing.T, at string) string {
	t.Helper()
	resp, err := http.Get(at)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	return string(text)
}

// usedBy reports whether a subject was published or subscribed to.
func (v *violations) usedBy(pattern string) bool {
	re := regexp.MustCompile(pattern)
	v.mu.Lock()
	defer v.mu.Unlock()
	for s := range v.used {
		if re.MatchString(s) {
			return true
		}
	}
	return false
}

// unused tells which permitted subjects no client has used.
func (g *guarded) unused() {
	for _, m := range regexp.MustCompile(`(?m)^          "([^"]+)"$`).FindAllStringSubmatch(g.users, -1) {
		subject, _, _ := strings.Cut(m[1], " ")
		re := "^" + strings.NewReplacer(`\*`, `[^.]+`, `>`, `.+`).Replace(regexp.QuoteMeta(subject)) + "$"
		if !g.usedBy(re) {
			g.t.Logf("unused: %s", subject)
		}
	}
}

// everyone are the users of the table below.
var everyone = []string{"door", "first", "watcher", "crew", "alien", "shop", "till", "desk", "chief"}

// TestForbidden tries everything that only some may do as everyone: the server refuses it
// to all others. Nothing listens there.
//
// covers: C11, C17
func TestForbidden(t *testing.T) {
	s := secure(t,
		[]string{"door=ingest", "first=scheduler", "watcher=supervisor", "crew=agent:pay", "alien=foreign-agent:post", "chief=operator", "till=submitter:orders", "desk=approver:orders"},
		[]string{"shop=submitter:orders", "--plain-door", "--events"})
	api := "$JS.API."
	publishes := map[string][]string{ // who may
		// What schedulers, doors and supervisors tell each other.
		"duly.tasks.0.pack": {"door"}, "duly.tasks.0.orders.o-1": nil, "duly.control.0": {"door", "watcher"},
		// Submitting, and requests: of the own types alone; a supervisor submits the tasks of schedules, of whatever type.
		"duly.submit.orders.o-1": {"shop", "till", "watcher"}, "duly.submit.refunds.o-1": {"watcher"}, "duly.in.orders.o-1": {"shop"}, "duly.in.refunds.o-1": nil,
		"duly.ask.get": {"chief"}, "duly.ask.get.orders": {"chief", "shop", "till", "desk"}, "duly.ask.get.refunds": {"chief"},
		"duly.ask.list": {"chief"}, "duly.ask.list.orders": {"chief", "shop", "till", "desk"}, "duly.ask.list.refunds": {"chief"},
		"duly.ask.cancel": {"chief"}, "duly.ask.cancel.orders": {"chief", "shop", "till"}, "duly.ask.cancel.refunds": {"chief"},
		"duly.ask.signal": {"chief"}, "duly.ask.signal.orders": {"chief", "desk"}, "duly.ask.signal.refunds": {"chief"},
		"duly.ask.edit.orders": {"chief"}, "duly.ask.accept.orders": {"chief"}, "duly.ask.undo.orders": {"chief"}, "duly.ask.resolve.orders": {"chief"}, "duly.ask.resubmit.orders": {"chief"}, "duly.ask.extend.orders": {"chief"},
		"duly.plans.apply": {"chief"}, "duly.plans.changed": {"first"},
		// What operators want of the flow, through the door.
		"duly.pauses.changed": {"door", "first"}, "duly.nodes.away": {"door"}, "duly.nodes.reading": {"first"}, "$SRV.STATS.duly-pay": {"door"}, "$SRV.STATS": nil, "$SRV.PING": nil, "$KV.DULY_PARTITIONS.wish.0": {"door", "first"}, "$KV.DULY_PARTITIONS.wish": {"first"},
		api + "DIRECT.GET.KV_DULY_PARTITIONS.$KV.DULY_PARTITIONS.wish.0": {"door", "first"}, api + "DIRECT.GET.KV_DULY_PARTITIONS.$KV.DULY_PARTITIONS.0": {"first"},
		// Commands, and answers to those of others.
		"duly.do.pay": {"first"}, "duly.undo.pay": {"first"}, "duly.batch.do.pay": {"first"}, "duly.batch.undo.post": {"first"},
		"duly.reply.0.1.1": nil, "duly.reply.0.1.1.0011223344556677": nil, "duly.batch.reply.x.1": nil,
		"duly.books.pay": {"watcher"}, "duly.probe.pay": {"first"},
		"duly.batch.reply.x.pay.1": {"crew"}, "duly.batch.reply.x.post.1": nil, "duly.batch.reply.x.pay.more.1": nil,
		// What is told of tasks.
		"duly.events.orders.processed": {"first"}, "duly.live.orders.o-1": {"first"}, "duly.dead.DULY_TASKS": {"first"}, "status.x": {"first"},
		"_INBOX_till.x": {"first"}, "_INBOX_door.x": nil, "_INBOX_chief.x": nil,
		// Leases, evidence, and the key of replies.
		"$KV.DULY_NODES.node.x": {"first"}, "$KV.DULY_NODES.leader": {"watcher"}, "$KV.DULY_PARTITIONS.0": {"first"}, "$KV.DULY_PARTITIONS.0.former": {"first"},
		"$KV.DULY_KEYS.replies": {"first"}, "$KV.DULY_KEYS.other": nil,
		api + "DIRECT.GET.KV_DULY_KEYS.$KV.DULY_KEYS.replies": {"first"}, api + "DIRECT.GET.KV_DULY_KEYS": nil, api + "STREAM.MSG.GET.KV_DULY_KEYS": nil,
		api + "CONSUMER.CREATE.KV_DULY_KEYS": nil, api + "CONSUMER.CREATE.KV_DULY_KEYS.x": nil, api + "CONSUMER.CREATE.KV_DULY_KEYS.x.$KV.DULY_KEYS.>": nil,
		api + "CONSUMER.DURABLE.CREATE.KV_DULY_KEYS.x": nil, api + "CONSUMER.MSG.NEXT.KV_DULY_KEYS.x": nil, api + "STREAM.SNAPSHOT.KV_DULY_KEYS": nil,
		api + "STREAM.INFO.KV_DULY_KEYS": {"first"},
		// The streams.
		api + "STREAM.CREATE.DULY_TASKS": {"first"}, api + "STREAM.UPDATE.DULY_EVENTS": {"first"}, api + "STREAM.UPDATE.KV_DULY_KEYS": {"first"}, api + "STREAM.CREATE.COPY": nil,
		api + "STREAM.DELETE.DULY_TASKS": nil, api + "STREAM.DELETE.KV_DULY_KEYS": nil, api + "STREAM.PURGE.DULY_TASKS": {"first"}, api + "STREAM.PURGE.DULY_CONTROL": {"first"},
		api + "STREAM.PURGE.KV_DULY_KEYS": nil, api + "STREAM.MSG.DELETE.DULY_TASKS": nil, api + "STREAM.NAMES": nil, api + "STREAM.LIST": nil, api + "STREAM.SNAPSHOT.DULY_TASKS": nil,
		api + "STREAM.MSG.GET.DULY_TASKS": {"first"}, api + "STREAM.MSG.GET.DULY_EVENTS": nil, api + "DIRECT.GET.DULY_EVENTS": nil, api + "STREAM.INFO.DULY_EVENTS": {"door", "first", "watcher", "shop"},
		api + "CONSUMER.CREATE.DULY_TASKS.x.duly.tasks.0.>": {"first"}, api + "CONSUMER.MSG.NEXT.DULY_TASKS.p00-e1-1": {"first"}, api + "CONSUMER.DELETE.DULY_TASKS.p00-e1-1": {"first"},
		api + "CONSUMER.CREATE.DULY_EVENTS": nil, api + "CONSUMER.CREATE.DULY_EVENTS.x": nil, api + "CONSUMER.DURABLE.CREATE.DULY_EVENTS.x": nil,
		api + "CONSUMER.CREATE.DULY_EVENTS.x.duly.events.orders.*": {"shop"}, api + "CONSUMER.CREATE.DULY_EVENTS.x.duly.events.refunds.*": nil,
		api + "CONSUMER.CREATE.DULY_EVENTS.x.duly.events.*.*": nil, api + "CONSUMER.CREATE.DULY_EVENTS.x.duly.events.>": nil,
		api + "CONSUMER.CREATE.DULY_EVENTS.alerts.duly.events.*.error": {"watcher"}, api + "CONSUMER.CREATE.DULY_EVENTS.alerts.duly.events.orders.*": nil,
		api + "CONSUMER.MSG.NEXT.DULY_EVENTS.alerts": {"watcher"}, api + "CONSUMER.DELETE.DULY_EVENTS.alerts": nil, api + "CONSUMER.LIST.DULY_EVENTS": nil, api + "CONSUMER.NAMES.DULY_EVENTS": nil,
		"$JS.ACK.DULY_TASKS.p00-e1-1.1.1.1.1.0": {"first"}, "$JS.ACK.DULY_EVENTS.alerts.1.1.1.1.0": {"watcher"},
		// Alerts: nodes tell, supervisors deliver.
		"duly.alerts.streams": {"door", "first", "watcher"}, "duly.alerts.a.b": nil, api + "STREAM.INFO.DULY_ALERTS": {"door", "first", "watcher"}, api + "STREAM.PURGE.DULY_ALERTS": {"first"},
		api + "CONSUMER.CREATE.DULY_ALERTS.delivery.duly.alerts.*": {"watcher"}, api + "CONSUMER.CREATE.DULY_ALERTS.x.duly.alerts.*": nil, api + "CONSUMER.CREATE.DULY_ALERTS": nil,
		api + "CONSUMER.MSG.NEXT.DULY_ALERTS.delivery": {"watcher"}, api + "CONSUMER.DELETE.DULY_ALERTS.delivery": nil, "$JS.ACK.DULY_ALERTS.delivery.1.1.1.1.0": {"watcher"},
		api + "STREAM.MSG.GET.DULY_ALERTS": nil, api + "CONSUMER.LIST.DULY_TASKS": {"door", "first"}, api + "CONSUMER.LIST.DULY_ALERTS": nil,
		"$SYS.REQ.SERVER.PING": nil, "anything": nil,
	}
	subscriptions := map[string][]string{ // with a queue group after a space
		"duly.do.pay q": {"crew"}, "duly.do.pay": nil, "duly.undo.pay q": {"crew"}, "duly.do.post q": {"alien"}, "duly.do.post": nil, "duly.undo.post q": {"alien"},
		"duly.batch.do.pay q": {"crew"}, "duly.batch.undo.pay": nil, "duly.batch.do.post q": nil, "duly.do.* q": nil, "duly.do.>": nil,
		"duly.reply.0.>": {"first"}, "duly.reply.>": nil, "duly.batch.reply.x.>": {"first"},
		"duly.submit.*.* ingest": {"door"}, "duly.submit.*.*": nil, "duly.submit.orders.* ingest": {"door"}, "duly.in.*.*": nil, "duly.tasks.>": nil, "duly.control.*": nil,
		"duly.ask.> ask": {"door"}, "duly.ask.>": nil, "duly.ask.*": nil, "duly.plans.apply plans": {"first"}, "duly.plans.apply": nil, "duly.plans.changed": {"door", "first"}, "duly.pauses.changed": {"first"}, "duly.nodes.away": {"first"}, "duly.nodes.reading": {"door"},
		"duly.live.orders.*": {"shop", "till"}, "duly.live.orders.o-1": {"shop", "till"}, "duly.live.refunds.*": nil, "duly.live.*.*": nil,
		"duly.alerts.*": nil, "duly.alerts.streams": nil, "duly.events.*.*": nil, "duly.events.orders.*": nil, "duly.dead.*": nil, "duly.>": nil, ">": nil, "*.*": nil,
		"$KV.DULY_KEYS.>": nil, "$KV.DULY_PARTITIONS.>": nil, "$KV.>": nil, "$JS.>": nil, "$JS.API.>": nil, "$JS.EVENT.>": nil, "$SYS.>": nil, "status.>": nil,
		"$SRV.PING": {"crew"}, "$SRV.PING.duly-pay": {"crew"}, "$SRV.PING.duly-post": nil, "$SRV.>": nil,
		"_INBOX.>": nil, "_INBOX.x": nil, "_INBOX_till.x": {"till"}, "_INBOX_door.x": {"door"}, "_INBOX_chief.>": {"chief"}, "_INBOX_alien.x": nil,
	}
	for _, user := range everyone {
		nc := s.connect(user, func(error) {})
		try := func(verb, what string, may []string, do func(subject, queue string) error) {
			t.Helper()
			subject, queue, _ := strings.Cut(what, " ")
			before := nc.LastError()
			if err := do(subject, queue); err != nil {
				t.Fatal(err)
			}
			if err := nc.Flush(); err != nil { // the server's word comes before its answer to this
				t.Fatal(err)
			}
			err := nc.LastError()
			refused := err != before && errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), verb+` to "`+subject+`"`)
			if want := !slices.Contains(may, user); refused != want {
				t.Errorf("%s, %s to %s: refused is %v, want %v (%v)", user, verb, what, refused, want, err)
			}
		}
		for subject, may := range publishes {
			try("Publish", subject, may, func(subject, _ string) error { return nc.Publish(subject, nil) })
		}
		for pattern, may := range subscriptions {
			try("Subscription", pattern, may, func(subject, queue string) error {
				_, err := nc.QueueSubscribeSync(subject, queue)
				return err
			})
		}
	}
}

// without are the users without one line of a permission, wherever it stands.
func (s *secured) without(right string) string {
	s.t.Helper()
	line := fmt.Sprintf("          %s\n", quoted(right))
	if !strings.Contains(s.users, line) {
		s.t.Fatalf("no user has %s", right)
	}
	return strings.ReplaceAll(s.users, line, "")
}

// TestMissingRightIsTold: a node whose NATS user may not do what one of its roles needs says
// within ten seconds which role and which subject, in its log and in readiness, also where
// it has not tried yet; it says so again when the right is there, and works then.
//
// covers: B10
func TestMissingRightIsTold(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ role, right, verb string }{
		{"ingest", "duly.submit.*.* ingest", "subscribe"},
		{"ingest", "duly.control.*", "publish"},
		{"scheduler", "duly.reply.*.>", "subscribe"},
		{"supervisor", "$KV.DULY_NODES.leader", "publish"},
	} {
		t.Run(x.role+" "+x.verb, func(t *testing.T) {
			t.Parallel()
			s := secureApart(t, []string{"n=node"})
			s.reload(s.without(x.right))
			n := s.serve("n", "ingest,scheduler,supervisor", migrated(t))
			var at string
			select {
			case addr := <-n.addr:
				at = "http://" + addr
			case <-n.done:
				t.Fatalf("it ended with %d", n.code)
			case <-time.After(patience):
				t.Fatal("http did not come up")
			}
			subject, _, _ := strings.Cut(x.right, " ")
			tells := func(text string) bool {
				return regexp.MustCompile("roles? [^:]*"+x.role).MatchString(text) && strings.Contains(text, "may not "+x.verb+" to "+subject)
			}
			soon(t, 10*time.Second, "not ready, and why", func() bool {
				code, all := readiness(t, at)
				f, ok := all["rights"]
				return code == 503 && ok && tells(f.Error)
			})
			soon(t, 10*time.Second, "the log tells", func() bool { return n.alerts("rights", "begin") == 1 && tells(n.log()) })
			s.reload(s.users)
			soon(t, 20*time.Second, "ready", func() bool { code, _ := readiness(t, at); return code == 200 })
			until(t, "the log tells the end", func() bool { return n.alerts("rights", "end") == 1 })
			if n.alerts("rights", "begin") != 1 {
				t.Error("it was told twice")
			}
			n.calm()
			s.works(t)

			// Taken away while it runs.
			s.reload(s.without(x.right))
			soon(t, 10*time.Second, "not ready again", func() bool {
				code, all := readiness(t, at)
				return code == 503 && tells(all["rights"].Error)
			})
		})
	}
}

// works submits a task over NATS, which one agent does.
func (s *secured) works(t *testing.T) {
	t.Helper()
	admin := s.connect("admin", s.mustNot)
	client, err := duly.NewClient(admin)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := duly.NewAgent(admin)
	if err != nil {
		t.Fatal(err)
	}
	paid := func(_ context.Context, call duly.Call[goods]) (receipt, error) { return receipt{call.Key}, nil }
	if err := payStep.Serve(agent, paid, func(context.Context, duly.Undo[goods, receipt]) error { return nil }); err != nil {
		t.Fatal(err)
	}
	background(t, agent.Run)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	plan := duly.NewPlan("one", 1, payStep)
	if err := plan.Apply(ctx, client); err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Submit(ctx, client, "o-1", goods{}); err != nil {
		t.Fatal(err)
	}
	var last duly.Status
	for status, err := range client.Watch(ctx, "one", "o-1") {
		if err != nil {
			t.Fatal(err)
		}
		last = status
	}
	if last.State != duly.StateProcessed {
		t.Errorf("it is %s: %s", last.State, last.Error)
	}
}

// TestMissingRightAtStart: a node that cannot begin without a right ends within ten
// seconds, and says which right and for which roles.
//
// covers: B10
func TestMissingRightAtStart(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ name, right, roles, want string }{
		{"account", "$JS.API.INFO", "ingest", `Publish to "$JS.API.INFO"`},
		{"stream", "$JS.API.STREAM.INFO.DULY_TASKS", "ingest,supervisor", `Publish to "$JS.API.STREAM.INFO.DULY_TASKS"`},
		{"key", "$KV.DULY_KEYS.replies", "scheduler", `Publish to "$KV.DULY_KEYS.replies"`},
		{"inbox", "_INBOX_n.>", "scheduler", `Subscription to "_INBOX_n.`},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s := configured(t, []string{"n=node"})
			s.write(s.without(x.right))
			s.start()
			n := s.serve("n", x.roles, migrated(t))
			began := time.Now()
			select {
			case <-n.done:
			case <-time.After(patience):
				t.Fatal("it goes on")
			}
			// Ten where the machine is not slow; who waited for streams would take more than thirty.
			if took := time.Since(began); took > 25*time.Second {
				t.Errorf("it took %v", took)
			}
			if log := n.log(); n.code == 0 || !strings.Contains(log, x.want) || !strings.Contains(log, strings.ReplaceAll(x.roles, ",", ", ")) || !strings.Contains(log, "duly nats-permissions") {
				t.Errorf("it ended with %d:\n%s", n.code, log)
			}
		})
	}
}

// TestCommandsWithoutRights: a command whose user may not ask what it has to says so at once, and which right is missing.
//
// covers: U4
func TestCommandsWithoutRights(t *testing.T) {
	t.Parallel()
	s := secure(t, []string{"shop=submitter:order"})
	order := filepath.Join(t.TempDir(), "order.json")
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	for file, text := range map[string]string{order: "{}", plan: "name: order\nversion: 1\nsteps:\n- name: charge\n  agent: pay\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct{ args, want string }{
		{"plan apply " + plan + " --timeout 10m", `Publish to "duly.plans.apply"`},
		{"conformance --agent pay --call-time 2m --check-time 10m --timeout 10m --input " + order, `Publish to "duly.do.pay"`},
		{"shadow --agent pay --shadow next --timeout 10m", `Publish to "$SRV.INFO.duly-next"`},
		{"plan apply " + plan + " --timeout 10m --nats-inbox-prefix _INBOX", "NATS_INBOX_PREFIX"},
	} {
		code, _, errs := command(t, "", append(strings.Fields(x.args), "--nats-url", s.url("shop"))...)
		if code != exitForbidden || !strings.Contains(errs, x.want) || strings.Contains(errs, "answered") || strings.Contains(errs, "listens") {
			t.Errorf("%s: %d, %s", x.args, code, errs)
		}
	}
}

// TestPermissionsRefused: what cannot be a user is refused with what is wrong and what is wanted.
func TestPermissionsRefused(t *testing.T) {
	for _, x := range []struct{ args, want string }{
		{"", `expected "<users> ..."`},
		{"ingress", `unknown kind of user "ingress", want one of node, ingest, scheduler, supervisor, agent, foreign-agent, submitter, approver, operator`},
		{"shop=", `unknown kind of user ""`},
		{"ingest:x", "ingest has no names"},
		{"node:x", "node has no names"},
		{"agent", "no agent given, want agent:<agent>"},
		{"agent:", `agent token "" has 0 bytes`},
		{"agent:a.>", `character 1 is '>'`},
		{"agent:a,*", `character 1 is '*'`},
		{"foreign-agent:a..b", `agent token "" has 0 bytes`},
		{"submitter", "no type given, want submitter:<type>"},
		{"submitter:a.b", `character 2 is '.'`},
		{"a.b=ingest", `name of a user "a.b": character 2 is '.'`},
		{"=ingest", `name of a user "" has 0 bytes`},
		{"submitter:" + strings.Repeat("a", 60), "give it one, as in shop=submitter:"},
		{"a-b=ingest a_b=scheduler", "users a-b and a_b would have one password, $DULY_A_B_PASSWORD"},
		{"ingest --namespace Prod", "namespace:"},
		{"agent:a --answer-within 0s", "answer-within: 0s, want 1s or more"},
	} {
		code, out, errs := command(t, "", append([]string{"nats-permissions"}, strings.Fields(x.args)...)...)
		if code == 0 || out != "" && x.args != "" || !strings.Contains(errs, x.want) {
			t.Errorf("%q: %d, %q, %q, want %q", x.args, code, out, errs, x.want)
		}
	}
}

// TestPermissionsOfOneUser: one user may be of several kinds; denials of one that another
// needs fall away, and the JSON says the same as the configuration.
func TestPermissionsOfOneUser(t *testing.T) {
	code, out, errs := command(t, "", "nats-permissions", "--json", "--events", "app=submitter:orders", "app=foreign-agent:pay", "crew=agent:pay", "alien=foreign-agent:post", "odd=submitter:orders", "odd=supervisor", "s=scheduler")
	if code != 0 {
		t.Fatal(errs)
	}
	var users []natsUser
	if err := json.Unmarshal([]byte(out), &users); err != nil || len(users) != 5 {
		t.Fatalf("%v: %s", err, out)
	}
	app, crew, alien, odd, s := users[0], users[1], users[2], users[3], users[4]
	if got := strings.Join(app.Permissions.Subscribe.Allow, " "); app.User != "app" || app.InboxPrefix != "_INBOX_app" || len(app.Kinds) != 2 || got != "_INBOX_app.> duly.books.pay q duly.do.pay q duly.live.orders.* duly.probe.pay q duly.undo.pay q" {
		t.Errorf("app: %+v", app)
	}
	if r := app.Permissions.Responses; r == nil || r.Max != 1 || r.Expires != "24h0m0s" || len(app.Permissions.Publish.Deny) != 4 {
		t.Errorf("app: %+v", app.Permissions)
	}
	if crew.InboxPrefix != "" || !slices.Equal(crew.Permissions.Publish.Allow, []string{"duly.batch.reply.*.pay.*"}) || crew.Permissions.Publish.Deny != nil {
		t.Errorf("crew: %+v", crew)
	}
	if !slices.Equal(alien.Permissions.Publish.Deny, []string{">"}) || alien.Permissions.Publish.Allow != nil {
		t.Errorf("alien: %+v", alien)
	}
	for _, deny := range odd.Permissions.Publish.Deny {
		if slices.Contains(odd.Permissions.Publish.Allow, deny) || strings.Contains(deny, "NEXT") {
			t.Errorf("odd is denied what it needs: %s", deny)
		}
	}
	for _, inbox := range []string{"_INBOX_app.>", "_INBOX_odd.>"} {
		if !slices.Contains(s.Permissions.Publish.Allow, inbox) {
			t.Errorf("the scheduler may not send statuses to %s", inbox)
		}
	}
	if slices.Contains(s.Permissions.Publish.Allow, "_INBOX_crew.>") {
		t.Error("the scheduler may publish to the inbox of no submitter")
	}
}

// TestPermissionsPage: the command and the configuration of docs/operations/permissions.md work as they stand.
func TestPermissionsPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations", "permissions.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string) string {
		_, after, ok := strings.Cut(string(page), "```"+kind+"\n")
		text, _, ended := strings.Cut(after, "```")
		if !ok || !ended {
			t.Fatalf("the page has no block of %s", kind)
		}
		return text
	}
	line, file, ok := strings.Cut(strings.TrimSpace(strings.ReplaceAll(block("sh"), "\\\n", " ")), " > ")
	args := strings.Fields(line)
	if !ok || args[0] != "duly" {
		t.Fatalf("the command is %q", line)
	}
	code, out, errs := command(t, "", args[1:]...)
	if code != 0 {
		t.Fatal(errs)
	}
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{file: out, "nats.conf": block("text")} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range userLine.FindAllStringSubmatch(out, -1) {
		t.Setenv(m[2], `"pass word"`)
	}
	options, err := natsd.ProcessConfigFile("nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	options.NoSigs, options.NoLog, options.Host, options.Port = true, true, "127.0.0.1", natsd.RANDOM_PORT
	s, err := natsd.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	defer func() {
		s.Shutdown()
		s.WaitForShutdown()
	}()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	for user, may := range map[string]bool{"shop": true, "door": false} {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, "pass word"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(nc.Publish("duly.submit.order.o-1", nil), nc.Flush()); err != nil {
			t.Fatal(err)
		}
		if (nc.LastError() == nil) != may {
			t.Errorf("%s submits: %v", user, nc.LastError())
		}
		nc.Close()
	}
	for _, kind := range append([]string{kindNode}, rights.Kinds...) {
		if !strings.Contains(string(page), "\n- `"+kind) {
			t.Errorf("the page does not tell of %s", kind)
		}
	}
}

// TestAnswersGoAnywhere holds docs/operations/permissions.md to what NATS does: who may publish to a
// stream can make its confirmation overwrite anything, and so is not the submitter that is
// printed by default; an account of their own that imports the fast door keeps submitters
// from it.
func TestAnswersGoAnywhere(t *testing.T) {
	s := secure(t, []string{"door=ingest", "till=submitter:orders"}, []string{"shop=submitter:orders", "--plain-door", "--events"})
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	const account = `
  GUESTS {
    users = [ { user = guest, password = guest } ]
    imports = [ { service = { account = APP, subject = "duly.submit.orders.*" } } ]
  }
`
	whole := strings.Replace(string(text), "    jetstream: enabled\n", "    jetstream: enabled\n    exports = [ { service = \"duly.submit.orders.*\" } ]\n", 1)
	whole = strings.Replace(whole, "\n  APP {", account+"  APP {", 1)
	if err := os.WriteFile(s.config, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	s.server.Shutdown()
	s.server.WaitForShutdown()
	s.start()
	js, err := s.connect("admin", s.mustNot).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for name, subject := range map[string]string{"TASKS": "duly.in.*.*", "KEYS": "keys.>"} {
		if _, err := js.AddStream(&nats.StreamConfig{Name: name, Subjects: []string{subject}}); err != nil {
			t.Fatal(err)
		}
	}
	keys := func() uint64 {
		info, err := js.StreamInfo("KEYS")
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Msgs
	}
	door := s.connect("door", s.mustNot)
	asked := make(chan string, 8)
	if _, err := door.QueueSubscribe("duly.submit.*.*", "ingest", func(m *nats.Msg) {
		asked <- m.Reply
		if err := m.Respond([]byte("stored")); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := door.Flush(); err != nil {
		t.Fatal(err)
	}

	shop := s.connect("shop", s.mustNot)
	if err := shop.PublishRequest("duly.in.orders.o-1", "keys.of.others", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	until(t, "the confirmation where it must not be", func() bool { return keys() == 1 })

	guest, err := nats.Connect("nats://"+s.addr, nats.UserInfo("guest", "guest"))
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	if err := guest.PublishRequest("duly.submit.orders.o-2", "keys.of.others", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if m, err := guest.Request("duly.submit.orders.o-3", []byte("{}"), patience); err != nil || string(m.Data) != "stored" {
		t.Errorf("by the import: %v, %v", m, err)
	}
	if err := errors.Join(door.Flush(), guest.Flush()); err != nil {
		t.Fatal(err)
	}
	for len(asked) > 0 {
		if reply := <-asked; !strings.HasPrefix(reply, "_R_.") {
			t.Errorf("the door is to answer at %s", reply)
		}
	}
	if n := keys(); n != 1 {
		t.Errorf("%d messages where submitters must not write", n)
	}

	// What is read goes anywhere, too, under its own subject.
	if _, err := js.AddStream(&nats.StreamConfig{Name: "DULY_EVENTS", Subjects: []string{"duly.events.*.*"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish("duly.events.orders.processed", []byte("an event")); err != nil {
		t.Fatal(err)
	}
	const reader = `{"stream_name":"DULY_EVENTS","config":{"name":"x","filter_subject":"duly.events.orders.*","ack_policy":"none","deliver_policy":"all"}}`
	if _, err := shop.Request("$JS.API.CONSUMER.CREATE.DULY_EVENTS.x.duly.events.orders.*", []byte(reader), patience); err != nil {
		t.Fatal(err)
	}
	if err := shop.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.DULY_EVENTS.x", "keys.of.others", []byte("1")); err != nil {
		t.Fatal(err)
	}
	until(t, "the event where it must not be", func() bool { return keys() == 2 })
	if m, err := js.GetMsg("KEYS", 2); err != nil || m.Subject != "duly.events.orders.processed" || string(m.Data) != "an event" {
		t.Errorf("the second message there is %v, %v", m, err)
	}
}
