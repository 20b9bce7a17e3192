package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
)

// machines are the three of docs/guide/three-machines.md, as addresses of the loopback, with what the page says to type.
type machines struct {
	t      *testing.T
	dir    string
	prefix string // of the addresses
	bin    string // of PostgreSQL
	server *syscall.Credential
	in     *os.File // of all processes; its end ends those of duly
	nats   [3]*natsd.Server
	pg     [3]*exec.Cmd
	blocks []string
}

// block is the nth block of the page.
func (m *machines) block(n int, has string) string {
	m.t.Helper()
	if n >= len(m.blocks) || !strings.Contains(m.blocks[n], has) {
		m.t.Fatalf("block %d of the page does not have %q", n, has)
	}
	return m.blocks[n]
}

func (m *machines) ip(i int) string { return m.prefix + strconv.Itoa(i+1) }
func (m *machines) path(elem ...string) string {
	return filepath.Join(append([]string{m.dir}, elem...)...)
}
func (m *machines) data(i int) string            { return m.path("pg", strconv.Itoa(i+1)) }
func (m *machines) sockets(i int) string         { return m.data(i) + ".sockets" }
func (m *machines) of(i int, text string) string { return strings.ReplaceAll(text, m.ip(0), m.ip(i)) }

// write makes a file, for the user of PostgreSQL where it is told.
func (m *machines) write(text string, owned bool, elem ...string) {
	m.t.Helper()
	name := m.path(elem...)
	err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600))
	if err == nil && owned && m.server != nil {
		err = os.Chown(name, int(m.server.Uid), int(m.server.Gid))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// command is a shell's, as the user of PostgreSQL or as this one. It does not outlive the test.
func (m *machines) command(as *syscall.Credential, dir, text string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.t.Context(), "bash", "-euc", text)
	cmd.Dir, cmd.Stdin, cmd.Env = dir, m.in, append(os.Environ(), append(env, "HOME="+m.dir, "PATH="+m.path("bin")+":"+m.bin+":"+os.Getenv("PATH"), childEnv+"=1")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (m *machines) shell(as *syscall.Credential, dir, text string, env ...string) string {
	m.t.Helper()
	out, err := m.command(as, dir, text, env...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s\n%v: %s", text, err, out)
	}
	return string(out)
}

// psql runs what the page says to type there, on one machine.
func (m *machines) psql(i int, sql string) string {
	m.t.Helper()
	return m.shell(m.server, m.data(i), fmt.Sprintf("psql -v ON_ERROR_STOP=1 -At -h '%s' -d postgres <<'X'\n%s\nX", m.sockets(i), sql))
}

// has is how much a standby has, when it hears no more of the primary.
func (m *machines) has(i int) (bytes uint64) {
	m.t.Helper()
	until(m.t, "a standby that gets no more", func() bool {
		before := bytes
		var err error
		if bytes, err = strconv.ParseUint(strings.TrimSpace(m.psql(i, m.block(11, "receive_lsn"))), 10, 64); err != nil {
			m.t.Fatal(err)
		}
		return bytes == before
	})
	return bytes
}

// startNATS starts the server of each machine by its nats.conf.
func (m *machines) startNATS() {
	m.t.Helper()
	for i := range m.nats {
		var conf strings.Builder
		for line := range strings.Lines(m.block(2, "server_name")) {
			if !strings.Contains(line, "routes") {
				line = m.of(i, line)
			}
			conf.WriteString(strings.NewReplacer("nats-1", fmt.Sprintf("nats-%d", i+1), "/var/lib/nats", m.path("nats", strconv.Itoa(i), "data")).Replace(line))
		}
		dir := filepath.Join("nats", strconv.Itoa(i))
		m.write(conf.String(), false, dir, "nats.conf")
		m.shell(nil, m.dir, "cp duly-users.conf "+dir)
		options, err := natsd.ProcessConfigFile(m.path(dir, "nats.conf"))
		if err != nil {
			m.t.Fatal(err)
		}
		options.NoSigs, options.NoLog = true, true
		if m.nats[i], err = natsd.NewServer(options); err != nil {
			m.t.Fatal(err)
		}
		m.nats[i].Start()
		m.t.Cleanup(func() { m.loseNATS(i) })
	}
}

func (m *machines) loseNATS(i int) {
	m.nats[i].Shutdown()
	m.nats[i].WaitForShutdown()
}

// startPostgres starts the server of one machine, and waits until it takes connections.
func (m *machines) startPostgres(i int) {
	m.t.Helper()
	m.pg[i] = m.command(m.server, m.data(i), "exec postgres -D .")
	m.began("PostgreSQL "+m.ip(i), m.pg[i], func() { m.losePostgres(i) })
	until(m.t, "PostgreSQL", func() bool { return m.command(nil, m.dir, "pg_isready -q -h "+m.ip(i)).Run() == nil })
}

// began starts a process that the test ends, and tells what it said if the test failed.
func (m *machines) began(name string, cmd *exec.Cmd, end func()) {
	m.t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.WaitDelay = 5 * time.Second // what it leaves behind may have its output
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		end()
		if m.t.Failed() {
			m.t.Logf("%s:\n%s", name, log.String())
		}
	})
}

