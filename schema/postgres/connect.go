package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// connectMax bounds the making of one connection, of which the time-out may be
	// given in the URL, and the look whether one that was idle still works.
	connectMax = 5 * time.Second
	// closeMax is how long Close is polite to a server that does not answer.
	closeMax = time.Second
)

// endIdleSQL has the server end a transaction in which nothing is said for so long: its process is frozen, or gone without a
// word, and the locks keep its successor from the partitions. Both databases have it.
const endIdleSQL = "SET idle_in_transaction_session_timeout = 60000"

// poolConfig is that of a pool to the database of a URL.
func poolConfig(url string, s *sockets) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	c := cfg.ConnConfig
	c.OnPgError = usableAfter
	c.DialFunc = s.tracking(newDialer().DialContext)
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectMax
	}
	if cfg.PingTimeout == 0 {
		cfg.PingTimeout = connectMax
	}
	// Of several hosts the one that takes writes is meant, whichever it is by now.
	if severalHosts(&c.Config) && c.ValidateConnect == nil && !strings.Contains(url, "target_session_attrs=") && os.Getenv("PGTARGETSESSIONATTRS") == "" {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if c.TLSConfig != nil {
		cfg.BeforeConnect = func(_ context.Context, to *pgx.ConnConfig) error {
			certificates(url, &to.Config)
			return nil
		}
	}
	return cfg, nil
}

// certificates has a connection made by the files of sslrootcert, sslcert and sslkey as they are now. What cannot be read
// now, while it is being replaced for instance, leaves those of before.
func certificates(url string, to *pgconn.Config) {
	now, err := pgconn.ParseConfig(url)
	if err != nil || len(now.Fallbacks) != len(to.Fallbacks) {
		return
	}
	to.TLSConfig = now.TLSConfig
	for i := range to.Fallbacks {
		to.Fallbacks[i].TLSConfig = now.Fallbacks[i].TLSConfig
	}
}

func severalHosts(c *pgconn.Config) bool {
	for _, f := range c.Fallbacks { // the same host without TLS may be one of them
		if f.Host != c.Host || f.Port != c.Port {
			return true
		}
	}
	return false
}

// setUp says what is set on a new connection of those that commit and read by key. The
// commit's statements, which are the only ones that are prepared there, are planned once
// for arrays of any length: plans made for each batch cost as much as small batches do,
// and a server that has seen a few small ones would never stop making them. All others
// are planned each time (QueryExecModeCacheDescribe): a list of keys is looked up by the
// index where the table is large and compared row by row where it is small, and a plan
// that is kept is from when the table was small. Scans of whole tables are priced out,
// because a table without statistics is taken for smaller than it is.
func setUp(c *pgxpool.Config, pooler *poolerCheck, level pgx.TxIsoLevel, timeout time.Duration) {
	common := []string{
		fmt.Sprintf("SET statement_timeout = %d", timeout.Milliseconds()),
		// Sooner than a statement that is too slow: who waits for another's lock is not.
		fmt.Sprintf("SET lock_timeout = %d", timeout.Milliseconds()/3),
		fmt.Sprintf("SET default_transaction_isolation = '%s'", level), // of transactions without a BEGIN
		endIdleSQL,
	}
	c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	c.AfterConnect = inTurn(pooler.check, settings(common, []string{
		"SET plan_cache_mode = force_generic_plan", "SET enable_seqscan = off", "SET jit = off",
	}))
}

// setUpAsking says the same of those for people who ask: their planner is as it comes.
func setUpAsking(c *pgxpool.Config, pooler *poolerCheck, timeout time.Duration) {
	c.AfterConnect = inTurn(pooler.check, settings([]string{fmt.Sprintf("SET statement_timeout = %d", timeout.Milliseconds()), endIdleSQL}, nil))
}

// inTurn does one after the other with a new connection.
func inTurn(all ...func(context.Context, *pgx.Conn) error) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, c *pgx.Conn) error {
		for _, do := range all {
			if err := do(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}
}

// settings set up a new connection; postgres are not for CockroachDB.
func settings(common, postgres []string) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, c *pgx.Conn) error {
		sets := common
		if c.PgConn().ParameterStatus("crdb_version") == "" {
			sets = append(common[:len(common):len(common)], postgres...)
		}
		for _, set := range sets {
			if _, err := c.Exec(ctx, set); err != nil {
				return fmt.Errorf("set up connection: %w", err)
			}
		}
		return nil
	}
}

// sockets are the network connections of a store. A driver is polite to a server that
// it gives up: it asks it to stop and waits for the answer. One that is frozen gives
// none, and Close would wait for each connection.
type sockets struct {
	mu     sync.Mutex
	open   map[*socket]bool
	closed bool
}

type socket struct {
	net.Conn
	of *sockets
}

var errSocketsClosed = errors.New("the store is being closed")

// tracking is a dialer whose connections are known.
func (s *sockets) tracking(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			return nil, errors.Join(errSocketsClosed, conn.Close())
		}
		c := &socket{conn, s}
		if s.open == nil {
			s.open = map[*socket]bool{}
		}
		s.open[c] = true
		return c, nil
	}
}

// Close closes the connection.
func (c *socket) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// cut closes all connections, and those that are made from now on. What they were used
// for tells of it.
func (s *sockets) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		_ = c.Conn.Close() // it is given up
	}
}
