package main

import (
	"context"
	"strings"
	"testing"
)

// installation is the id of a database, as a refusal to renew it names it.
func installation(t *testing.T, url string) string {
	t.Helper()
	code, _, errs := command(t, "", "new-installation", "--database-url", url, "--was", "nothing")
	_, rest, ok := strings.Cut(errs, "this database is of ")
	if code != 1 || !ok {
		t.Fatalf("exit %d: %s", code, errs)
	}
	id, _, _ := strings.Cut(rest, ",")
	return id
}

// refused runs a node that must not start, and returns why it does not.
func (g *ground) refused(t *testing.T, url string, more ...string) string {
	t.Helper()
	code, _, errs := command(t, "", append([]string{"serve", "--node-name", "other", "--nats-url", g.nats.ClientURL(), "--database-url", url,
		"--http-addr", "", "--partitions", "8"}, more...)...)
	if code != 1 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	return errs
}

// TestCopyOfADatabase: a copy of a database in use becomes another installation. On the same NATS it
// is refused, with both ids, until it has a namespace of its own; what was refused binds it to
// none.
//
// covers: A8
func TestCopyOfADatabase(t *testing.T) {
	t.Parallel()
	g := newOwnGround(t)
	production := g.serve(t, "production")
	at := production.ready()
	pg, err := g.pg.Copy(context.WithoutCancel(t.Context()), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	own, copied := installation(t, g.db), strings.Replace(pg.URL("x"), "/x?", g.db[strings.LastIndex(g.db, "/"):strings.LastIndex(g.db, "?")+1], 1)
	if got := installation(t, copied); got != own {
		t.Fatalf("the copy is of %s, production of %s", got, own)
	}
	// Both have the same id, so a URL of production in the place of the copy's must show otherwise.
	if code, out, errs := command(t, "", "new-installation", "--database-url", g.db, "--was", own); code != 1 || !strings.Contains(errs, "in use, by node production") {
		t.Fatalf("of production, exit %d: %s%s", code, out, errs)
	}
	code, out, errs := command(t, "", "new-installation", "--database-url", copied, "--was", own)
	if code != 0 || !strings.Contains(out, "of no namespace yet") {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	other := installation(t, copied)
	if other == own || !strings.Contains(out, other) || installation(t, g.db) != own {
		t.Fatalf("%s, after %s became %s", out, own, other)
	}
	if why := g.refused(t, copied); !strings.Contains(why, own) || !strings.Contains(why, other) || !strings.Contains(why, "--namespace") {
		t.Errorf("on production's streams: %s", why)
	}
	staging := g.serve(t, "staging", "--database-url", copied, "--namespace", "staging")
	staging.ready()
	if why := g.refused(t, copied, "--namespace", "third"); !strings.Contains(why, `uses namespace "staging"`) {
		t.Errorf("in a third namespace: %s", why)
	}
	if code, all := readiness(t, at); code != 200 {
		t.Errorf("production is not ready: %+v", all)
	}
	if production.alerts("installation", "begin") != 0 {
		t.Error("production says that its streams are another installation's")
	}
}