func (m *machines) losePostgres(i int) {
	if m.pg[i].ProcessState == nil {
		_ = m.pg[i].Process.Signal(syscall.SIGQUIT) // which ends its children too; an error says that it is gone
		_ = m.pg[i].Wait()
	}
}

// postgres makes the primary and two standbys, as the page does.
func (m *machines) postgres() {
	m.t.Helper()
	m.shell(m.server, m.path("pg"), "initdb -D 1 -A trust >init.log")
	settings, hba := m.block(4, "ssl_key_file"), m.block(5, "hostssl")
	own := func(i int) string {
		return fmt.Sprintf("mkdir %s; cat >>%s/postgresql.conf <<'X'\n%s\nunix_socket_directories = '%s'\nX", m.sockets(i), m.data(i), m.of(i, settings), m.sockets(i))
	}
	m.shell(m.server, m.data(0), own(0)+"\ncat >>pg_hba.conf <<'X'\n"+hba+"X")
	m.startPostgres(0)
	m.psql(0, m.block(6, "CREATE ROLE"))
	for i := 1; i < 3; i++ {
		m.shell(m.server, m.path("pg"), m.block(7, "pg_basebackup"), "PGDATA="+m.data(i))
		m.shell(m.server, m.data(i), own(i)) // of two lines the last one counts
		m.startPostgres(i)
	}
	for i := range m.pg {
		m.psql(i, m.block(8, "synchronous_standby_names"))
	}
}

// threeMachines reads the page, and makes certificates and users.
func threeMachines(t *testing.T) *machines {
	t.Helper()
	m := &machines{t: t, prefix: fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(255))}
	bins, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(bins) == 0 {
		t.Fatalf("no PostgreSQL in /usr/lib/postgresql: %v", err)
	}
	m.bin = bins[len(bins)-1]
	if m.dir, err = os.MkdirTemp("", "duly3"); err == nil { // a test's own folder has too long a name for a socket
		t.Cleanup(func() { _ = os.RemoveAll(m.dir) })
		err = errors.Join(os.Chmod(m.dir, 0o755), os.Mkdir(m.path("pg"), 0o755), os.Mkdir(m.path("etc"), 0o755), os.Mkdir(m.path("bin"), 0o755))
	}
	if err == nil && os.Geteuid() == 0 {
		var is *user.User
		if is, err = user.Lookup("postgres"); err == nil {
			uid, _ := strconv.ParseUint(is.Uid, 10, 32)
			gid, _ := strconv.ParseUint(is.Gid, 10, 32)
			m.server = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
			err = os.Chown(m.path("pg"), int(uid), int(gid))
		}
	}
	in, stop, pipeErr := os.Pipe()
	m.in = in
	t.Cleanup(func() { _ = errors.Join(stop.Close(), in.Close()) })
	self, selfErr := os.Executable()
	page, pageErr := os.ReadFile(filepath.Join("..", "..", "docs", "guide", "three-machines.md"))
	if err := errors.Join(err, pipeErr, selfErr, pageErr, os.Symlink(self, m.path("bin", "duly"))); err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("10.0.0.0/24", m.prefix+"0/24", "10.0.0.", m.prefix, "/etc/duly", m.path("etc"))
	for _, b := range regexp.MustCompile("(?s)```\\w+\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		m.blocks = append(m.blocks, here.Replace(b[1]))
	}
	for _, name := range regexp.MustCompile(`\w+_PASSWORD`).FindAllString(m.block(3, "nats-server -c nats.conf"), -1) {
		t.Setenv(name, "of-"+name)
	}
	m.shell(nil, m.path("etc"), m.block(0, "openssl"))
	m.shell(nil, m.dir, m.block(1, "nats-permissions"))
	m.shell(nil, m.path("etc"), "chmod 644 *.crt")
	if m.server != nil { // a key of its own is what the page says
		m.shell(nil, m.path("etc"), "for k in "+m.prefix+"*.key; do chown postgres $k; done")
	}
	return m
}

