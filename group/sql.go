package group

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SQL makes the tables, where they are not there yet: for your own migrations, of PostgreSQL or CockroachDB.
//
//go:embed group.sql
var SQL string

// Setup makes the tables where they are not there yet; two may do it at a time. The user needs the right to make tables.
func Setup(ctx context.Context, pool *pgxpool.Pool) error {
	for text := range strings.SplitSeq(SQL, ";\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		_, err := pool.Exec(ctx, text)
		if code := state(err); code == "23505" || code == "42P07" || code == "42710" || code == "40001" || code == "40P01" { // another makes it
			_, err = pool.Exec(ctx, text)
		}
		if err != nil {
			return fmt.Errorf("group: make tables: %w", err)
		}
	}
	return nil
}

// store is the tables of one group.
type store struct {
	pool  *pgxpool.Pool
	group string
	begin pgx.TxOptions
}

// opened is a store whose transactions end when they stand still for longer than hold.
func opened(pool *pgxpool.Pool, group string, hold time.Duration) store {
	return store{pool, group, pgx.TxOptions{BeginQuery: fmt.Sprintf("BEGIN; SET LOCAL idle_in_transaction_session_timeout = %d", hold.Milliseconds())}}
}

// row is what SQL says of a partition.
type row struct {
	partition int
	epoch     int64
	owner     string
	cursor    uint64
	stored    int64
	stopped   string
}

// wrap names the group, and what is missing.
func (s store) wrap(what string, err error) error {
	if state(err) == undefinedTable {
		return fmt.Errorf("group %s: %s: %w (%w)", s.group, what, ErrNoTable, err)
	}
	return fmt.Errorf("group %s: %s: %w", s.group, what, err)
}

