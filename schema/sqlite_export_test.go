package schema

// The queries that run all the time, for a test of how SQLite goes about them.
var (
	QActive    = newQueries(Columns()).active
	QOverdue   = overdueRows
	QSteps     = qOverdue
	QWaiting   = qWaiting
	QNextAgent = qNextAgent
	QUntold    = qUntold
)
