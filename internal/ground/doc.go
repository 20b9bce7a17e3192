// Package ground knows what a node stands on: its connections, streams, database, clock, partitions and leader. Each is
// a named [Condition], which is probed about once a second or reported by the part that uses it.
//
// The package alone decides what a trouble leads to. It writes one line to the log when a trouble has lasted its grace
// and one when it is over, raises an alert with the same words at both, and lists what makes the node not ready. Nothing
// is written per try: a part that retries reports the outcome of each try here instead of logging it.
//
// A trouble that comes back within settle is the same trouble: it keeps its beginning and is counted. So a cause that
// flaps makes two lines and not two for each turn.
package ground
