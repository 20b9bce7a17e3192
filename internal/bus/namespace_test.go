package bus

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
)

// named are the names of a namespace that must be good.
func named(t testing.TB, namespace string) Names {
	t.Helper()
	n, err := NewNames(namespace)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// every lists all names that Names makes, by method: those without arguments are
// called, the others are given here.
func every(t *testing.T, n Names) map[string]string {
	t.Helper()
	all := map[string]string{
		"SubmitSubject": n.SubmitSubject("order", "o-1"), "InSubject": n.InSubject("order", "o-1"),
		"PackSubject": n.PackSubject(7), "TasksPattern": n.TasksPattern(7), "CommandSubject": n.CommandSubject("a.b", false),
		"undo": n.CommandSubject("a.b", true), "BatchSubject": n.BatchSubject("a.b", false), "batch undo": n.BatchSubject("a.b", true),
		"batchReplyPrefix": n.batchReplyPrefix("x"), "ReplySubject": n.ReplySubject(15, 123456789, 42), "ReplyPattern": n.ReplyPattern(15),
		"ControlSubject": n.ControlSubject(3), "EventSubject": n.EventSubject("order", "processed"), "LiveSubject": n.LiveSubject("order", "o-1"),
		"DeadSubject": n.DeadSubject(n.StreamTasks()), "AskSubject": n.AskSubject("cancel"), "AskTypeSubject": n.AskTypeSubject("cancel", "order"), "ServiceName": n.ServiceName("a.b"),
		"marked": (&marker{1, 2}).replySubject(n, command(3, 17, 5, 9)), "transform": n.tasksTransform(16),
		"PatternSubmit": n.PatternSubmit(), "patternIn": n.patternIn(), "PatternPack": n.PatternPack(), "PatternControl": n.PatternControl(),
		"PatternEvents": n.PatternEvents(), "PatternErrors": n.PatternErrors(), "patternDead": n.patternDead(), "PatternAsk": n.PatternAsk(),
		"PatternBatchReplies": n.PatternBatchReplies("a.b"), "batch replies of all": n.PatternBatchReplies(""),
	}
	v := reflect.ValueOf(n)
	for method, f := range v.Methods() {
		takes := f.Type().NumIn()
		switch {
		case takes == 0:
			all[method.Name] = f.Call(nil)[0].String()
		case all[method.Name] == "" && f.Type().NumOut() == 1 && f.Type().Out(0).Kind() == reflect.String:
			t.Errorf("Names.%s is not tried", method.Name)
		}
	}
	return all
}

// TestNamespaceIsInEveryName: another namespace gives the names of the default
// one with nothing but the namespace changed, in subjects and in upper case in
// streams and buckets.
func TestNamespaceIsInEveryName(t *testing.T) {
	for _, namespace := range []string{"prod", "a", "p-2_x", strings.Repeat("z", NamespaceBytesMax)} {
		ours := every(t, named(t, namespace))
		for name, plain := range every(t, Names{}) {
			want := strings.NewReplacer("duly", namespace, "DULY", strings.ToUpper(namespace)).Replace(plain)
			if want == plain || ours[name] != want {
				t.Errorf("%s: %q, want %q", name, ours[name], want)
			}
		}
	}
	for _, n := range []Names{named(t, ""), named(t, DefaultNamespace)} {
		if !reflect.DeepEqual(every(t, n), every(t, Names{})) {
			t.Error("the default namespace has other names when it is said")
		}
	}
}

// TestNamespaceRefused: the error names the field, the value and the limit.
func TestNamespaceRefused(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for namespace, want := range map[string]string{
		strings.Repeat("n", NamespaceBytesMax+1): "has 33 bytes, want 1 to 32",
		"Prod":                                   `begins with 'P', want a letter of a-z`,
		"1st":                                    `begins with '1'`,
		"_INBOX":                                 `begins with '_'`,
		"$SYS":                                   `begins with '$'`,
		"pRod":                                   `character 2 is 'R', want a-z, 0-9, - or _`,
		"a.b":                                    `character 2 is '.'`,
		"a b":                                    `character 2 is ' '`,
		"a>":                                     `character 2 is '>'`,
		"a*":                                     `character 2 is '*'`,
		"é":                                      `begins with`,
		"a\x00":                                  `character 2 is '\x00'`,
	} {
		_, err := NewNames(namespace)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), `namespace: "`) {
			t.Errorf("%q: %v, want %q", namespace, err, want)
		}
		if _, err := Dial(ended, Options{URL: "nats://127.0.0.1:1", Namespace: namespace}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("dial with %q: %v, want %q", namespace, err, want)
		}
	}
}

