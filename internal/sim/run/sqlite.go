package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"duly.dev/duly/internal/sim"
	"duly.dev/duly/schema/sqlite"
)

// sqliteStores makes SQLite databases in a folder of their own: each is a copy of one whose tables are there.
type sqliteStores struct {
	dir   string
	empty []byte
	made  atomic.Int64
}

// partitionsMost is how many partitions a world has at most.
const partitionsMost = 3

func newSQLiteStores() (*sqliteStores, error) {
	dir, err := os.MkdirTemp("", "sim-")
	if err != nil {
		return nil, fmt.Errorf("folder for databases: %w", err)
	}
	s, ctx := &sqliteStores{dir: dir}, context.Background()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "empty.db"))
	if err != nil {
		return s, err
	}
	if err = store.Migrate(ctx); err == nil {
		err = store.Partitions(ctx, partitionsMost)
	}
	if closing := store.Close(); err == nil {
		err = closing
	}
	if err == nil {
		s.empty, err = os.ReadFile(filepath.Join(dir, "empty.db"))
	}
	return s, err
}

// database is one of them; it is removed when it is closed.
type database struct {
	*sqlite.Store
	path string
}

// Close implements sim.Second.
func (d database) Close() error {
	err := d.Store.Close()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(d.path + suffix) // the folder goes at the end
	}
	return err
}

// open makes another one. A machine that cannot is no simulation's business.
func (s *sqliteStores) open() sim.Second {
	path := filepath.Join(s.dir, fmt.Sprintf("%d.db", s.made.Add(1)))
	if err := os.WriteFile(path, s.empty, 0o600); err != nil {
		panic(err)
	}
	store, err := sqlite.Open(context.Background(), path)
	if err != nil {
		panic(err)
	}
	return database{store, path}
}

func (s *sqliteStores) remove() { _ = os.RemoveAll(s.dir) }
