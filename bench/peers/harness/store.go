package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"duly.dev/duly/internal/localpg"
	"github.com/jackc/pgx/v5"
)

// ServerSettings are those of every cluster that a run starts. fsync and
// synchronous_commit are the server's defaults; they are said so that the results
// show them.
var ServerSettings = map[string]string{
	"fsync": "on", "synchronous_commit": "on",
	"shared_buffers": "1GB", "max_wal_size": "4GB", "max_connections": "200",
}

// store is the database of a run and the processes that serve it.
type store struct {
	dsn        string
	cluster    *localpg.Cluster // nil: not ours
	conn       *pgx.Conn
	postmaster int // 0: not on this machine
	analyze    bool
	settings   map[string]string
}

// openStore connects to the database, or starts a cluster with one.
func openStore(ctx context.Context, dsn string) (*store, error) {
	s := &store{dsn: dsn}
	if err := s.open(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *store) open(ctx context.Context) (err error) {
	if s.dsn == "" {
		if s.cluster, err = localpg.Start(localpg.Options{Settings: ServerSettings}); err != nil {
			return err
		}
		if s.dsn, err = s.cluster.NewDatabase(ctx); err != nil {
			return err
		}
	}
	if s.conn, err = pgx.Connect(ctx, s.dsn); err != nil {
		return err
	}
	if s.settings, err = s.show(ctx, "server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "max_connections"); err != nil {
		return err
	}
	for _, name := range []string{"fsync", "synchronous_commit"} {
		if s.settings[name] != "on" {
			return fmt.Errorf("%s is %s: what is accepted would not be durable", name, s.settings[name])
		}
	}
	var backend int
	if err := s.conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		return err
	}
	if process, ok := readStat(backend); ok && process.comm == "postgres" {
		s.postmaster = process.parent
	}
	return nil
}

func (s *store) show(ctx context.Context, names ...string) (map[string]string, error) {
	settings := map[string]string{}
	for _, name := range names {
		var value string
		if err := s.conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return nil, err
		}
		settings[name] = value
	}
	return settings, nil
}

// close ends what openStore began. Nothing is left to tell: the results are read.
func (s *store) close() {
	if s.conn != nil {
		s.conn.Close(context.Background())
	}
	if s.cluster != nil {
		if err := s.cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop PostgreSQL:", err)
		}
	}
}

// settle gathers the planner's statistics. The tables were empty when the run
// began, and autovacuum, which does it in any longer run, looks only once a
// minute: without it a short run measures plans made for empty tables.
func (s *store) settle(ctx context.Context) error {
	if !s.analyze {
		return nil
	}
	_, err := s.conn.Exec(ctx, "ANALYZE")
	return err
}

func (s *store) usage(ctx context.Context) (usage, error) {
	u := usage{at: time.Now()}
	if err := s.conn.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8").Scan(&u.wal); err != nil {
		return u, err
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return u, err
	}
	u.client = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	if s.postmaster != 0 {
		u.database = cpuOf(s.postmaster)
	}
	return u, nil
}

func (s *store) books(ctx context.Context, query string, steps int) (books, error) {
	var b books
	if err := s.conn.QueryRow(ctx, query, steps).Scan(&b.known, &b.complete, &b.doubled); err != nil {
		return b, fmt.Errorf("books: %w", err)
	}
	return b, nil
}

// tick is the unit of the times in /proc, the same on all Linux machines that Go
// runs on.
const tick = 10 * time.Millisecond

type stat struct {
	comm     string
	parent   int
	own      time.Duration // user and system
	ofReaped time.Duration // of children that have ended
}

// cpuOf is the processor time of the postmaster, of its children, and of those
// that have ended: autovacuum's workers come and go.
func cpuOf(postmaster int) time.Duration {
	var sum time.Duration
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well formed
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		process, ok := readStat(pid)
		switch {
		case !ok: // it ended while we looked
		case pid == postmaster:
			sum += process.own + process.ofReaped
		case process.parent == postmaster:
			sum += process.own
		}
	}
	return sum
}

func readStat(pid int) (stat, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, false
	}
	// The name is in brackets and may have brackets of its own.
	open, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
	if open < 0 || end < open {
		return stat{}, false
	}
	fields := strings.Fields(string(text[end+1:]))
	const parent, utime, stime, cutime, cstime = 1, 11, 12, 13, 14
	if len(fields) <= cstime {
		return stat{}, false
	}
	number := func(i int) int {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return 0
		}
		return n
	}
	return stat{
		comm: string(text[open+1 : end]), parent: number(parent),
		own:      time.Duration(number(utime)+number(stime)) * tick,
		ofReaped: time.Duration(number(cutime)+number(cstime)) * tick,
	}, true
}

// version is that of a module of this program.
func version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dep := range info.Deps {
		switch {
		case dep.Path != module:
		case dep.Replace != nil:
			return "this repository"
		default:
			return dep.Version
		}
	}
	return "unknown"
}

// machine says what a run ran on.
func machine(server string) string {
	processor := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := strings.Cut(string(text), "model name"); ok {
			line, _, _ := strings.Cut(after, "\n")
			processor = strings.TrimSpace(strings.TrimLeft(line, " \t:"))
		}
	}
	kernel := "unknown"
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = strings.TrimSpace(string(text))
	}
	return fmt.Sprintf("%d cores, %s, Linux %s, %s, PostgreSQL %s", runtime.NumCPU(), processor, kernel, runtime.Version(), server)
}
