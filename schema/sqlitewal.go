package schema

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"modernc.org/libc"
	lite "modernc.org/sqlite/lib"
)

// How far the WAL grows, in frames of one page (4 KB) each.
const (
	liteRound = 8 << 10  // 32 MB are copied in one round: a page that changed often is copied once
	liteMost  = 16 << 10 // 64 MB, then the WAL is begun anew
	liteRest  = 1 << 10  // what may be left to copy while commits wait
)

// liteAgain is how long after a failed or hindered round the next one is tried.
const liteAgain = 250 * time.Millisecond

// liteWal copies the WAL into the tables beside the commits, on a connection of
// its own. It never lets a commit fail: what it cannot copy stays in the WAL, which
// is as durable, and is tried again.
//
// Rounds do not hinder commits or readers, but while commits go on SQLite cannot
// begin the WAL anew, so above liteMost a last, small round has the turn to write.
// What bounds the WAL then is the longest read, behind which nothing can be copied,
// and, while copying fails, the disk.
type liteWal struct {
	conn     *liteConn
	takeTurn func(context.Context) error
	endTurn  func()
	look     chan struct{} // the WAL may have grown by a round
	cancel   context.CancelFunc
	done     chan struct{}
	failure  atomic.Pointer[error] // of the last round
	broken   bool                  // see sync
}

// liteFrames is how many frames the WAL has, and how many of them are copied.
type liteFrames struct{ all, copied int }

// newLiteWal starts the goroutine that Close ends.
func newLiteWal(conn *liteConn, takeTurn func(context.Context) error, endTurn func()) *liteWal {
	ctx, cancel := context.WithCancel(context.Background())
	w := &liteWal{conn: conn, takeTurn: takeTurn, endTurn: endTurn, look: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	go w.run(ctx)
	return w
}

// grown has the goroutine look at the WAL.
func (w *liteWal) grown() {
	select {
	case w.look <- struct{}{}:
	default:
	}
}

// stop waits for the round that is under way. Nobody may hold the turn and wait
// for it.
func (w *liteWal) stop() {
	w.cancel()
	<-w.done
}

func (w *liteWal) run(ctx context.Context) {
	defer close(w.done)
	again := time.NewTimer(0) // a WAL may be there from before
	defer again.Stop()
	look := w.look
	for {
		select {
		case <-ctx.Done():
			return
		case <-look:
		case <-again.C:
			look = w.look
		}
		settled, err := w.round(ctx)
		if ctx.Err() != nil {
			return
		}
		w.report(err)
		if w.broken {
			return
		}
		if !settled {
			look = nil // more growth is no reason to try earlier
			again.Reset(liteAgain)
		}
	}
}

// report logs a failure once, and its end.
func (w *liteWal) report(err error) {
	before := w.failure.Load()
	switch {
	case err != nil && before == nil:
		slog.Error("SQLite: the WAL cannot be copied into the tables and grows; commits are safe in it", "error", err, "for_good", w.broken)
	case err == nil && before != nil:
		slog.Info("SQLite: the WAL is copied into the tables again")
	}
	if err == nil {
		w.failure.Store(nil)
		return
	}
	w.failure.Store(&err)
}

// err is why the WAL is not copied at the moment.
func (w *liteWal) err() error {
	if e := w.failure.Load(); e != nil {
		return fmt.Errorf("copy the WAL: %w", *e)
	}
	return nil
}

// round copies what there is to copy; it reports whether all that could be done
// was.
func (w *liteWal) round(ctx context.Context) (settled bool, err error) {
	f, err := w.checkpoint(lite.SQLITE_CHECKPOINT_NOOP)
	if err != nil || f.all-f.copied < liteRound && f.all < liteMost {
		return err == nil, err
	}
	// Each round copies what came in during the one before, so the last one, which
	// commits wait for, has little left to copy and to sync. If commits are faster
	// than the rounds there will never be less: then commits have to wait.
	for last := math.MaxInt; ; {
		before := f.copied
		if f, err = w.checkpoint(lite.SQLITE_CHECKPOINT_PASSIVE); err != nil {
			return false, err
		}
		if f.copied < f.all {
			return false, nil // a reader still needs the tables as they are
		}
		if err := w.sync(); err != nil {
			return false, err
		}
		if f.all < liteMost {
			return true, nil
		}
		n := f.copied - before
		if n <= liteRest || n > last/2 {
			break
		}
		last = n
	}
	if err := w.takeTurn(ctx); err != nil {
		return false, err
	}
	defer w.endTurn()
	// RESTART leaves the file its size, so the next frames need no new blocks, and
	// the writer what it has cached, which TRUNCATE would not.
	f, err = w.checkpoint(lite.SQLITE_CHECKPOINT_RESTART)
	return err == nil && f.copied == f.all, err
}

// checkpoint runs a checkpoint. That somebody is in the way is no error.
func (w *liteWal) checkpoint(mode int32) (liteFrames, error) {
	c := w.conn
	rc := lite.Xsqlite3_wal_checkpoint_v2(c.tls, c.db, 0, mode, c.out, c.out+4)
	if rc == lite.SQLITE_IOERR_FSYNC {
		w.broken = true
	}
	if rc != lite.SQLITE_OK && rc&0xff != lite.SQLITE_BUSY {
		return liteFrames{}, c.fault(rc)
	}
	out := libc.GoBytes(c.out, 8)
	f := liteFrames{all: int(int32(binary.NativeEndian.Uint32(out))), copied: int(int32(binary.NativeEndian.Uint32(out[4:])))}
	if rc != lite.SQLITE_OK && f.copied >= f.all {
		f.copied = f.all - 1 // all is copied, but a reader keeps the WAL from its new beginning
	}
	return f, nil
}

// sync syncs the file of the tables: SQLite leaves that to the round that finds
// no newer commit, for which commits would wait. Only SQLite's own handle will do:
// to close another would give up the locks of all.
//
// After a failure a second try would succeed without what the first lost. So the
// WAL is then kept, whole, for the next start.
func (w *liteWal) sync() error {
	c := w.conn
	if rc := lite.Xsqlite3_file_control(c.tls, c.db, 0, lite.SQLITE_FCNTL_FILE_POINTER, c.out); rc != lite.SQLITE_OK {
		return c.fault(rc)
	}
	at := c.given()
	file := *(**lite.Tsqlite3_file)(unsafe.Pointer(&at))
	methods := *(**lite.Tsqlite3_io_methods)(unsafe.Pointer(&file.FpMethods))
	xSync := struct{ f uintptr }{methods.FxSync}
	call := *(*func(*libc.TLS, uintptr, int32) int32)(unsafe.Pointer(&xSync))
	if rc := call(c.tls, at, lite.SQLITE_SYNC_NORMAL); rc != lite.SQLITE_OK {
		w.broken = true
		return &liteError{code: rc, text: "sync of the tables' file"}
	}
	return nil
}

// Close closes the connection, after all others of the store and after stop: the
// last one copies the WAL and deletes it, which must not be after a failed sync.
func (w *liteWal) Close() error {
	if w.broken && w.conn.tls != nil {
		if err := w.conn.keepWal(); err != nil {
			return errors.Join(err, w.conn.Close())
		}
	}
	return w.conn.Close()
}
