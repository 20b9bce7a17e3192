package node

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
)

// TestEventsOfAllParts: an alert that any component logs is published as one: for a message that cannot be decoded, for a
// plan of a newer binary.
func TestEventsOfAllParts(t *testing.T) {
	t.Parallel()
	s := stands(t, "sqlite:"+filepath.Join(t.TempDir(), "duly.db"))
	told := func(event string) {
		t.Helper()
		until(t, "told of "+event, func() bool { return strings.Contains(s.log.text(), " alert=once name="+event+" ") })
	}
	if err := s.conn.NATS().Publish(s.conn.Names().PackSubject(0), []byte("no pack")); err != nil {
		t.Fatal(err)
	}
	told("dead-letter")
	db, err := sql.Open("sqlite", strings.TrimPrefix(s.cfg.DatabaseURL, "sqlite:")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	const spec = `{"v":1,"name":"future","version":7,"complete_by_ms":60000,"grace_ms":2000,"input_max":1024,"steps":[{"name":"again","kind":"loop","undoable":false}]}`
	if _, err := db.ExecContext(t.Context(), `INSERT INTO plans (name, version, spec) VALUES ('future', 7, $1)`, []byte(spec)); err != nil {
		t.Fatal(err)
	}
	s.plans.Reload(func(error) {})
	told("plan-unreadable")
	s.stop()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
