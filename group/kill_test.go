package group_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"duly.dev/duly/group"
	"duly.dev/duly/internal/localpg"
)

var chaosMessages = flag.Int("messages", 6000, "how many messages TestChaos has handled at least")

// memberEnv says to the test binary that it is a member's process, and its name.
const memberEnv = "GROUP_MEMBER"

// memberHold is how long a frozen process may keep its locks.
const memberHold = time.Second

// member is a member's process: it records each message until it gets SIGTERM.
func member(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	name := os.Getenv(memberEnv)
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	config.MaxConns = partitions + 2
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	rule := group.HashOfTokens(partitions, 2)
	if os.Getenv("GROUP_RULE") == "token" {
		rule = group.Token(partitions, 2)
	}
	for {
		err := group.Run(ctx, nc, pool, streamName, func(ctx context.Context, tx pgx.Tx, msgs []group.Msg) error { return record(ctx, tx, msgs, name) },
			group.Member(name), group.Partitioned(rule), group.Batch(64, 1<<20), group.Retry(3, 5*time.Millisecond, 200*time.Millisecond), group.Hold(memberHold),
			group.Settle(500*time.Millisecond), group.Logger(slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		if err == nil || ctx.Err() != nil {
			return nil
		}
		fmt.Println("run:", err) // it may begin while the database or NATS is away
		<-time.After(50 * time.Millisecond)
	}
}

// link passes connections on to a server, and can cut them all.
type link struct {
	to       string
	listener net.Listener
	all      sync.WaitGroup
	refuse   atomic.Bool // new connections end at once
	swallow  atomic.Bool // what comes from the server is lost
	mu       sync.Mutex
	conns    map[net.Conn]bool
}

// pass passes on what comes.
func (k *link) pass(to, from net.Conn, swallows bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if swallows && k.swallow.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{to: to, listener: l, conns: map[net.Conn]bool{}}
	k.all.Go(k.accept)
	t.Cleanup(func() {
		l.Close()
		k.cut()
		k.all.Wait()
	})
	return k
}

func (k *link) addr() string { return k.listener.Addr().String() }

func (k *link) accept() {
	for {
		in, err := k.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", k.to)
		if err == nil && k.refuse.Load() {
			out.Close()
			err = net.ErrClosed
		}
		if err != nil {
			in.Close()
			continue
		}
		k.mu.Lock()
		k.conns[in], k.conns[out] = true, true
		k.mu.Unlock()
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			k.all.Go(func() {
				k.pass(pair[0], pair[1], pair[1] == out)
				k.end(in, out)
			})
		}
	}
}

func (k *link) end(conns ...net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(k.conns, c)
	}
}

func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		c.Close()
	}
}

// process is a member's process, and what it says.
type process struct {
	t          *testing.T
	name, rule string
	nats, sql  *link
	database   string // its URL, by sql

	mu    sync.Mutex
	lines []string
	cmd   *exec.Cmd
	ended chan struct{}
	life  int
}

func (p *process) start() {
	p.life++
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s%d", memberEnv, p.name, p.life), "GROUP_RULE="+p.rule, "DATABASE_URL="+p.database, "NATS_URL=nats://"+p.nats.addr())
	out, err := p.cmd.StdoutPipe()
	p.cmd.Stderr = p.cmd.Stdout
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.ended = make(chan struct{})
	go func() {
		defer close(p.ended)
		for in := bufio.NewScanner(out); in.Scan(); {
			p.say(in.Text())
		}
		_ = p.cmd.Wait() // it may be killed
	}()
}

const linesMax = 400

func (p *process) say(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines = append(p.lines, line); len(p.lines) > linesMax {
		p.lines = p.lines[len(p.lines)-linesMax:]
	}
}

func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("%s: %v: %v", p.name, s, err)
	}
}

// stop ends the process by a signal and waits for it.
func (p *process) stop(s syscall.Signal) {
	p.signal(s)
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Errorf("%s does not end", p.name)
		_ = p.cmd.Process.Kill() // that it does not end is told
		<-p.ended
	}
}

// tell shows what a process said, if the test has failed.
func (p *process) tell() {
	if p.t.Failed() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.t.Logf("%s:\n%s", p.name, strings.Join(p.lines, "\n"))
	}
}

// outfit is a world with processes, whose database can be killed.
type outfit struct {
	*world
	cluster   *localpg.Cluster
	processes []*process
}