// found makes the group's rows if this is its first run, unless first has something against it, and compares them with what is
// wanted if it is not.
func (s store) found(ctx context.Context, stream, identity, rule string, partitions int, after uint64, stored int64, first func() error) error {
	var refused error
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO duly_group (name, stream, identity, partitions, rule) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (name) DO NOTHING`, s.group, stream, identity, partitions, rule)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		if refused = first(); refused != nil {
			return refused
		}
		_, err = tx.Exec(ctx, `INSERT INTO duly_group_partition (name, partition, cursor, stored)
			SELECT $1::TEXT, p, $3::INT8, $4::INT8 FROM generate_series(0, $2::INT8 - 1) AS g(p)`, s.group, partitions, int64(after), stored)
		return err
	})
	switch {
	case refused != nil:
		return refused
	case err != nil:
		return s.wrap("begin", err)
	}
	var was struct {
		stream, identity, rule string
		partitions             int
	}
	err = s.pool.QueryRow(ctx, `SELECT stream, identity, rule, partitions FROM duly_group WHERE name = $1`, s.group).
		Scan(&was.stream, &was.identity, &was.rule, &was.partitions)
	switch {
	case err != nil:
		return s.wrap("begin", err)
	case was.stream != stream:
		return fmt.Errorf("group %s: stream %s, was %s: %w", s.group, stream, was.stream, ErrOtherGroup)
	case was.partitions != partitions:
		return fmt.Errorf("group %s: %d partitions, were %d: %w", s.group, partitions, was.partitions, ErrOtherGroup)
	case was.rule != rule:
		return fmt.Errorf("group %s: partitions by %s, were by %s: %w", s.group, rule, was.rule, ErrOtherGroup)
	case was.identity != identity:
		return fmt.Errorf("group %s: stream %s: it was made at %s, the cursors are of one made at %s: %w", s.group, stream, identity, was.identity, ErrOtherStream)
	}
	return nil
}

const columns = `partition, epoch, owner, cursor, stored, stopped`

func scan(r pgx.CollectableRow) (row, error) {
	var w row
	err := r.Scan(&w.partition, &w.epoch, &w.owner, &w.cursor, &w.stored, &w.stopped)
	return w, err
}

// rows are those of all partitions.
func (s store) rows(ctx context.Context) ([]row, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+columns+` FROM duly_group_partition WHERE name = $1 ORDER BY partition`, s.group)
	if err != nil {
		return nil, s.wrap("partitions", err)
	}
	all, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, s.wrap("partitions", err)
	}
	return all, nil
}

// row is that of one partition.
func (s store) row(ctx context.Context, partition int) (row, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+columns+` FROM duly_group_partition WHERE name = $1 AND partition = $2`, s.group, partition)
	if err != nil {
		return row{}, s.wrap("partition", err)
	}
	w, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) { // the group was forgotten
		return row{}, nil
	}
	if err != nil {
		return row{}, s.wrap("partition", err)
	}
	return w, nil
}

// adoptSQL takes what is still as it was seen. A row that a transaction has, which is about to commit, is left for the next
// time: it must not hold up the others.
const adoptSQL = `WITH free AS (
		SELECT p.partition FROM duly_group_partition p JOIN unnest($2::INT8[], $3::INT8[]) AS w(partition, epoch)
			ON p.partition = w.partition AND p.epoch = w.epoch
		WHERE p.name = $1 AND p.stopped = '' FOR UPDATE OF p SKIP LOCKED)
	UPDATE duly_group_partition AS p SET epoch = p.epoch + 1, owner = $4 FROM free
	WHERE p.name = $1 AND p.partition = free.partition
	RETURNING p.partition, p.epoch, p.owner, p.cursor, p.stored, p.stopped`

// adopt makes this member the owner of partitions, as far as they are free.
func (s store) adopt(ctx context.Context, wanted []row, member string) ([]row, error) {
	var partitions, epochs []int64
	for _, w := range wanted {
		partitions, epochs = append(partitions, int64(w.partition)), append(epochs, w.epoch)
	}
	rows, err := s.pool.Query(ctx, adoptSQL, s.group, partitions, epochs, member)
	if err != nil {
		return nil, s.wrap("take partitions over", err)
	}
	all, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, s.wrap("take partitions over", err)
	}
	return all, nil
}

// release says that a partition is free for its next owner.
func (s store) release(ctx context.Context, partition int, epoch int64) error {
	_, err := s.pool.Exec(ctx, `UPDATE duly_group_partition SET owner = '' WHERE name = $1 AND partition = $2 AND epoch = $3`, s.group, partition, epoch)
	if err != nil {
		return s.wrap("release", err)
	}
	return nil
}

// position is how far a partition is.
type position struct {
	seq    uint64
	stored int64 // when the stream got that message, ns since 1970; 0: not known
}

// moveSQL is the fence: the epoch must be the owner's, and the cursor where the owner left it.
const moveSQL = `UPDATE duly_group_partition SET cursor = $5, stored = $6, stopped = $7, owner = CASE WHEN $7 = '' THEN owner ELSE '' END
	WHERE name = $1 AND partition = $2 AND epoch = $3 AND cursor = $4`

// move moves the cursor within the transaction of a batch, as its last statement, and so locks the row for the commit alone.
// Error: errLost, if the row is not as this owner left it.
func (s store) move(ctx context.Context, tx pgx.Tx, partition int, epoch int64, from uint64, to outcome) error {
	tag, err := tx.Exec(ctx, moveSQL, s.group, partition, epoch, int64(from), int64(to.to.seq), to.to.stored, to.stopped)
	if err != nil {
		return s.wrap("move the cursor", err)
	}
	if tag.RowsAffected() == 0 {
		return errLost
	}
	return nil
}

// reasonMax bounds what is kept of an error, in bytes.
const reasonMax = 1000

// reason is an error as text that SQL takes.
func reason(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "?"), "\x00", "?")
	if len(text) > reasonMax {
		text = strings.ToValidUTF8(text[:reasonMax], "")
	}
	if text == "" {
		return "an error without words"
	}
	return text
}

// incident records what was not handled.
func (s store) incident(ctx context.Context, tx pgx.Tx, i Incident, epoch int64) error {
	_, err := tx.Exec(ctx, `INSERT INTO duly_group_incident (name, partition, epoch, kind, first, last, reason) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		s.group, i.Partition, epoch, i.Kind, int64(i.First), int64(i.Last), i.Reason)
	if err != nil {
		return s.wrap("record an incident", err)
	}
	return nil
}
