// Package scheduler owns partitions of tasks and is the only writer of their rows and journal.
//
// [Shard] is the role itself: a synchronous handler without goroutine, clock or randomness of its own. A commit cycle,
// [Shard.RunCycle], takes everything that arrived for a shard since the last, and its order is the promise of the whole
// program:
//
//	apply → commit → publish → acknowledge
//
// What a cycle decides is in memory only until the store has committed it; no command, status or acknowledgement leaves
// before. A commit that finds the partition's epoch raised by a successor leaves that partition out, and the shard
// drops it.
//
// [Committer] is the loop around one shard: an [Inbox] that collects mail, and when which partition is taken over or let
// go. [Scheduler] is what a node has of it: a few committers, independent of each other; which partitions are to be
// this node's; one [Admission] for all. Their decisions are plain functions, which the simulator calls as well; only
// [Scheduler.Run] has goroutines and timers.
//
// The files form rooms, which ARCHITECTURE.md lists: a file uses only its own room and those above it.
//
// Words that recur: a round is one batch and its commit, of which a cycle may need several; a slot is one agent as one
// partition sees it; a parked task waits in the store for room at an agent, and a blocked branch waits in memory; a
// do that wants to leave asks the gate.
//
// Memory is a cache: a partition holds the tasks that have a command out or a backoff on; parked and ended tasks live
// in the store and are loaded when an event names them.
package scheduler