func newOutfit(t *testing.T, rule string, n int) *outfit {
	t.Helper()
	cluster, err := localpg.Start(localpg.Options{FsyncOff: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	url, err := cluster.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := worldOn(t, url)
	o := &outfit{world: w, cluster: cluster}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		p := &process{t: t, name: fmt.Sprintf("%c", 'a'+i), rule: rule}
		p.nats = newLink(t, strings.TrimPrefix(w.server.ClientURL(), "nats://"))
		p.sql = newLink(t, fmt.Sprintf("%s:%d", config.Host, config.Port))
		p.database = fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable&connect_timeout=2", config.User, config.Password, p.sql.addr(), config.Database)
		p.start()
		t.Cleanup(func() {
			p.stop(syscall.SIGKILL)
			p.tell()
		})
		o.processes = append(o.processes, p)
	}
	w.await("they have all partitions", func() bool { // the third may have none: names are drawn
		owners := w.owners()
		return owners[""] == 0 && len(owners) >= 2
	})
	return o
}

// fault is something that happens to a member or to what they share.
type fault struct {
	name  string
	share int // of all, by weight
	do    func(o *outfit, p *process, rng *rand.Rand)
}

var faults = []fault{
	{"kill -9", 5, func(_ *outfit, p *process, _ *rand.Rand) { p.stop(syscall.SIGKILL); p.start() }},
	{"SIGSTOP longer than the lease", 4, func(_ *outfit, p *process, rng *rand.Rand) {
		p.signal(syscall.SIGSTOP)
		<-time.After(group.LeaseDefault + time.Duration(rng.IntN(1500))*time.Millisecond)
		p.signal(syscall.SIGCONT)
	}},
	{"leave", 3, func(_ *outfit, p *process, _ *rand.Rand) { p.stop(syscall.SIGTERM); p.start() }},
	{"connection to NATS cut", 4, func(_ *outfit, p *process, _ *rand.Rand) { p.nats.cut() }},
	{"connection to SQL cut", 4, func(_ *outfit, p *process, _ *rand.Rand) { p.sql.cut() }},
	{"NATS restarted", 1, func(o *outfit, _ *process, _ *rand.Rand) {
		if err := o.server.Restart(); err != nil {
			o.t.Error(err)
		}
	}},
	{"database killed", 1, func(o *outfit, _ *process, _ *rand.Rand) {
		if err := o.cluster.Crash(); err != nil {
			o.t.Error(err)
		}
		if err := o.cluster.Restart(); err != nil {
			o.t.Error(err)
		}
	}},
}

func draw(rng *rand.Rand) fault {
	sum := 0
	for _, f := range faults {
		sum += f.share
	}
	n := rng.IntN(sum)
	for _, f := range faults {
		if n -= f.share; n < 0 {
			return f
		}
	}
	panic("unreachable")
}

// TestChaos: whatever dies or hangs, 0 lost, 0 doubled, and each partition in order.
func TestChaos(t *testing.T) {
	for rule, subject := range map[string]func(int) string{"hash": byCustomer, "token": byNumber} {
		t.Run(rule, func(t *testing.T) {
			o := newOutfit(t, rule, 3)
			rng := rand.New(rand.NewPCG(1, uint64(len(rule))))
			stop := make(chan struct{})
			var publishing sync.WaitGroup
			publishing.Go(func() { o.keepPublishing(subject, stop) })
			done := map[string]int{}
			began := time.Now()
			for n := 0; n < len(faults) || o.count() < uint64(*chaosMessages/2); n++ {
				f := draw(rng)
				if n < len(faults) {
					f = faults[n] // each at least once
				}
				f.do(o, o.processes[rng.IntN(len(o.processes))], rng)
				done[f.name]++
				<-time.After(time.Duration(100+rng.IntN(700)) * time.Millisecond)
			}
			close(stop)
			publishing.Wait()
			last := o.end()
			o.right(last)
			var members int
			if err := o.pool.QueryRow(t.Context(), `SELECT count(DISTINCT member) FROM effects`).Scan(&members); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %d messages by %d processes in %v: %+v; %v", rule, last, members, time.Since(began).Round(time.Second), o.judge(last), done)
		})
	}
}

// keepPublishing stores messages until it is stopped; what is not confirmed may be there twice, as another message.
func (w *world) keepPublishing(subject func(int) string, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		if _, err := w.js.Publish(ctx, subject(i), []byte("x")); err != nil {
			<-time.After(10 * time.Millisecond)
		}
		cancel()
	}
}

// end is the last sequence of the stream.
func (w *world) end() (last uint64) {
	w.t.Helper()
	w.await("the stream answers", func() bool {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		s, err := w.js.Stream(ctx, streamName)
		if err == nil {
			last = s.CachedInfo().State.LastSeq
		}
		return err == nil
	})
	return last
}

// takeoverMax is how soon the partitions of a member that died must be handled by others.
const takeoverMax = time.Second

// TestTakeover: a member that is killed has successors within a second, and one that leaves at once. One that is frozen may be
// so with the lock of its commit, which lasts as long as Hold.
func TestTakeover(t *testing.T) {
	for _, rule := range []string{"hash", "token"} {
		t.Run(rule, func(t *testing.T) {
			o := newOutfit(t, rule, 2)
			for _, how := range []struct {
				name string
				most time.Duration
				do   func(p *process)
				undo func(p *process)
			}{
				{"kill -9", takeoverMax, func(p *process) { p.stop(syscall.SIGKILL) }, func(p *process) { p.start() }},
				{"SIGSTOP", takeoverMax + memberHold, func(p *process) { p.signal(syscall.SIGSTOP) }, func(p *process) { p.signal(syscall.SIGCONT) }},
				{"leave", takeoverMax / 2, func(p *process) { p.signal(syscall.SIGTERM) }, func(p *process) {
					p.stop(syscall.SIGKILL) // it has left; the race detector makes its end a second longer
					p.start()
				}},
			} {
				var times []time.Duration
				for range 3 {
					p := o.processes[0]
					began := time.Now()
					how.do(p)
					o.await("taken over", func() bool { return o.without(p.name) })
					last := o.publish(partitions*4, map[string]func(int) string{"hash": byCustomer, "token": byNumber}[rule])
					o.await("handled", func() bool { return o.count() >= last })
					times = append(times, time.Since(began).Round(time.Millisecond))
					how.undo(p)
					o.await("both have partitions", func() bool { return o.balanced(2) })
				}
				t.Logf("%s: %s: handled by others after %v", rule, how.name, times)
				if d := slices.Min(times); d > how.most { // of a busy machine the quickest counts
					t.Errorf("%s: after %v, want %v at most", how.name, d, how.most)
				}
			}
			o.right(o.end())
		})
	}
}

// without reports whether all partitions belong to others.
func (w *world) without(name string) bool {
	for owner := range w.owners() {
		if owner == "" || strings.HasPrefix(owner, name) {
			return false
		}
	}
	return true
}

// balanced reports whether all partitions have owners, of which there are n.
func (w *world) balanced(n int) bool {
	owners := w.owners()
	return owners[""] == 0 && len(owners) == n
}
