// Package agents is the runtime around one service call: it turns a command
// into at most one reply, in time or not at all.
//
// [Runtime.Handle] does that, synchronously and without a clock, random source or
// goroutine of its own. It gives the handler a context that ends at the command's
// complete-by, tries again inside that time what may be tried again, and turns the
// outcome into a reply:
//
//	handler                                reply
//	a result                               0
//	a result over ResultMax, or not JSON   512, failed for good
//	an error from [Refuse]                 422 or the 4xx it names, final
//	any other error                        500, tried again
//	an error from [Fail]                   512, failed for good: undone
//	a panic                                512, logged with its stack
//	anything, once complete-by has passed  none
//
// The last line is a rule: past its complete-by an agent sends nothing, not even an
// error, because the scheduler has stopped reading and has begun to recover.
//
// [Runtime.Run] is Handle for the commands of a [Source], on goroutines. It bounds them
// per agent: at most [Config].RunningMax run, at most WaitingMax wait for those in a
// queue, and one beyond is answered 429 at once, which the scheduler takes as "try again
// later". When its context ends it takes no new command and finishes those in flight,
// within a bound.
//
// A [Starter] begins the work of a command and calls done later: Run keeps no goroutine
// for the command meanwhile. The table above holds for it too.
//
// A command may come twice, and an undo may overtake its do. An agent whose
// service does not sort that out itself puts a [Ledger] in between.
package agents
