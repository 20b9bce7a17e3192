package main

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// What was processed in time is counted by when it ended, in quiet times alone; what was undone for want of time by its journal.
func TestOverCounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "books.db")
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	zero := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }
	exec := func(query string, values ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), query, values...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE TABLE tasks (partition INTEGER, number INTEGER, type TEXT, state TEXT, created_at INTEGER, ended_at INTEGER, deadline INTEGER)`)
	exec(`CREATE TABLE journal (partition INTEGER, number INTEGER, kind TEXT, reason BLOB)`)
	for n, row := range []struct {
		typ       string
		state     core.State
		ended, by float64
		kind      core.Kind
		reason    string
		created   float64
	}{
		{typ: drone.Type, state: core.StateProcessed, ended: 1, by: 15},
		{typ: drone.Type, state: core.StateProcessed, ended: 2.9, by: 2.9},
		{typ: drone.Type, state: core.StateProcessed, ended: 1, by: 0.9},   // late
		{typ: drone.Type, state: core.StateProcessed, ended: 3, by: 15},    // a fault was at work
		{typ: drone.Type, state: core.StateProcessed, ended: 10.5, by: 15}, // the second time
		{typ: mendType, state: core.StateProcessed, ended: 1, by: 15},
		{typ: drone.Type, state: core.StateUndone, ended: 1, by: 15, kind: core.KindExpired},
		{typ: drone.Type, state: core.StateUndone, ended: 1, by: 15, kind: core.KindSubmitted, reason: noTimeReasons[1]},
		{typ: drone.Type, state: core.StateUndone, ended: 1, by: 15, kind: core.KindCancelled, reason: "chaos"},
		{typ: drone.Type, state: core.StateUndone, ended: 1, by: 15, kind: core.KindExpired, created: -1}, // before C was known
		{typ: drone.Type, state: core.StateUndone, ended: 1, by: 15, kind: core.KindExpired, created: 1},  // C is measured again
	} {
		exec(`INSERT INTO tasks VALUES (3, ?, ?, ?, ?, ?, ?)`, n, row.typ, string(row.state), at(row.created).UnixMicro(), at(row.ended).UnixMicro(), at(row.by).UnixMicro())
		exec(`INSERT INTO journal VALUES (3, ?, ?, ?)`, n, string(row.kind), []byte(row.reason))
	}
	w := &world{database: "sqlite:" + file, stage: &stage{topology: devOnly}, over: newOver(1.5)}
	w.over.wasQuiet(at(0), at(3))
	w.over.wasQuiet(at(10), at(11))
	if rate, seconds, err := w.inTime(t.Context(), w.over.quiet); err != nil || rate != 0.75 || seconds != 4 {
		t.Errorf("%v a second of %v s, %v; want 3 in 4 s", rate, seconds, err)
	}
	if rate, seconds, err := w.inTime(t.Context(), nil); err != nil || rate != 0 || seconds != 0 {
		t.Errorf("of no time: %v a second of %v s, %v", rate, seconds, err)
	}
	if is, err := w.noTime(t.Context(), span{at(0), at(1)}); err != nil || is != 0.25 {
		t.Errorf("undone for want of time: %v, %v; want 2 of 8", is, err)
	}
	for _, reason := range noTimeReasons {
		if !(&core.Record{Reason: reason}).MissesDeadline() {
			t.Errorf("%q is no such reason", reason)
		}
	}
}

// Alerts of an overload are expected where more is offered than can be done, and no others; the backlog may be a queue that stands.
func TestOverExpects(t *testing.T) {
	lines := []line{
		{attrs: map[string]string{"alert": "begin", "name": "overload"}}, {attrs: map[string]string{"alert": "begin", "name": "streams"}}, {attrs: map[string]string{"name": "overload"}},
	}
	w := &world{rate: 1500}
	if n := len(w.over.unexpected(lines)); n != 3 || w.backlogMost() != 1500 || w.over.within() != 0 {
		t.Errorf("of a given rate: %d lines, a backlog of %d", n, w.backlogMost())
	}
	w.over = &over{c: 1000}
	if rest := w.over.unexpected(lines); len(rest) != 2 || rest[0].attrs["name"] != "streams" || w.backlogMost() != 3500+4096 {
		t.Errorf("lines %v, a backlog of %d", rest, w.backlogMost())
	}
}

// A client whose first answer is to come later goes away; one that has no answer comes again until it is accepted, by the same id.
func TestOverGoesAway(t *testing.T) {
	server, err := natsserver.Start(natsserver.Options{Dir: t.TempDir(), Port: natsserver.FreePort})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	l, err := newLoad(server.ClientURL(), 1, overWithin)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	full := wire.AppendRefused(nil, &wire.RefusedError{APIError: wire.APIError{Code: core.CodeTooMany, ErrCode: 7021, Description: "full"}, Retry: time.Millisecond})
	stopping := wire.AppendRefused(nil, &wire.RefusedError{APIError: wire.APIError{Code: core.CodeUnavailable, ErrCode: 7033, Description: "stopping"}})
	taken := wire.AppendAccepted(nil, &wire.SubmitAnswer{Stream: "DULY_TASKS", Seq: 1})
	answers := [][]byte{full, taken, stopping, full, taken}
	var asked []string
	_, err = l.doors[0].Subscribe(wire.Names{}.SubmitSubject(drone.Type, "*"), func(m *nats.Msg) {
		within, err := time.ParseDuration(m.Header.Get(wire.HeaderCompleteBy))
		if err != nil || within <= 0 || within > overWithin {
			t.Errorf("deadline %q: %v", m.Header.Get(wire.HeaderCompleteBy), err)
		}
		asked = append(asked, m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
		if err := m.Respond(answers[len(asked)-1]); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.doors[0].Flush(); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for n, want := range []bool{false, true, true} {
		id, err := l.submit(t.Context())
		if (err == nil) != want {
			t.Errorf("delivery %d: %v", n, err)
		}
		ids = append(ids, id)
	}
	if got, want := fmt.Sprint(asked), fmt.Sprint([]string{ids[0], ids[1], ids[2], ids[2], ids[2]}); got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	if n := l.acceptedCount(); n != 2 || l.turnedAway.Load() != 1 || l.refused.Load() != 0 {
		t.Errorf("%d accepted, %d went away, %d refused", n, l.turnedAway.Load(), l.refused.Load())
	}
}
