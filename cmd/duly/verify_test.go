package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// provenDatabase is a database with a chain in one of two partitions, and a file of its heads.
func provenDatabase(t *testing.T) (url, heads string) {
	t.Helper()
	dir := t.TempDir()
	url, heads = "sqlite:"+filepath.Join(dir, "duly.db"), filepath.Join(dir, "heads")
	s, err := dialects.Open(t.Context(), url, schema.Options{Chain: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(s.Migrate(t.Context()))
	do(s.Partitions(t.Context(), 2))
	const at = core.Instant(1_893_456_000_000_000)
	st, err := s.TakeOver(t.Context(), 1, core.Claim{Owner: "n", Commit: 1, At: at})
	do(err)
	for n := int64(1); n <= 3; n++ {
		task := &core.Task{Partition: 1, Number: n, ID: fmt.Sprint("order-", n), Type: "order", Input: []byte(`{}`), State: core.StatePending, Seq: 1, CreatedAt: at, UpdatedAt: at, Bound: at, Deadline: at}
		rec := core.Record{Seq: 1, Kind: core.KindSubmitted, At: at, Actor: "n", State: task.State, Step: -1, Next: -1}
		_, err := s.Commit(t.Context(), &core.Batch{ID: n + 1, Node: "n", Partitions: []core.PartitionWrite{{Partition: 1, Epoch: st.Epoch, After: n, NextNumber: n + 1, NextEnd: 1}},
			Writes: []core.TaskWrite{{Task: task, Birth: true, Records: []core.Record{rec}}}})
		do(err)
	}
	id, err := s.Installation(t.Context(), "")
	do(err)
	all := s.ChainHeads()
	for i := range all {
		all[i].Installation, all[i].At = id, at
	}
	f, err := os.Create(heads)
	do(err)
	do(chain.WriteHeads(f, all))
	do(f.Close())
	return url, heads
}

// TestVerifyCommand: the database and an export of it are checked alike, and what does not fit ends with exit status 1
// and names the row.
func TestVerifyCommand(t *testing.T) {
	url, heads := provenDatabase(t)
	export := filepath.Join(t.TempDir(), "journal.ndjson")
	duly := func(code int, says string, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if got := run(t.Context(), append([]string{"verify"}, args...), streams{strings.NewReader(""), &out, &errs}); got != code || !strings.Contains(out.String()+errs.String(), says) {
			t.Errorf("duly verify %s: exit status %d, want %d and %q\n%s%s", strings.Join(args, " "), got, code, says, &out, &errs)
		}
		return out.String()
	}
	db := "--database-url=" + url
	duly(exitDone, "fits: 6 rows of 1 partition", db, "--heads", heads)
	duly(exitDone, "1 head, not signed: 1", db, "--heads", heads)
	duly(exitDone, "no head", db, "--heads", "none")
	duly(exitDone, "wrote", db, "--export", export)
	duly(exitFailed, "file exists", db, "--export", export)
	duly(exitDone, "links 1 to 4", "--journal", export, "--heads", heads)
	duly(exitUse, "heads: none given", "--journal", export)
	duly(exitUse, "from and to", db, "--from", "3", "--to", "2")
	duly(exitUse, "partition: 7", db, "--heads", "none", "--partition", "7")
	duly(exitUse, "export: goes with", db, "--export", export, "--journal", export)
	duly(exitFailed, "no partition has a chain", db, "--heads", "none", "--partition", "0")
	one := filepath.Join(t.TempDir(), "one.ndjson")
	duly(exitDone, "wrote", db, "--export", one, "--partition", "1")
	duly(exitDone, "fits: 6 rows of 1 partition, the export leaves 1 partition out, ", "--journal", one, "--heads", heads)
	duly(exitUse, "partition: 0, which is not in", "--journal", one, "--heads", heads, "--partition", "0")
	other := filepath.Join(t.TempDir(), "other.ndjson")
	duly(exitDone, "wrote", db, "--export", other, "--partition", "0")
	duly(exitFailed, "nothing to check: no partition has a chain", "--journal", other, "--heads", heads)
	data, err := os.ReadFile(export)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(export, bytes.Replace(data, []byte(`"kind":"submitted","state":"pending"`), []byte(`"kind":"submitted","state":"undone"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	duly(exitFailed, `does not fit: 1 finding; the first is in partition 1: row 1 of task "order-1" is not as commit 2 wrote it`, "--journal", export, "--heads", heads)
	var report chain.Report
	if err := json.Unmarshal([]byte(duly(exitFailed, `"changed"`, "--journal", export, "--heads", heads, "-o", "json")), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Findings) != 1 || report.Findings[0].Partition != 1 || report.Findings[0].Commit != 2 || report.Findings[0].Task != "order-1" || report.Findings[0].Seq != 1 {
		t.Errorf("report: %+v", report)
	}
}
