// Package group reads a JetStream stream in partitions, by any number of processes, and has each message take effect in SQL
// exactly once, in the order of its partition, whatever dies when.
//
//	err := group.Run(ctx, nc, pool, "ORDERS", func(ctx context.Context, tx pgx.Tx, msgs []group.Msg) error {
//		… // what is written in tx counts once
//	})
//
// Every process that calls [Run] is a member. Members share the partitions evenly; one that joins, leaves or dies moves little
// more than its share. The tables are made by [Setup], or by [SQL] among your own migrations.
//
// What a handler does outside of its transaction is not covered: it may happen again. So may the handler itself.
//
// # How it works
//
// Each partition has a row with an epoch and a cursor. A new owner raises the epoch. The transaction of a batch moves the
// cursor from where it was, under the owner's epoch, as its last statement: of two owners only the newer one can commit, and
// of two commits of one batch only the first.
//
// Members hold leases in a KV bucket, which only says soon that one has died. Nothing is acknowledged: consumers are made
// from the cursor, in the server's memory, and the stream is never changed. Keep messages for longer than the group may be
// behind (MaxAge, MaxBytes); the stream must not be a work queue, nor of interest.
package group
