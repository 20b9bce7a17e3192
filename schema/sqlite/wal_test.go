package sqlite_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema/sqlite"
)

// births commits batches of parked tasks with inputs of 4 KB; number is the last
// task that is stored.
type births struct {
	s      *sqlite.Store
	p      core.PartitionWrite
	id     int64
	number int64
}

func (b *births) commit(ctx context.Context, tasks int) error {
	b.id++
	batch := core.Batch{ID: b.id, Node: "test"}
	for i := range tasks {
		batch.Writes = append(batch.Writes, parked(b.number+int64(i)+1, make([]byte, 4000)))
	}
	b.p.NextNumber = b.number + int64(tasks) + 1
	batch.Partitions = []core.PartitionWrite{b.p}
	_, err := b.s.Commit(ctx, &batch)
	if err == nil {
		b.number += int64(tasks)
		b.p.After = b.id
	}
	return err
}

func walStore(t *testing.T) (*births, string) {
	t.Helper()
	s, p, path := owned(t)
	return &births{s: s, p: p}, path
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// write commits so many MB and returns how big the WAL became.
func (b *births) write(t *testing.T, mb int, path string) (most int64, slowest time.Duration) {
	t.Helper()
	for range mb {
		begin := time.Now()
		if err := b.commit(t.Context(), 250); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(begin))
		most = max(most, fileSize(t, path+"-wal"))
	}
	return most, slowest
}

// walMost is more than the WAL may be while no reader takes long: what makes a commit copy
// it, and what the commits of write add.
const walMost = 32 << 20

// Under commits without a pause the WAL begins again and again at its first page.
func TestWalStaysBounded(t *testing.T) {
	b, path := walStore(t)
	most, slowest := b.write(t, 100, path)
	t.Logf("WAL at most %d MB, database %d MB, slowest commit %v", most>>20, fileSize(t, path)>>20, slowest)
	if most > walMost {
		t.Errorf("the WAL grew to %d MB of more than 100 written", most>>20)
	}
}

// So it does beside readers that ask all the time, each shortly.
func TestWalStaysBoundedBesideReaders(t *testing.T) {
	b, path := walStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	const readers = 2
	counts := make(chan int, readers)
	for range readers {
		go func() {
			n := 0
			for ctx.Err() == nil {
				if _, err := b.s.List(ctx, core.Filter{Limit: 50}); err == nil {
					n++
				} else if ctx.Err() == nil {
					t.Error(err)
				}
			}
			counts <- n
		}()
	}
	most, slowest := b.write(t, 100, path)
	cancel()
	lists := 0
	for range readers {
		lists += <-counts
	}
	t.Logf("WAL at most %d MB beside %d lists, slowest commit %v", most>>20, lists, slowest)
	if most > 2*walMost || lists == 0 {
		t.Errorf("the WAL grew to %d MB of more than 100 written, beside %d lists", most>>20, lists)
	}
}

// What a reader still reads cannot be copied, but neither it nor commits wait, and
// when it ends the WAL is copied. Meanwhile the store says that it is held.
//
// covers: L14
func TestLongReader(t *testing.T) {
	b, path := walStore(t)
	if err := b.commit(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	tx, err := beside(t, path).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		t.Helper()
		if err := tx.QueryRowContext(t.Context(), `SELECT count(*) FROM tasks`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != 1 {
		t.Fatal(n)
	}
	held := func() error {
		t.Helper()
		h, err := b.s.Held(t.Context())
		if err != nil || h.WAL != fileSize(t, path+"-wal") {
			t.Errorf("%+v, %v", h, err)
		}
		return h.Trouble()
	}
	if err := held(); err != nil {
		t.Errorf("at first: %v", err)
	}
	most, slowest := b.write(t, 150, path)
	t.Logf("WAL at most %d MB beside a reader, slowest commit %v", most>>20, slowest)
	// A commit behind a copy that waits for the reader takes what SQLite waits for at
	// most, ten seconds; one that waits for no reader takes what the disk does.
	if most < 150<<20 || slowest > 8*time.Second {
		t.Errorf("the WAL has %d MB, the slowest commit took %v", most>>20, slowest)
	}
	if held() == nil {
		t.Error("nothing is said of the reader")
	}
	if n := count(); n != 1 {
		t.Errorf("the reader sees %d tasks, want the 1 of its beginning", n)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for fileSize(t, path+"-wal") > 64<<20 { // the first commit after it is copied begins it again, and cuts it
		if err := b.commit(ctx, 1); err != nil {
			t.Fatalf("the WAL still has %d MB: %v", fileSize(t, path+"-wal")>>20, err)
		}
	}
	if err := held(); err != nil {
		t.Errorf("in the end: %v", err)
	}
}

// What was committed when the process was killed is there: the files as they are
// at a moment are what a kill leaves.
func TestKilled(t *testing.T) {
	b, path := walStore(t)
	for round := range 3 {
		b.write(t, 20+15*round, path)
		to := filepath.Join(t.TempDir(), "duly.db")
		// No commit is under way, but the WAL may be: its file first, because what
		// is copied out of it meanwhile is only twice there then.
		copyFile(t, path+"-wal", to+"-wal")
		copyFile(t, path, to)
		holds(t, to, b.number)
	}
}

// Close leaves no WAL; what is stored is all in the tables.
func TestCloseLeavesNothing(t *testing.T) {
	b, path := walStore(t)
	b.write(t, 40, path)
	if err := b.s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); err == nil {
		t.Error("the WAL is still there")
	} else if !os.IsNotExist(err) {
		t.Fatal(err)
	}
	holds(t, path, b.number)
}

// holds checks that a database has tasks from 1 to n, and is sound.
func holds(t *testing.T, path string, n int64) {
	t.Helper()
	s := open(t, path)
	var have, last int64
	var sound string
	err := beside(t, path).QueryRowContext(t.Context(), `SELECT count(*), max(number), (SELECT integrity_check FROM pragma_integrity_check) FROM tasks`).Scan(&have, &last, &sound)
	if err != nil || have != n || last != n || sound != "ok" {
		t.Errorf("%d tasks up to %d, %q, %v; want %d", have, last, sound, err, n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func copyFile(tb testing.TB, from, to string) {
	tb.Helper()
	in, err := os.Open(from)
	if err != nil {
		tb.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		tb.Fatal(err)
	}
	if err := out.Close(); err != nil {
		tb.Fatal(err)
	}
}
