// Package repair carries out one action on many tasks: previews with a frozen membership and a rehearsal, operations
// that run in waves with a brake.
//
// [Service] is what operators ask: it freezes, rehearses, starts and changes operations, and writes each to the audit
// trail. [Runner] is what the supervisor's leader runs: it asks the owners of the members in waves of 1, 5, 25, 125 …
// and reads from rows and journals what became of them.
//
// The runner's memory is a cache. What an operation has come to is in the state store: a member counts as asked before
// the message about it leaves, and a message names the journal row that it is about, so that one that is sent again
// changes nothing twice. Each write raises the operation's epoch in the same transaction; a runner whose write is
// refused forgets the operation and reads it again. Two runners at once are therefore harmless, and the supervisor's
// lease only saves work.
//
// Of one member the outcome follows from where its task stands ([Store.Standing]): the owner's control cursor tells a
// request that was refused from one that has not been read yet.
package repair
