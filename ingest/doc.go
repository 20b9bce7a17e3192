// Package ingest is the front door: it takes submissions,
// refuses what cannot become a task, packs the rest and answers each one when
// the task stream has stored it.
//
// [Door] is the role itself: a synchronous handler without goroutine, clock or
// randomness of its own. A submission goes through it in one direction:
//
//	admit → check → pack → publish → answer
//
// A positive answer leaves only after the stream has stored the submission.
// Whatever else happens, every request is answered exactly once: refused at
// once when the door is full, told that it was not stored, or told that the
// outcome is unknown and that the same id may safely be submitted again.
//
// Packs exist because the stream syncs to disk for every message: one sync for
// 64 submissions instead of 64. A pack waits for company only as long as there
// is load; see [Config.WindowMax].
//
// [Ingest] is the thin, blocking shell around a Door: an inbox that any
// goroutine may fill and one loop that owns the door. The package never writes SQL;
// internal/api serves it over HTTP.
package ingest
