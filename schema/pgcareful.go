package schema

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/internal/core"
)

// bornSQL tells what stands where births were left out.
const bornSQL = `SELECT u.place, t.partition, t.number, t.id, t.type, t.input_hash, t.state, t.commit_id
FROM unnest($1::INT8[], $2::TEXT[], $3::INT8[]) AS u(partition, id, place) JOIN tasks AS t ON t.partition = u.partition AND t.id = u.id ORDER BY u.place`

// oursSQL counts the journal rows that stand under our commit, in partitions that
// are still ours: those of an earlier sending may be another's by now.
const oursSQL = `SELECT count(*) FROM unnest($2::INT8[], $3::INT8[], $4::INT8[]) AS u(partition, number, seq)
JOIN journal AS j ON j.partition = u.partition AND j.number = u.number AND j.seq = u.seq
WHERE j.commit_id = $1 AND u.partition = ANY($5::INT8[])`

// holdPartitionsSQL makes others' commits and purges wait, and waits for theirs.
const holdPartitionsSQL = `SELECT partition FROM partitions WHERE partition = ANY($1::INT8[]) ORDER BY partition FOR UPDATE`

func partitionsOf(b *core.Batch) []int64 {
	all := make([]int64, len(b.Partitions))
	for i := range b.Partitions {
		all[i] = int64(b.Partitions[i].Partition)
	}
	return all
}

// writeCarefully runs the fence, the births and the journal.
func writeCarefully(ctx context.Context, tx pgx.Tx, sql string, b *core.Batch, c *columns) (own []int64, born, written int, err error) {
	careful, err := tx.Prepare(ctx, "duly_careful", sql)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("prepare the careful commit: %w", err)
	}
	conn := tx.Conn()
	result := conn.PgConn().ExecStatement(ctx, careful, c.careful(b), binaryFormat, nil)
	rows := pgx.RowsFromResultReader(conn.TypeMap(), result)
	for rows.Next() {
		if err := rows.Scan(&own, &born, &written); err != nil {
			rows.Close()
			return nil, 0, 0, err
		}
	}
	return own, born, written, rows.Err()
}

func updateRows(ctx context.Context, tx pgx.Tx, c *columns, own []int64) error {
	rows, err := tx.Prepare(ctx, "duly_rows", rowsSQL)
	if err != nil {
		return fmt.Errorf("prepare the update of rows: %w", err)
	}
	only := array{oid: oids["INT8"]}
	only.reset()
	for _, p := range own {
		only.int(p)
	}
	_, err = tx.Conn().PgConn().ExecStatement(ctx, rows, c.update(only.param()), binaryFormat, nil).Close()
	return err
}

// standing counts the batch's journal rows that stand under its id.
func standing(ctx context.Context, tx pgx.Tx, b *core.Batch, own []int64) (ours int, err error) {
	var partitions, numbers, seqs []int64
	for i := range b.Writes {
		w := &b.Writes[i]
		for k := range w.Records {
			partitions = append(partitions, int64(w.Task.Partition))
			numbers = append(numbers, w.Task.Number)
			seqs = append(seqs, w.Records[k].Seq)
		}
	}
	err = tx.QueryRow(ctx, oursSQL, b.ID, partitions, numbers, seqs, own).Scan(&ours)
	return ours, err
}

// expected is how many births and journal rows the owned partitions have.
func expected(b *core.Batch, owned map[int]bool) (births, rows int) {
	for i := range b.Writes {
		w := &b.Writes[i]
		if !owned[w.Task.Partition] {
			continue
		}
		rows += len(w.Records)
		if w.Birth {
			births++
		}
	}
	return births, rows
}

// leftOut finds the births that did not happen now: those of an earlier sending
// of this very batch are ours, all others are duplicates. It returns how many
// journal rows the duplicates would have had.
func leftOut(ctx context.Context, tx pgx.Tx, b *core.Batch, owned map[int]bool, res *core.CommitResult) (int, error) {
	var partitions []int64
	var ids []string
	var places []int64 // of the births in the batch
	for i := range b.Writes {
		if w := &b.Writes[i]; w.Birth && owned[w.Task.Partition] {
			partitions = append(partitions, int64(w.Task.Partition))
			ids = append(ids, w.Task.ID)
			places = append(places, int64(i))
		}
	}
	rows, err := tx.Query(ctx, bornSQL, partitions, ids, places)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	left := 0
	for rows.Next() {
		var e core.Existing
		var state string
		var place int
		var commit int64
		if err := rows.Scan(&place, &e.Partition, &e.Number, &e.ID, &e.Type, &e.InputHash, &state, &commit); err != nil {
			return 0, err
		}
		e.State = core.State(state)
		w := &b.Writes[place]
		if commit == b.ID && e.Number == w.Task.Number {
			continue
		}
		res.Duplicates = append(res.Duplicates, core.Duplicate{Partition: e.Partition, Number: w.Task.Number, Existing: e})
		left += len(w.Records)
	}
	return left, rows.Err()
}
