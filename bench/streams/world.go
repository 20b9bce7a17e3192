package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/localpg"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// world is one installation: three machines with a NATS server and a node each, and a database.
type world struct {
	net      *network
	set      *settings
	dir, db  string
	nats     [machines]*exec.Cmd
	nodes    [machines]*exec.Cmd
	store    schema.Store
	conns    [machines]*nats.Conn
	relay    *relay
	streams  int
	agents   sync.WaitGroup
	stop     context.CancelFunc
	called   atomic.Int64
	mu       sync.Mutex
	accepted []string
	refused  atomic.Int64
}

const partitions = 12

// open starts everything and waits until every partition has an owner.
func open(ctx context.Context, set *settings, network *network, pg *localpg.Cluster, dir string, streams int) (w *world, err error) {
	w = &world{net: network, set: set, dir: dir, streams: streams}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	at, err := pg.NewDatabase(ctx)
	if err != nil {
		return w, err
	}
	u, err := url.Parse(at)
	if err != nil {
		return w, fmt.Errorf("database: %w", err)
	}
	if w.store, err = dialects.Open(ctx, at, schema.Options{MaxConns: 3}); err != nil {
		return w, err
	}
	if err := w.store.Migrate(ctx); err != nil {
		return w, err
	}
	if w.relay, err = newRelay(network.host(-1)+":0", u.Host); err != nil {
		return w, err
	}
	u.Host = w.relay.listener.Addr().String()
	w.db = u.String()
	for i := range machines {
		if w.nats[i], err = network.startNATS(i, dir, set); err != nil {
			return w, err
		}
	}
	for i := range machines {
		if err := until(ctx, "NATS", 30*time.Second, func() bool {
			w.conns[i], err = nats.Connect(network.nats(i), nats.PingInterval(500*time.Millisecond), nats.MaxPingsOutstanding(2), nats.ReconnectWait(50*time.Millisecond), nats.MaxReconnects(-1))
			return err == nil
		}); err != nil {
			return w, err
		}
	}
	for i := range machines { // a node that comes while there is no leader of all ends, and is to be started again
		js, err := w.conns[i].JetStream()
		if err != nil {
			return w, fmt.Errorf("JetStream: %w", err)
		}
		if err := until(ctx, "JetStream", time.Minute, func() bool { _, err := js.AccountInfo(); return err == nil }); err != nil {
			return w, err
		}
	}
	for i := range machines {
		if err := w.serve(i); err != nil {
			return w, err
		}
	}
	if err := until(ctx, "every partition has an owner of three", 90*time.Second, func() bool { return len(w.owners(ctx)) == machines }); err != nil {
		return w, err
	}
	if err := w.balance(ctx); err != nil {
		return w, err
	}
	return w, w.app(ctx)
}

// serve starts the node of a machine.
func (w *world) serve(i int) (err error) {
	name := "node" + strconv.Itoa(i)
	w.nodes[i], err = w.net.start(i, w.dir, name, w.set.duly, "serve", "--node-name", name, "--nats-url", w.net.nats(i), "--database-url", w.db,
		"--http-addr", fmt.Sprintf("127.0.0.1:%d", w.net.port(i, 17310)), "--partitions", strconv.Itoa(partitions), "--task-streams", strconv.Itoa(w.streams),
		"--stream-replicas", strconv.Itoa(machines), "--lease", "2s", "--scan-interval", "500ms", "--memory", "536870912")
	return err
}

// owners are the live owners of all partitions; nil: one has none.
func (w *world) owners(ctx context.Context) map[string]int {
	states, err := w.store.Cursors(ctx)
	if err != nil || len(states) != partitions {
		return nil
	}
	all := map[string]int{}
	for i := range states {
		all[states[i].Owner]++
	}
	if all[""] > 0 {
		return nil
	}
	return all
}