// TestThreeMachines: the page as it stands, on three addresses of the loopback: certificates, users, a cluster of NATS with TLS,
// PostgreSQL with two standbys, nodes, a plan and a task. Then the first machine is lost, with the primary on it.
//
// covers: U5
func TestThreeMachines(t *testing.T) {
	m := threeMachines(t)
	m.startNATS()
	m.postgres()
	var exports, migrate, serve string
	for line := range strings.Lines(m.block(9, "duly serve")) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "export "):
			exports += line + "\n"
		case strings.HasPrefix(line, "duly serve "):
			serve = line
		default:
			migrate += line + "\n"
		}
	}
	m.shell(nil, m.dir, exports+migrate+migrate)
	var nodes [3]*exec.Cmd
	for i := range nodes {
		nodes[i] = m.command(nil, m.dir, exports+"exec "+serve+" --http-addr "+m.ip(i)+":7310")
		m.began("node "+m.ip(i), nodes[i], func() {
			_ = nodes[i].Process.Kill() // an error says that it is gone
			_ = nodes[i].Wait()
		})
	}
	ready := func(i int) func() bool {
		return func() bool { code, _, _ := command(t, "", "health", "-s", "http://"+m.ip(i)+":7310"); return code == 0 }
	}
	for i := range nodes {
		until(t, "node "+m.ip(i), ready(i))
	}
	m.write("name: order\nversion: 1\nsteps:\n- name: charge\n  agent: payment.charge\n", false, "plan.yaml")
	at := func(i int) []string {
		return []string{"DULY_URL=http://" + m.ip(i) + ":7310", "DULY_HTTP_ADDR=" + m.ip(i) + ":7310"}
	}
	m.shell(nil, m.dir, exports+m.block(10, "duly doctor"), at(0)...)

	_, after, _ := strings.Cut(m.block(10, "duly submit"), "duly submit order order-1")
	submit, _, _ := strings.Cut(after, "\n")
	done := func(i int, what ...string) {
		for _, what := range what {
			until(t, what, func() bool { return m.command(nil, m.dir, what, at(i)...).Run() == nil })
		}
	}
	// One standby falls behind the other: it must not be promoted.
	follows := strings.TrimSpace(m.psql(1, "SHOW primary_conninfo"))
	m.psql(1, "ALTER SYSTEM SET primary_conninfo = '';\nSELECT pg_reload_conf();")
	until(t, "a standby that follows no more", func() bool {
		return strings.TrimSpace(m.psql(1, "SELECT count(*) FROM pg_stat_wal_receiver")) == "0"
	})
	done(2, "duly submit order behind"+submit, "duly get order behind")
	m.loseNATS(0)
	_ = nodes[0].Process.Kill() // an error says that it is gone
	m.losePostgres(0)
	m.psql(1, "ALTER SYSTEM SET primary_conninfo = '"+strings.ReplaceAll(follows, "'", "''")+"';\nSELECT pg_reload_conf();")
	promoted := 1
	if m.has(2) > m.has(1) {
		promoted = 2
	}
	m.psql(promoted, m.block(12, "pg_promote"))
	done(2, "duly submit order order-2"+submit, "duly get order order-1", "duly get order behind", "duly get order order-2")
	until(t, "the other standby", func() bool {
		return strings.TrimSpace(m.psql(promoted, "SELECT state, sync_state FROM pg_stat_replication")) == "streaming|quorum"
	})
	for i := 1; i < 3; i++ {
		until(t, "node "+m.ip(i), ready(i))
	}
}
