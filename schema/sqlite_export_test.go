package schema

import "database/sql"

// The queries that run all the time, for a test of how SQLite goes about them.
const (
	QActive    = qActive
	QOverdue   = qOverdue
	QWaiting   = qWaiting
	QNextAgent = qNextAgent
	QUntold    = qUntold
	LiteRow    = liteRow
)

// WriterDB is the database of a SQLite store that may be written to.
func WriterDB(s Store) *sql.DB { return s.(*sqlite).writer }

// WalReport has the store believe that this came of copying the WAL; nothing is
// copied any more, which would have a word of its own.
func WalReport(s Store, err error) {
	w := s.(*sqlite).wal
	w.stop()
	w.report(err)
}

// WalBroken has the store believe that a sync has failed.
func WalBroken(s Store) {
	w := s.(*sqlite).wal
	w.stop()
	w.broken = true
}
