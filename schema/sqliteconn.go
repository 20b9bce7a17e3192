package schema

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	lite "modernc.org/sqlite/lib"
)

// liteConn is the connection that commits. It speaks to SQLite itself, below the
// driver: of a commit's work with the driver a third went into binding, where
// every parameter is looked up by name, boxed, copied into memory of its own and
// locked for. Only who has the store's turn may use it.
type liteConn struct {
	tls        *libc.TLS
	db         uintptr            // 0: closed
	out        uintptr            // where SQLite puts a pointer that it gives
	statements map[string]uintptr // by their SQL, kept until Close
	texts      uintptr            // memory of SQLite's side that texts are bound in
	mirror     []byte             // the same memory as Go sees it
}

// liteError is an error of SQLite with its extended code.
type liteError struct {
	code int32
	text string
}

func (e *liteError) Error() string { return fmt.Sprintf("%s (%d)", e.text, e.code) }

// errLiteClosed is what a commit after Close gets.
var errLiteClosed = errors.New("the database is closed")

// openLiteConn opens the file that the URI names. SQLite itself needs no lock on
// the connection (NOMUTEX), because one goroutine at a time uses it.
func openLiteConn(uri string, pragmas []string) (*liteConn, error) {
	c := &liteConn{tls: libc.NewTLS(), statements: map[string]uintptr{}}
	c.out = libc.Xcalloc(c.tls, 1, 8)
	name, err := libc.CString(uri)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	defer libc.Xfree(nil, name)
	const flags = lite.SQLITE_OPEN_READWRITE | lite.SQLITE_OPEN_CREATE | lite.SQLITE_OPEN_URI | lite.SQLITE_OPEN_NOMUTEX
	rc := lite.Xsqlite3_open_v2(c.tls, name, c.out, flags, 0)
	c.db = c.given()
	if rc != lite.SQLITE_OK {
		return nil, errors.Join(c.fault(rc), c.Close())
	}
	lite.Xsqlite3_extended_result_codes(c.tls, c.db, 1)
	for _, p := range pragmas {
		if _, err := c.exec("PRAGMA "+p, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("pragma %s: %w", p, err), c.Close())
		}
	}
	return c, nil
}

// given is the pointer that SQLite gave last.
func (c *liteConn) given() uintptr {
	return uintptr(binary.NativeEndian.Uint64(libc.GoBytes(c.out, 8)))
}

func (c *liteConn) fault(rc int32) error {
	return &liteError{code: rc, text: libc.GoString(lite.Xsqlite3_errmsg(c.tls, c.db))}
}

// Close closes the connection, once.
func (c *liteConn) Close() error {
	if c.tls == nil {
		return nil
	}
	for _, s := range c.statements {
		lite.Xsqlite3_finalize(c.tls, s) // repeats the error of its last run, which was reported
	}
	var err error
	if rc := lite.Xsqlite3_close_v2(c.tls, c.db); rc != lite.SQLITE_OK {
		err = c.fault(rc)
	}
	libc.Xfree(c.tls, c.out)
	libc.Xfree(c.tls, c.texts)
	c.tls.Close()
	*c = liteConn{}
	return err
}

// written is how many pages the connection's commits have written.
func (c *liteConn) written() int {
	if c.db == 0 {
		return 0
	}
	lite.Xsqlite3_db_status(c.tls, c.db, lite.SQLITE_DBSTATUS_CACHE_WRITE, c.out, c.out+4, 0)
	return int(binary.NativeEndian.Uint32(libc.GoBytes(c.out, 4)))
}

// keepWal has Close leave the WAL as it is.
func (c *liteConn) keepWal() error {
	on := libc.NewVaList(int32(1), uintptr(0))
	defer libc.Xfree(c.tls, on)
	if rc := lite.Xsqlite3_db_config(c.tls, c.db, lite.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, on); rc != lite.SQLITE_OK {
		return c.fault(rc)
	}
	return nil
}

