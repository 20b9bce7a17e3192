package sqlite_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// A damaged file blames no row, and is not written to again and again: its owner is told.
func TestDamagedFile(t *testing.T) {
	s, p, path := owned(t)
	b := &core.Batch{ID: 1, Node: "test", Partitions: []core.PartitionWrite{p}}
	for i := range int64(500) {
		b.Writes = append(b.Writes, parked(i+1, make([]byte, 500)))
	}
	if _, err := s.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const first = 80 * 4096 // what is before says which tables there are
	if _, err := file.WriteAt(make([]byte, info.Size()-first), first); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	damaged := open(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	p.After, p.NextNumber = 1, 1000
	next := &core.Batch{ID: 2, Node: "test", Partitions: []core.PartitionWrite{p}}
	for i := range int64(100) {
		next.Writes = append(next.Writes, parked(i+501, nil))
	}
	_, err = damaged.Commit(ctx, next)
	if err == nil || errors.Is(err, core.ErrRowRefused) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("commit to a damaged file: %v", err)
	}
}

// A commit waits while another process writes.
func TestBusy(t *testing.T) {
	s, p, path := owned(t)
	conn, err := beside(t, path).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Commit(t.Context(), &core.Batch{ID: 1, Node: "test", Partitions: []core.PartitionWrite{p}, Writes: []core.TaskWrite{parked(1, nil)}})
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("committed beside another writer: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if _, err := conn.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
