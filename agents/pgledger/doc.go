// Package pgledger keeps an agent's ledger in PostgreSQL, in the transaction of the effect itself: what a step writes there
// and the row that says so commit together, so that the effect is there exactly once, whatever dies when.
//
//	ledger, err := pgledger.New(pool, pgledger.Options{})
//	agent, err := duly.NewAgent(nc, duly.WithLedger(ledger))
//
// A handler finds its transaction with [Ledger.Tx]. A step of an agent without a ledger calls [Do] and [Undo] itself.
//
// What a handler does outside of the transaction is not covered: a mail is sent twice if the commit fails. Where the effect
// is elsewhere, give the key to the service, or see package kvledger.
//
// [New] is for pgx, [NewSQL] for database/sql. The table is made by [Ledger.Setup], or by [SQL] among your own migrations;
// [Ledger.Forget] keeps it small.
//
// # How it works
//
// A do inserts the row of its key, does its work, writes the result into the row, and commits. An undo first writes its
// tombstone by itself, so that it stays whatever becomes of the work; the work and the end of the undo commit together.
//
// A key that is at work elsewhere is refused at once with duly.ErrInProgress: each transaction holds an advisory lock of
// its key that none waits for. It ends with the transaction, also when the process or its connection does; a host that
// vanishes is cut off by the server once its command's time is over (idle_in_transaction_session_timeout).
package pgledger
