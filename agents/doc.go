// Package agents is the runtime around one service call: it turns a command
// into at most one reply, in time or not at all.
//
// [Runtime.Handle] is the whole of it, synchronous and without a clock, random
// source or goroutine of its own. It gives the handler a context that ends at
// the command's complete-by, tries again inside that time what may be tried
// again, and turns what came of it into a reply:
//
//	handler                                reply
//	a result                               0
//	a result over ResultMax, or not JSON   502, tried again
//	an error from [Refuse]                 422 or the 4xx it names, final
//	any other error                        500, tried again
//	a panic                                500, tried again, logged with its stack
//	anything, once complete-by has passed  none
//
// The last line is a rule: past its complete-by an agent is silent, not even an
// error leaves it, because whoever asked has stopped listening and has begun to
// recover.
//
// [Runtime.Run] is the thin blocking loop around Handle. It bounds the work in
// hand of each agent: so many commands run, so many more wait, and one beyond
// is answered 429 at once, which the scheduler takes as "try again later".
// When its context ends it takes no new command and finishes those in hand,
// within a bound.
//
// A [Starter] begins the work of a command and is done later: Run keeps no goroutine
// for it meanwhile, and what was said above of handlers holds for it.
//
// A command may come twice, and an undo may overtake its do. An agent whose
// service does not sort that out itself puts a [Ledger] in between.
package agents