// TestNamespaceReadsItsOwn: a parser takes what its own builder makes, and nothing
// of another namespace, also of one that begins or ends alike.
func TestNamespaceReadsItsOwn(t *testing.T) {
	n := named(t, "prod")
	reads := map[string]func(Names) bool{
		"submit": func(x Names) bool {
			taskType, id, err := n.ParseSubmit(x.SubmitSubject("order", "o-1"))
			return err == nil && taskType == "order" && id == "o-1"
		},
		"in": func(x Names) bool {
			p, taskType, id, err := n.ParseIn(numbered(x.get().tasks, 7, ".order.o-1"))
			return err == nil && p == 7 && taskType == "order" && id == "o-1"
		},
		"pack": func(x Names) bool { p, ok := n.ParsePack(x.PackSubject(7)); return ok && p == 7 },
		"reply": func(x Names) bool {
			p, a, b, err := n.ParseReply(x.ReplySubject(3, 17, 5))
			return err == nil && p == 3 && a == 17 && b == 5
		},
		"mark": func(x Names) bool {
			c := &Conn{}
			c.marker.Store(&marker{1, 2})
			r, err := n.DecodeReply(&nats.Msg{Subject: c.marker.Load().replySubject(x, command(3, 17, 5, 9))}, 10)
			return err == nil && c.Genuine(&r, 9)
		},
		"ask": func(x Names) bool {
			kind, _, err := n.ParseAsk(x.AskSubject("cancel"))
			return err == nil && kind == core.EventCancel
		},
		"batch": func(x Names) bool { return n.isBatchReply(x.batchReplyPrefix("x")+"a.1", "a") },
		"agent": func(x Names) bool { return n.mayAnswer(x.ReplySubject(3, 17, 5)) && !x.mayAnswer(x.ControlSubject(3)) },
		"doors": func(x Names) bool {
			d, err := Doors{Names: n}.Decode(x.PackSubject(3), nil, EncodePack(nil, goldenPack), at)
			return err == nil && len(d.Submissions) == len(goldenPack)
		},
		"reserved": func(x Names) bool { return n.CheckReplyTo(x.LiveSubject("a", "b"), []string{"prod", "duly"}) != nil },
	}
	for what, read := range reads {
		if !read(n) {
			t.Errorf("%s: its own is refused", what)
		}
		for _, other := range []string{"duly", "prod2", "prod-2", "pro", "eprod"} {
			// An agent answers where its caller waits, unless that is Duly's own.
			if x := named(t, other); what != "agent" && what != "reserved" && read(x) {
				t.Errorf("%s: that of %s is taken", what, other)
			}
		}
	}
	if _, _, err := n.ParseAsk("duly.ask.cancel"); err == nil || !strings.Contains(err.Error(), "is not prod.ask.") {
		t.Errorf("error %v, want the subject that it should be", err)
	}
}

// TestNamespaceReplyTo: what is private to a submitter lies outside the namespace,
// whatever the prefixes say.
func TestNamespaceReplyTo(t *testing.T) {
	n := named(t, "prod")
	for subject, ok := range map[string]bool{"_INBOX.a": true, "status.a": true, "prod": false, "prod.do.x": false, "$SYS.x": false} {
		if err := n.CheckReplyTo(subject, []string{"_INBOX.", "status.", "prod", "$"}); (err == nil) != ok {
			t.Errorf("%q: %v, want ok %v", subject, err, ok)
		}
	}
}

// TestLongNamespaceBuildsWithoutGarbage: the longest names fit the stack, too.
func TestLongNamespaceBuildsWithoutGarbage(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	n := named(t, strings.Repeat("n", NamespaceBytesMax))
	k, longest := &marker{1, 2}, command(1<<31-1, 1<<63-1, 1<<63-1, 1<<63-1)
	for name, build := range map[string]func() string{
		"reply":  func() string { return n.ReplySubject(1<<31-1, 1<<63-1, 1<<63-1) },
		"marked": func() string { return k.replySubject(n, longest) },
		"pack":   func() string { return n.PackSubject(1<<31 - 1) },
		"do":     func() string { return n.CommandSubject("payment.charge", false) },
		"batch":  func() string { return n.BatchSubject("payment.charge", true) },
	} {
		var s string
		if got := testing.AllocsPerRun(100, func() { s = build() }); got > 1 {
			t.Errorf("%s: %v allocations for %s, want 1: the string", name, got, s)
		}
	}
}

// TestNamespacesShareAServer: two installations in one account make streams and
// buckets of their own, mark with keys of their own, and an agent of the same name
// is asked what it takes in its own namespace only.
func TestNamespacesShareAServer(t *testing.T) {
	server := serve(t, natsserver.Options{})
	conns := map[string]*Conn{}
	for _, namespace := range []string{"duly", "prod"} {
		conns[namespace] = dialWith(t, Options{URL: server.ClientURL(), Namespace: namespace})
		ready := setUp(t, conns[namespace], StreamConfig{Lease: time.Second})
		if want := strings.ToUpper(namespace) + "_TASKS@20"; !strings.Contains(ready.Identity, "/"+want) {
			t.Errorf("identity %s, want %s…", ready.Identity, want)
		}
	}
	var streams []string
	list := conns["duly"].js.StreamNames(within(t))
	for name := range list.Name() {
		streams = append(streams, name)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	var duly, prod []string
	for _, name := range streams {
		if strings.Contains(name, "PROD_") {
			prod = append(prod, strings.ReplaceAll(name, "PROD_", "DULY_"))
		} else {
			duly = append(duly, name)
		}
	}
	slices.Sort(duly)
	slices.Sort(prod)
	if !slices.Contains(duly, "DULY_TASKS") || !slices.Contains(duly, "KV_DULY_NODES") || !slices.Equal(duly, prod) {
		t.Errorf("streams %v", streams)
	}
	if *conns["duly"].marker.Load() == *conns["prod"].marker.Load() {
		t.Error("both mark with the same key")
	}
	for _, c := range conns {
		renew(t, newLease(t, c, NodeKey("n1"), c.names.Namespace()), true) // also where the other has it
	}

	s, w := sending(t, conns["prod"])
	_, batches := answering(t, dialWith(t, Options{URL: server.ClientURL(), Namespace: "prod"}), true)
	_, alone := answering(t, dial(t, server.ClientURL()), false) // of the other installation
	met(t, s, true)
	if n := sendAll(t, s, w, batches, 40); n != 40 || len(alone) > 0 {
		t.Errorf("%d commands in batches, want 40; %d came to the other namespace", n, len(alone))
	}
	if conns["duly"].agentTakesBatches(t.Context(), "payment.charge") {
		t.Error("the agent of the other namespace was asked")
	}
}