// statement compiles a statement once. SQLite compiles it again by itself when
// the tables have changed.
func (c *liteConn) statement(query string) (uintptr, error) {
	if c.db == 0 {
		return 0, errLiteClosed
	}
	if s := c.statements[query]; s != 0 {
		return s, nil
	}
	text, err := libc.CString(query)
	if err != nil {
		return 0, err
	}
	defer libc.Xfree(c.tls, text)
	if rc := lite.Xsqlite3_prepare_v3(c.tls, c.db, text, -1, lite.SQLITE_PREPARE_PERSISTENT, c.out, 0); rc != lite.SQLITE_OK {
		return 0, fmt.Errorf("prepare: %w", c.fault(rc))
	}
	s := c.given()
	c.statements[query] = s
	return s, nil
}

// exec runs a statement and returns how many rows it changed.
func (c *liteConn) exec(query string, a *liteArgs) (int, error) {
	if a == nil {
		return c.run(query, nil)
	}
	c.load(a.bytes)
	return c.run(query, a.args)
}

// run is exec with texts that are loaded already.
func (c *liteConn) run(query string, args []liteArg) (int, error) {
	s, err := c.statement(query)
	if err != nil {
		return 0, err
	}
	if err := c.bind(s, args); err != nil {
		return 0, err
	}
	defer lite.Xsqlite3_reset(c.tls, s)
	if rc := lite.Xsqlite3_step(c.tls, s); rc != lite.SQLITE_DONE && rc != lite.SQLITE_ROW {
		return 0, c.fault(rc)
	}
	return int(lite.Xsqlite3_changes(c.tls, c.db)), nil
}

// row has read read the one row of a query; it reports whether there is one.
func (c *liteConn) row(query string, a *liteArgs, read func(liteFound)) (bool, error) {
	s, err := c.statement(query)
	if err != nil {
		return false, err
	}
	c.load(a.bytes)
	if err := c.bind(s, a.args); err != nil {
		return false, err
	}
	defer lite.Xsqlite3_reset(c.tls, s)
	switch rc := lite.Xsqlite3_step(c.tls, s); rc {
	case lite.SQLITE_ROW:
		read(liteFound{tls: c.tls, statement: s})
		return true, nil
	case lite.SQLITE_DONE:
		return false, nil
	default:
		return false, c.fault(rc)
	}
}

// bind gives the statement all of its parameters, so none is left from the run
// before. Texts stay where load put them.
func (c *liteConn) bind(s uintptr, args []liteArg) error {
	for i := range args {
		a, n := &args[i], int32(i+1)
		var rc int32
		switch a.kind {
		case liteNull:
			rc = lite.Xsqlite3_bind_null(c.tls, s, n)
		case liteInt:
			rc = lite.Xsqlite3_bind_int64(c.tls, s, n, a.value)
		case liteText:
			rc = lite.Xsqlite3_bind_text(c.tls, s, n, c.texts+uintptr(a.from), int32(a.value), lite.SQLITE_STATIC)
		case liteBlob:
			rc = lite.Xsqlite3_bind_blob(c.tls, s, n, c.texts+uintptr(a.from), int32(a.value), lite.SQLITE_STATIC)
		}
		if rc != lite.SQLITE_OK {
			return c.fault(rc)
		}
	}
	return nil
}

// load copies texts to SQLite's side, in one piece instead of one by one.
func (c *liteConn) load(bytes []byte) {
	if len(bytes) >= len(c.mirror) {
		libc.Xfree(c.tls, c.texts)
		size := 2*len(bytes) + 1<<16
		c.texts = libc.Xmalloc(c.tls, types.Size_t(size))
		c.mirror = unsafe.Slice(*(**byte)(unsafe.Pointer(&c.texts)), size)
	}
	copy(c.mirror, bytes)
}

// transact runs do in a transaction that may write from its beginning.
func (c *liteConn) transact(do func() error) error {
	if _, err := c.exec(`BEGIN IMMEDIATE`, nil); err != nil {
		return err
	}
	err := do()
	if err == nil {
		_, err = c.exec(`COMMIT`, nil)
	}
	if err != nil && lite.Xsqlite3_get_autocommit(c.tls, c.db) == 0 { // else it has rolled back by itself
		_, back := c.exec(`ROLLBACK`, nil)
		return errors.Join(err, back)
	}
	return err
}
