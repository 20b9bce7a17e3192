package localpg

import (
	"strings"
	"testing"
	"time"
)

// TestCopy: a copy has what was there when it was taken and nothing later; a standby
// follows until it is cut off, takes no writes before it is promoted, and does after.
func TestCopy(t *testing.T) {
	c, err := Start(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	ask(t, c, c.URL("postgres"), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
	backup, err := c.Copy(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer backup.Stop()
	standby, err := c.Copy(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer standby.Stop()
	if backup.Running() || standby.Running() {
		t.Fatal("a copy runs before its start")
	}
	if err := standby.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, standby, standby.URL("postgres"), "SELECT pg_is_in_recovery()"); got != "t" {
		t.Fatalf("a standby in recovery: %q", got)
	}
	ask(t, c, c.URL("postgres"), "INSERT INTO kept VALUES (2)")
	sum := func(of *Cluster) string { return ask(t, of, of.URL("postgres"), "SELECT sum(n) FROM kept") }
	for late := time.Now().Add(startLimit); sum(standby) != "3"; {
		if time.Now().After(late) {
			t.Fatal("the standby does not follow")
		}
	}
	if err := standby.Configure(t.Context(), "primary_conninfo", ""); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(startLimit); ask(t, c, c.URL("postgres"), "SELECT count(*) FROM pg_stat_replication") != "0"; {
		if time.Now().After(late) {
			t.Fatal("the standby is not cut off")
		}
	}
	ask(t, c, c.URL("postgres"), "INSERT INTO kept VALUES (4)")
	if err := c.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask(t, standby, standby.URL("postgres"), "INSERT INTO kept VALUES (8)")
	if got := sum(standby); got != "11" {
		t.Errorf("the promoted standby has %s, want 1 + 2 + 8", got)
	}
	if err := backup.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := sum(backup); got != "1" {
		t.Errorf("the backup has %s, want what was there when it was taken", got)
	}
	if err := backup.Promote(t.Context()); err == nil || !strings.Contains(err.Error(), "not in standby mode") {
		t.Errorf("promote a primary: %v", err)
	}
	name, err := standby.NewDatabase(t.Context())
	if err != nil || !strings.Contains(name, "/d1?") {
		t.Errorf("a new database: %q %v", name, err)
	}
}