// balance gives each server the lead of as many task streams as the others, and of their
// control streams.
func (w *world) balance(ctx context.Context) error {
	js, err := w.conns[0].JetStream()
	if err != nil {
		return fmt.Errorf("leaders: %w", err)
	}
	for k := range w.streams {
		for _, name := range []string{wire.Names{}.StreamTasksAt(k), wire.Names{}.StreamControlAt(k)} {
			want := "n" + strconv.Itoa(k%machines)
			if err := until(ctx, name+" is led by "+want, 30*time.Second, func() bool {
				info, err := js.StreamInfo(name)
				if err != nil || info.Cluster == nil {
					return false
				}
				if info.Cluster.Leader == want {
					return true
				}
				_, _ = w.conns[0].Request("$JS.API.STREAM.LEADER.STEPDOWN."+name, []byte(`{"placement":{"preferred":"`+want+`"}}`), time.Second) // looked at again
				return false
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// app stores the plan and serves its agent on every machine's server.
func (w *world) app(ctx context.Context) error {
	check := duly.NewCheck[int, int]("one", "count.one")
	plan := duly.NewPlan("count", 1, check)
	client, err := duly.NewClient(w.conns[0])
	if err != nil {
		return err
	}
	if err := plan.Apply(ctx, client); err != nil {
		return err
	}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	for _, nc := range w.conns {
		agent, err := duly.NewAgent(nc)
		if err != nil {
			return err
		}
		if err := check.Serve(agent, func(context.Context, duly.Call[int]) (int, error) { w.called.Add(1); return 1, nil }); err != nil {
			return err
		}
		w.agents.Go(func() { _ = agent.Run(ctx) }) // it ends with ctx, or with a connection
	}
	return nil
}

// submit hands one task in until it is accepted, over any of the servers; without a try
// more than once where once is set.
func (w *world) submit(ctx context.Context, n int, once bool) {
	id := fmt.Sprintf("t-%d", n)
	for try := n; ctx.Err() == nil; try++ {
		answer, err := w.conns[try%machines].Request(wire.Names{}.SubmitSubject("count", id), []byte("1"), time.Second)
		var body struct {
			Error json.RawMessage `json:"error"`
		}
		if err == nil && json.Unmarshal(answer.Data, &body) == nil && body.Error == nil {
			w.mu.Lock()
			w.accepted = append(w.accepted, id)
			w.mu.Unlock()
			return
		}
		w.refused.Add(1)
		if once {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.accepted)
}

// ended is how many tasks have ended, by the database.
func (w *world) ended(ctx context.Context) int {
	counts, err := w.store.Counts(ctx)
	if err != nil {
		return -1
	}
	n := int64(0)
	for _, c := range counts {
		if c.State.Ended() {
			n += c.Tasks
		}
	}
	return int(n)
}

// lost waits for every accepted task to end, and compares SQL with what was accepted: those
// that are missing, or not processed by then. Tasks whose acceptance did not arrive end, too.
func (w *world) lost(ctx context.Context) (missing []string, err error) {
	_ = until(ctx, "every accepted task ends", 3*time.Minute, func() bool { // what has not is missing
		if w.ended(ctx) < w.count() {
			return false
		}
		missing, err = w.missing(ctx)
		return err == nil && len(missing) == 0
	})
	return w.missing(ctx)
}

// missing lists the accepted tasks that are not processed now, with their states.
func (w *world) missing(ctx context.Context) ([]string, error) {
	books, err := w.store.Books(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var missing []string
	for _, id := range w.accepted {
		if state := books.States[id]; state != "processed" {
			missing = append(missing, id+" "+cmp.Or(state, "not in SQL"))
		}
	}
	slices.Sort(missing)
	return missing, nil
}

func (w *world) close() {
	if w.stop != nil {
		w.stop()
		w.agents.Wait()
	}
	for i := range machines {
		if w.conns[i] != nil {
			w.conns[i].Close()
		}
		kill(w.nodes[i])
		kill(w.nats[i])
	}
	if w.relay != nil {
		w.relay.close()
	}
	if w.store != nil {
		w.store.Close()
	}
}

// leads says which server leads which task stream.
func (w *world) leads() string {
	js, err := w.conns[0].JetStream()
	if err != nil {
		return err.Error()
	}
	var all []string
	for k := range w.streams {
		info, err := js.StreamInfo(wire.Names{}.StreamTasksAt(k))
		if err != nil || info.Cluster == nil {
			return "not known"
		}
		all = append(all, info.Cluster.Leader)
	}
	return strings.Join(all, ",")
}
