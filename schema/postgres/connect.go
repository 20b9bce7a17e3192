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

	"duly.dev/duly/internal/option"
)

const (
	// connectMax bounds making one connection, unless the URL says otherwise, and checking whether one that
	// was idle still works.
	connectMax = 5 * time.Second
	// closeMax is how long Close waits for a server that does not answer before it cuts the connections.
	closeMax = time.Second
)

// endIdleSQL makes the server end a transaction in which the client is silent for a minute. The client's
// process is frozen or gone then, and the transaction's locks would keep its successor from the partitions.
// Both databases know the setting.
const endIdleSQL = "SET idle_in_transaction_session_timeout = 60000"

// poolConfig makes the configuration of a pool for a URL. s gets to know the pool's network connections.
func poolConfig(url string, s *sockets) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, option.Refuse("database-url", err)
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
	// Of several hosts take the one that accepts writes, whichever that is by now.
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

// certificates reads the files of sslrootcert, sslcert and sslkey anew for a connection, so that replaced
// certificates are used. If they cannot be read, perhaps because they are just being replaced, those from
// before stay.
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

// severalHosts reports whether the URL names several servers.
func severalHosts(c *pgconn.Config) bool {
	for _, f := range c.Fallbacks { // the same host without TLS may be one of them
		if f.Host != c.Host || f.Port != c.Port {
			return true
		}
	}
	return false
}

// setUp configures the pool of the owners: commits, and reads by key.
//
// Only a commit's statements are prepared there, and they are planned once for arrays of any length. Planning
// them for each batch would cost as much as a small batch does, and a server that has seen a few small
// batches would never stop.
//
// All other statements are planned each time (QueryExecModeCacheDescribe). A list of keys needs the index
// where the table is large and a comparison with every row where it is small, and a kept plan is from when
// the table was small. Scans of whole tables are priced out, because a table without statistics is taken for
// smaller than it is.
func setUp(c *pgxpool.Config, pooler *poolerCheck, level pgx.TxIsoLevel, timeout time.Duration) {
	common := []string{
		fmt.Sprintf("SET statement_timeout = %d", timeout.Milliseconds()),
		// Less than statement_timeout: waiting for another's lock must not look like a slow statement.
		fmt.Sprintf("SET lock_timeout = %d", timeout.Milliseconds()/3),
		fmt.Sprintf("SET default_transaction_isolation = '%s'", level), // of transactions without a BEGIN
		endIdleSQL,
	}
	c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	c.AfterConnect = inTurn(pooler.check, settings(common, []string{
		"SET plan_cache_mode = force_generic_plan", "SET enable_seqscan = off", "SET jit = off",
	}))
}

// setUpAsking configures the pool for people. Its planner stays as it is.
func setUpAsking(c *pgxpool.Config, pooler *poolerCheck, timeout time.Duration) {
	c.AfterConnect = inTurn(pooler.check, settings([]string{fmt.Sprintf("SET statement_timeout = %d", timeout.Milliseconds()), endIdleSQL}, nil))
}

// inTurn does one thing after the other with a new connection.
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

// settings sets up a new connection. postgres are settings that CockroachDB does not have.
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

// sockets knows the network connections of a store so that it can cut them. pgx, before it gives a connection
// up, asks the server to stop and waits for the answer; a frozen server gives none, and Close would wait for
// every connection.
type sockets struct {
	mu     sync.Mutex
	open   map[*socket]bool
	closed bool
}

// socket is a connection that takes itself off the list when it is closed.
type socket struct {
	net.Conn
	of *sockets
}

// errSocketsClosed refuses a connection that is made after cut.
var errSocketsClosed = errors.New("the store is being closed")

// tracking wraps a dialer so that s knows its connections.
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

// cut closes all connections, and every one that is made later. Whoever uses them gets an error.
func (s *sockets) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		_ = c.Conn.Close() // it is given up
	}
}
