// Package scheduler owns partitions of tasks and is the only writer of their
// rows and journal.
//
// [Shard] is the role itself: a synchronous handler without goroutine, clock or
// randomness of its own. One call of [Crew.Turn] takes everything that arrived for a
// shard since the last, or for several at once, and its order is the promise of the
// whole program:
//
//	apply → commit → publish → acknowledge
//
// What a turn decides is in memory only until the store has committed it; no
// command, status or acknowledgement leaves before. A commit that finds the
// partition's epoch raised by a successor leaves that partition out, and the
// shard drops it ([Turned.Lost]).
//
// [Scheduler] is the thin, blocking shell around a few shards: it decides which
// partitions this node owns, feeds mail to the shards and drains them at the
// end.
//
// Memory is a cache: a partition holds the tasks that have a command out or a
// backoff on; parked and ended tasks live in the store and are loaded when an
// event names them.
package scheduler
