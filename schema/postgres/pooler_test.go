//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/freeport"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
)

// pooled starts PgBouncer in front of a new database and returns URLs through it and
// without it.
func pooled(t *testing.T, mode string) (through, direct string) {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Fatal("no PgBouncer on this machine; install one: apt-get install -y pgbouncer")
	}
	direct = pgtestdb.URL(t)
	to, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	port := freeport.Of(t)
	dir, err := os.MkdirTemp("", "duly-pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n%s = host=127.0.0.1 port=%s user=postgres dbname=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nauth_type = any\npool_mode = %s\ndefault_pool_size = 12\nunix_socket_dir =\n",
		to.Path[1:], to.Port(), to.Path[1:], port, mode)
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o644), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-q", file)
	if os.Geteuid() == 0 { // which it refuses
		u, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	to.Host = "127.0.0.1:" + strconv.Itoa(port)
	eventually(t, "PgBouncer takes connections", func() bool {
		c, err := net.Dial("tcp", to.Host)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
	return to.String(), direct
}

// A pooler that gives each transaction another session is refused with what to do about
// it, and nothing of ours is left in the sessions of others.
// covers: B7
func TestTransactionPoolerIsRefused(t *testing.T) {
	for _, mode := range []string{"transaction", "statement"} {
		for _, busy := range []int{0, 2} { // sessions that others have used
			t.Run(fmt.Sprintf("%s, %d", mode, busy), func(t *testing.T) {
				through, direct := pooled(t, mode)
				use(t, through, busy, mode)
				s, err := postgres.Open(t.Context(), through+"&default_query_exec_mode=simple_protocol", schema.Options{})
				if err == nil {
					t.Fatal("opened", s.Close())
				}
				if !errors.Is(err, postgres.ErrPooler) || !strings.Contains(err.Error(), "pool_mode = session") {
					t.Errorf("refused with %v", err)
				}
				own, err := pgx.Connect(t.Context(), direct)
				if err != nil {
					t.Fatal(err)
				}
				defer own.Close(context.Background())
				want := setting(t, own)
				for range 6 {
					c, err := pgx.Connect(t.Context(), through+"&default_query_exec_mode=simple_protocol")
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close(context.Background())
					if got := setting(t, c); got != want {
						t.Errorf("another application finds %s, want %s", got, want)
					}
				}
			})
		}
	}
}

// use makes the pooler have that many sessions that are free.
func use(t *testing.T, at string, sessions int, mode string) {
	t.Helper()
	var used []*pgx.Conn
	defer func() {
		for _, c := range used {
			_, _ = c.Exec(t.Context(), "ROLLBACK")
		}
	}()
	for i := range sessions {
		c, err := pgx.Connect(t.Context(), at+"&default_query_exec_mode=simple_protocol")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		if mode == "transaction" {
			if _, err := c.Exec(t.Context(), "BEGIN"); err != nil {
				t.Fatal(err)
			}
			if i == sessions-1 {
				continue // in use, while the others are free
			}
			used = append(used, c)
		}
		if _, err := c.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Fatal(err)
		}
	}
}

// setting is what a store sets for its sessions.
func setting(t *testing.T, c *pgx.Conn) (is string) {
	t.Helper()
	err := c.QueryRow(t.Context(), `SELECT current_setting('enable_seqscan') || ' ' || current_setting('statement_timeout') || ' ' || current_setting('plan_cache_mode')`).Scan(&is)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// A pooler of sessions is as good as none: the tables are made, commits go, and who
// gets the session next finds nothing of ours.
// covers: B7
func TestSessionPooler(t *testing.T) {
	through, direct := pooled(t, "session")
	s, err := postgres.Open(t.Context(), through, schema.Options{MaxConns: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Migrate(t.Context()), s.Partitions(t.Context(), 2), s.CheckVersion(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := oneBirth(t, s); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), 1, "t1"); err != nil && !errors.Is(err, core.ErrNotFound) {
		t.Log(err) // its plan is not stored
	}
	if n := stored(t, s); n != 1 {
		t.Errorf("%d stored", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	own, err := pgx.Connect(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close(context.Background())
	c, err := pgx.Connect(t.Context(), through)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if got, want := setting(t, c), setting(t, own); got != want {
		t.Errorf("the next one finds %s, want %s", got, want)
	}
}

// A pooler that comes between later is told by its errors.
// covers: B7
func TestLostStatementNamesThePooler(t *testing.T) {
	for _, code := range []string{"42P05", "26000"} {
		if says := postgres.Says(code); !strings.Contains(says, "pooler") {
			t.Errorf("%s: %s", code, says)
		}
	}
}
