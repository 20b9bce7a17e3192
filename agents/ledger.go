package agents

import "context"

// Ledger remembers what became of the keys an agent worked on, so that a
// command that comes twice has one effect and a do that comes after its undo
// has none. A durable one belongs in the agent's own database, in the
// transaction of the effect itself: package pgledger is that in PostgreSQL.
// Package kvledger keeps one in a bucket of NATS, around any effect.
// [MemoryLedger] forgets with its process. Package ledgertest holds an
// implementation to what is said here.
//
// An implementation must serialise the work on one key, and keep what it knows
// for longer than a command can still arrive: the task's deadline plus the
// plan's grace, at least.
type Ledger interface {
	// Do runs work once per key and gives its result:
	//   - a key whose do succeeded: the remembered result, without work;
	//   - a key that is at work: ErrInProgress, without work;
	//   - a key whose undo has begun: ErrGone, without work;
	//   - otherwise: what work gives. An error leaves the key as it was.
	Do(ctx context.Context, key string, work func(ctx context.Context) (result []byte, err error)) ([]byte, error)

	// Undo runs work until it has succeeded once, and leaves a tombstone:
	//   - a key that is at work: ErrInProgress, without work or tombstone;
	//   - a key whose undo succeeded: nil, without work;
	//   - otherwise: what work gives. known says whether do is known to have
	//     succeeded, with that result; work must cope with false, because "not
	//     known" is not "not done". The tombstone is set before work begins, so
	//     that no do can slip in behind it, and stays when work fails.
	Undo(ctx context.Context, key string, work func(ctx context.Context, result []byte, known bool) error) error
}
