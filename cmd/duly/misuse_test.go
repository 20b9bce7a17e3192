package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestWrongUseByHand: uses that are wrong by what flags and arguments mean together.
//
// covers: OP23
func TestWrongUseByHand(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	none := filepath.Join(t.TempDir(), "none")
	for args, says := range map[string]string{
		"serve": "database-url: none given", "serve --database-url sqlite:x": "SQLite serves one process", "serve --database-url mysql://x": `scheme "mysql"`,
		"migrate --database-url x": "no scheme", "migrate --database-url sqlite:": "without a path", "migrate --database-url postgres://%": "database-url",
		"new-installation --database-url x --was y": "no scheme", "task-streams 17 --database-url postgres://x/y": "want 1 to 16", "token create x --role admin --database-url mysql://x": `scheme "mysql"`,
		"dev --port 65536": "port: 65536", "dev --namespace a.b": "namespace", "dev --store mysql://x": `scheme "mysql"`, "demo --tasks 0": "tasks: 0", "demo --rate=-1": "rate: -1",
		"nats-permissions king": `unknown kind of user "king"`, "nats-permissions node:x": "has no names", "nats-permissions ingest --task-streams 0": "task-streams: 0", "nats-permissions ingest --answer-within 1ms": "answer-within",
		"books --direct --since 0s": "since: 0s", "books --now --wait 0s": "wait: 0s", "submit order o-1 {} --priority urgent": "priority", "list --timeout 0s": "timeout: 0s",
		"doctor --only nats-snyc": `"nats-snyc" is no check`, "doctor --ignore nats-snyc": `"nats-snyc" is no check`, "doctor --roles agents": "agents: not given",
		"verify --journal " + none + " --heads none": "no such file", "verify --journal x --heads " + none: "no such file",
		"serve --roles agents --agents " + none: "no such file",
	} {
		if code, out, errs := command(t, "", strings.Fields(args)...); code != exitUse || !strings.Contains(errs, says) {
			t.Errorf("duly %s: exit status %d, want %d and %q\n%s%s", args, code, exitUse, says, out, errs)
		}
	}
}
