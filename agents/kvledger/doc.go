// Package kvledger keeps an agent's ledger in a bucket of NATS JetStream, for effects outside of SQL: several processes share
// it, and it outlives them.
//
//	kv, err := kvledger.Create(ctx, js, kvledger.Bucket{Name: "payments", Keep: 72 * time.Hour})
//	ledger, err := kvledger.New(ctx, kv, kvledger.Options{})
//	agent, err := duly.NewAgent(nc, duly.WithLedger(ledger))
//
// # What it can promise, and what not
//
// Two calls with one key do not work at the same time, what has succeeded is not done again, and no do works once its undo
// has begun. Each of these is decided by the revision of one key of the bucket.
//
// Effect and record are in two systems. A process that dies between them leaves a claim: whether there is an effect is not
// known. Until the command's time is over the key counts as at work. After that
//
//   - a do works again, with the same key: the service behind must recognise it. This is the default.
//   - With [Options].AtMostOnce no do works again; it fails with [ErrUnknown], which is tried again and in the end is
//     undone, or waits for an operator, as the plan says. The same holds after an error of the work that does not say that
//     there is no effect: duly.Refuse and duly.RefuseCode do.
//
// Either way an undo works, and is told that the do is not known: it must look for the effect by the key.
//
// A do that stands still past its command's time may lose its claim to another. It finds that out when it records, and
// answers that it has failed; two of them may have reached the service. Where the effect is in PostgreSQL, package pgledger
// has none of these gaps.
package kvledger
