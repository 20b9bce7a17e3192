// Package natsserver runs a NATS server with JetStream inside the process, for
// `duly dev`, the demo and the tests. Nothing a user's agent links may import it.
//
// The server syncs every write to disk before it answers, because an accepted
// task must survive a loss of power. It holds a lock on its store directory:
// nats-server itself has none, and a second server on the same directory would
// corrupt it without an error.
package natsserver
