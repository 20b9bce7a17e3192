package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// machines is how many machines an installation has.
const machines = 3

// network is where the machines are: a network namespace each, with a bridge between
// them, or this machine's loopback.
type network struct {
	spaces bool
}

// Names of what is made on this machine.
const (
	bridge = "dulybr0"
	space  = "dulym" // + number
)

// newNetwork makes the namespaces; where the rights do not allow it, why says so and the
// loopback is taken.
func newNetwork() (n *network, why error) {
	n = &network{spaces: true}
	n.close() // what an earlier run left behind
	commands := [][]string{{"link", "add", bridge, "type", "bridge"}, {"addr", "add", n.host(-1) + "/24", "dev", bridge}, {"link", "set", bridge, "up"}}
	for i := range machines {
		name, outer, inner := space+strconv.Itoa(i), "dulyo"+strconv.Itoa(i), "dulyi"+strconv.Itoa(i)
		commands = append(commands, []string{"netns", "add", name}, []string{"link", "add", outer, "type", "veth", "peer", "name", inner},
			[]string{"link", "set", outer, "master", bridge, "up"}, []string{"link", "set", inner, "netns", name},
			[]string{"-n", name, "addr", "add", n.host(i) + "/24", "dev", inner}, []string{"-n", name, "link", "set", inner, "up"}, []string{"-n", name, "link", "set", "lo", "up"})
	}
	for _, args := range commands {
		if err := ip(args...); err != nil {
			n.close()
			return &network{}, err
		}
	}
	return n, nil
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// close removes the namespaces; errors say that there are none.
func (n *network) close() {
	if !n.spaces {
		return
	}
	for i := range machines {
		_ = ip("netns", "del", space+strconv.Itoa(i))
		_ = ip("link", "del", "dulyo"+strconv.Itoa(i))
	}
	_ = ip("link", "del", bridge)
}

// host is the address of a machine; -1 is the database's and the load's.
func (n *network) host(i int) string {
	if !n.spaces {
		return "127.0.0.1"
	}
	return fmt.Sprintf("10.213.77.%d", 10+i)
}

// port is a port of a machine: of its own where it has an address of its own.
func (n *network) port(i, base int) int {
	if !n.spaces {
		return base + i
	}
	return base
}

// nats is the URL of a machine's server.
func (n *network) nats(i int) string {
	return "nats://" + net.JoinHostPort(n.host(i), strconv.Itoa(n.port(i, 14222)))
}

// cut takes a machine from the network, or brings it back.
func (n *network) cut(i int, down bool) error {
	if !n.spaces {
		return nil
	}
	state := "up"
	if down {
		state = "down"
	}
	return ip("link", "set", "dulyo"+strconv.Itoa(i), state)
}

// start starts a program on a machine; its words go to a file.
func (n *network) start(i int, dir, name string, args ...string) (*exec.Cmd, error) {
	if n.spaces {
		args = append([]string{"ip", "netns", "exec", space + strconv.Itoa(i)}, args...)
	}
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...) // ip becomes the program: the process is its
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return cmd, nil
}

// kill is kill -9, and waits for the end.
func kill(cmd *exec.Cmd) {
	if cmd != nil {
		_ = cmd.Process.Kill() // an error says that it is gone
		_ = cmd.Wait()
	}
}

// natsText is a server's configuration.
const natsText = `server_name: n%d
listen: "%s:%d"
max_payload: 8MB
jetstream { store_dir: %q, sync_interval: %s, max_file_store: 20GB }
cluster { name: streams, listen: "%s:%d", routes: [%s]%s }
`

// startNATS starts a machine's server on its own folder.
func (n *network) startNATS(i int, dir string, set *settings) (*exec.Cmd, error) {
	var routes []string
	for k := range machines {
		routes = append(routes, fmt.Sprintf("%q", "nats-route://"+net.JoinHostPort(n.host(k), strconv.Itoa(n.port(k, 16222)))))
	}
	quick := ""
	if set.ping > 0 {
		quick = fmt.Sprintf(", ping_interval: %q, ping_max: 2, write_deadline: %q", set.ping, 2*set.ping)
	}
	name := "nats" + strconv.Itoa(i)
	file := filepath.Join(dir, name+".conf")
	text := fmt.Sprintf(natsText, i, n.host(i), n.port(i, 14222), filepath.Join(dir, name), set.sync, n.host(i), n.port(i, 16222), strings.Join(routes, ", "), quick)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return n.start(i, dir, name, set.nats, "-c", file)
}

// relay carries connections to the database, which listens to this machine alone.
type relay struct {
	listener net.Listener
	to       string
	all      sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

func newRelay(address, to string) (*relay, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("relay to the database: %w", err)
	}
	r := &relay{listener: listener, to: to, conns: map[net.Conn]bool{}}
	r.all.Go(r.accept)
	return r, nil
}

// accept takes connections until the listener is closed.
func (r *relay) accept() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", r.to)
		if err != nil {
			in.Close()
			continue
		}
		if !r.add(in, out) {
			return
		}
		r.all.Go(func() { r.carry(out, in) })
		r.all.Go(func() { r.carry(in, out) })
	}
}

// add keeps connections for close; false: they are closed.
func (r *relay) add(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		if r.closed {
			c.Close()
			continue
		}
		r.conns[c] = true
	}
	return !r.closed
}

// carry copies until one of the two ends; both end then.
func (r *relay) carry(to, from net.Conn) {
	_, _ = io.Copy(to, from) // the end of either says nothing
	to.Close()
	from.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, to)
	delete(r.conns, from)
}

// close ends all connections and waits for what carried them.
func (r *relay) close() {
	r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.all.Wait()
}

// until polls until ok, or ctx or its time ends.
func until(ctx context.Context, what string, most time.Duration, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waited %v for: %s", most, what), ctx.Err())
		}
	}
	return nil
}
