package main

import (
	"io"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTable(t *testing.T) {
	var out strings.Builder
	if status := run(strings.Fields("-nodes 4 -partitions 32 -kill 1 -scenario die"), &out, io.Discard); status != 0 {
		t.Fatalf("status %d\n%s", status, &out)
	}
	for _, want := range []string{`^die: 4 nodes, 32 partitions`, `(?m)^ +SQL statements +[1-9]\d* +[1-9]\d* +\d+$`, `(?m)^ +NATS requests +[1-9]`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no line like %s:\n%s", want, &out)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range []string{"-nodes 1", "-kill 20", "-kill 0", "-partitions 0", "-scenario war", "more", "-what", "-sql-workers 0"} {
		var errs strings.Builder
		if status := run(strings.Fields(args), io.Discard, &errs); status != 2 || errs.Len() == 0 {
			t.Errorf("%s: status %d, said %q", args, status, &errs)
		}
	}
}
