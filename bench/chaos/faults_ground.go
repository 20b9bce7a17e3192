package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"duly.dev/duly/internal/localpg"
)

// Faults of the ground below the database: it goes back, takes no writes, is away for
// longer than a failover.

// promoteStandby kills the primary and promotes an asynchronous standby that is behind by
// the hold. The nodes stay, and find the new one where the old one was.
func promoteStandby(ctx context.Context, w *world, in *injection) error {
	in.on = "standby"
	standby, err := w.copy(ctx, true)
	if err != nil {
		return err
	}
	if err := standby.Restart(); err != nil {
		return err
	}
	if err := w.await(ctx, "the standby does not follow", func(ctx context.Context) (bool, error) {
		near := false
		return near, w.ask(ctx, `SELECT count(*) > 0 FROM pg_stat_replication WHERE state = 'streaming' AND pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) < 1048576`, &near)
	}); err != nil {
		return err
	}
	if err := errors.Join(standby.Configure(ctx, "primary_conninfo", ""), pause(ctx, in.hold)); err != nil {
		return err
	}
	in.begins()
	if err := errors.Join(w.pg.Crash(), standby.Promote(ctx)); err != nil {
		return err
	}
	return w.switchTo(standby)
}

// restoreBackup puts a backup that is as old as the hold in the place of the database. Every
// third time the schedulers are dead meanwhile, so that no owner sees it.
func restoreBackup(ctx context.Context, w *world, in *injection) error {
	backup, err := w.copy(ctx, false)
	if err != nil {
		return err
	}
	if err := pause(ctx, in.hold); err != nil {
		return err
	}
	in.begins()
	restore := func() error { return errors.Join(w.pg.Crash(), backup.Restart(), w.switchTo(backup)) }
	if in.pick%3 != 0 {
		in.on = "nodes stay"
		return restore()
	}
	in.on = "schedulers dead"
	for _, p := range w.schedulers() {
		if err := p.end(syscall.SIGKILL); err != nil {
			return err
		}
	}
	err = restore()
	for _, p := range w.schedulers() {
		err = errors.Join(err, p.start())
	}
	return err
}

// copy is a copy of the database's server as it is now.
func (w *world) copy(ctx context.Context, standby bool) (*localpg.Cluster, error) {
	c, err := w.pg.Copy(ctx, standby)
	if err == nil {
		w.pgs = append(w.pgs, c)
	}
	return c, err
}

// switchTo directs all clients to another server of the database, and removes the one before.
func (w *world) switchTo(c *localpg.Cluster) error {
	before, err := addrOf(w.database)
	if err != nil {
		return err
	}
	now, err := addrOf(c.URL("postgres"))
	if err != nil {
		return err
	}
	old := w.pg
	w.pg, w.database, w.goneBack = c, strings.Replace(w.database, before, now, 1), true
	for _, k := range w.dbLinks {
		k.retarget(now)
	}
	w.dbLink.retarget(now)
	return old.Stop()
}

// ask asks the database something that has one answer, by one statement.
func (w *world) ask(ctx context.Context, query string, answer ...any) error {
	db, err := w.sql()
	if err != nil {
		return err
	}
	if err := errors.Join(db.QueryRowContext(ctx, query).Scan(answer...), db.Close()); err != nil {
		return fmt.Errorf("ask the database: %w", err)
	}
	return nil
}

func (w *world) sql() (*sql.DB, error) {
	driver, at := "pgx", w.database
	if file, ok := strings.CutPrefix(at, "sqlite:"); ok {
		driver, at = "sqlite", file
	}
	db, err := sql.Open(driver, at)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return db, nil
}

// readOnlyPostgres takes writing away from all connections, which stand: as an old primary
// that was demoted.
func readOnlyPostgres(ctx context.Context, w *world, in *injection) error {
	in.on = "postgres"
	const setting = "default_transaction_read_only"
	return errors.Join(w.pg.Configure(ctx, setting, "on"), pause(ctx, in.hold), w.pg.Configure(ctx, setting, "off"))
}

// restoreDev is restoreBackup of the file that `duly dev` has.
func restoreDev(ctx context.Context, w *world, in *injection) error {
	p, file := w.role("dev"), strings.TrimPrefix(w.database, "sqlite:")
	in.on = p.name
	backup := filepath.Join(w.devDisk.dir, "backup.db")
	if err := vacuumInto(ctx, file, backup); err != nil {
		return err
	}
	if err := pause(ctx, in.hold); err != nil {
		return err
	}
	in.begins()
	if err := errors.Join(p.end(syscall.SIGKILL), w.closeStore()); err != nil {
		return err
	}
	for _, rest := range []string{"-wal", "-shm"} {
		if err := os.Remove(file + rest); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("restore: %w", err)
		}
	}
	if err := os.Rename(backup, file); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	w.goneBack = true
	return errors.Join(w.openStore(ctx), p.start())
}

// vacuumInto makes a backup of a SQLite file that is in use.
func vacuumInto(ctx context.Context, file, backup string) error {
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", backup)
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// undoneMost is the share of good tasks, in hundredths, that may be undone for all the
// services' own reasons.
const undoneMost = 15

// undoneSince holds the share of what was submitted since a moment against that.
func (w *world) undoneSince(ctx context.Context, since time.Time) (string, error) {
	var all, undone int
	query := fmt.Sprintf(`SELECT count(*), count(*) FILTER (WHERE state IN ('undoing', 'undone', 'error')) FROM tasks WHERE created_at > '%s'`, since.UTC().Format(time.RFC3339Nano))
	if err := w.ask(ctx, query, &all, &undone); err != nil {
		return "", err
	}
	if undone*100 > all*undoneMost {
		return fmt.Sprintf("%d of %d good tasks undone", undone, all), nil
	}
	return "", nil
}
