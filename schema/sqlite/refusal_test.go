package sqlite_test

import (
	"errors"
	"path/filepath"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema/storetest"
)

// covers: B2
func TestSQLiteThatRefusesAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "duly.db")
	s, db := open(t, path), beside(t, path)
	if err := s.Partitions(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	storetest.RefusesAll(t, s, db, 1, `CREATE TRIGGER refuse BEFORE INSERT ON tasks BEGIN SELECT RAISE(ABORT, 'no'); END`, `DROP TRIGGER refuse`)
	w := parked(2, nil)
	w.Task.Partition, w.Task.ID = 1, "poison"
	if _, err := db.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON tasks WHEN NEW.id = 'poison' BEGIN SELECT RAISE(ABORT, 'no'); END`); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.CommitOne(t.Context(), s, 2, w); !errors.Is(err, core.ErrRowRefused) {
		t.Errorf("%v, want the row refused", err)
	}
}
