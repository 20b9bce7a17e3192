package schema

// The queries that run all the time, for a test of how SQLite goes about them.
const (
	QActive    = qActive
	QOverdue   = qOverdue
	QWaiting   = qWaiting
	QNextAgent = qNextAgent
	QUntold    = qUntold
)
