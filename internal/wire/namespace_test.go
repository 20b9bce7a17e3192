package wire

import (
	"reflect"
	"strings"
	"testing"

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
		"BatchReplyPrefix": n.BatchReplyPrefix("x"), "ReplySubject": n.ReplySubject(15, 123456789, 42), "ReplyPattern": n.ReplyPattern(15),
		"ControlSubject": n.ControlSubject(3), "EventSubject": n.EventSubject("order", "processed"), "LiveSubject": n.LiveSubject("order", "o-1"),
		"StepsSubject": n.StepsSubject("order"), "steps of all": n.StepsSubject(""), "DeadSubject": n.DeadSubject(n.StreamTasks()), "AlertSubject": n.AlertSubject("streams"), "AskSubject": n.AskSubject("cancel"), "AskTypeSubject": n.AskTypeSubject("cancel", "order"), "ServiceName": n.ServiceName("a.b"),
		"with a token": (&Signer{1, 2}).ReplySubject(n, command(3, 17, 5, 9)), "TasksTransform": n.TasksTransform(16), "EvidenceSubject": n.EvidenceSubject(7, true), "HeadSubject": n.HeadSubject(7),
		"PatternSubmit": n.PatternSubmit(), "SubjectBooks": n.SubjectBooks("a.b"), "SubjectProbe": n.SubjectProbe("a.b"), "PatternPack": n.PatternPack(), "PatternControl": n.PatternControl(),
		"PatternEvents": n.PatternEvents(), "EventsAbout": n.EventsAbout("order", ""), "events of all": n.EventsAbout("", "undone"), "PatternErrors": n.PatternErrors(), "PatternAsk": n.PatternAsk(),
		"StreamTasksAt": n.StreamTasksAt(2), "StreamControlAt": n.StreamControlAt(2), "MovedTasks": n.MovedTasks(7), "MovedControl": n.MovedControl(7),
		"Moved": n.Moved(n.PackSubject(7)), "RetiredSubject": n.RetiredSubject(n.StreamIn()),
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
	for _, namespace := range []string{"prod", "a", "p-2_x", strings.Repeat("z", namespaceBytesMax)} {
		ours := every(t, named(t, namespace))
		for name, plain := range every(t, Names{}) {
			of := namespace
			if name == "ServiceName" {
				of = strings.NewReplacer("-", "_", "_", "U").Replace(of)
			}
			want := strings.NewReplacer("duly", of, "DULY", strings.ToUpper(namespace)).Replace(plain)
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

// TestServiceOfOneNamespace: no two namespaces have a service of one name, whatever their agents are called.
func TestServiceOfOneNamespace(t *testing.T) {
	of := map[string]string{}
	for _, namespace := range []string{"prod", "prod-eu", "prod_eu", "prod-", "prod_", "prod--eu", "prod-_eu", "prod_-eu"} {
		for _, agent := range []string{"pay", "eu-pay", "eu_pay", "-eu-pay", "_eu-pay", "-pay", "_pay", "eu.pay", "-.pay"} {
			name := named(t, namespace).ServiceName(agent)
			if other, taken := of[name]; taken && other != namespace {
				t.Errorf("service %s is of %s and of %s, whose agent is %s", name, other, namespace, agent)
			}
			of[name] = namespace
		}
	}
}

// TestNamespaceRefused: the error names the field, the value and the limit.
func TestNamespaceRefused(t *testing.T) {
	for namespace, want := range map[string]string{
		strings.Repeat("n", namespaceBytesMax+1): "has 33 bytes, want 1 to 32",
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
		"token": func(x Names) bool {
			k := &Signer{1, 2}
			r, err := n.DecodeReply(k.ReplySubject(x, command(3, 17, 5, 9)), nil, nil, 10)
			return err == nil && k.Genuine(&r, 9)
		},
		"ask": func(x Names) bool {
			kind, _, err := n.ParseAsk(x.AskSubject("cancel"))
			return err == nil && kind == core.EventCancel
		},
		"batch": func(x Names) bool { return n.IsBatchReply(x.BatchReplyPrefix("x")+"a.1", "a") },
		"agent": func(x Names) bool {
			return n.MayAnswer(x.ReplySubject(3, 17, 5), nil) && !x.MayAnswer(x.ControlSubject(3), nil)
		},
		"task stream": func(x Names) bool {
			d, err := TaskDecoder{Names: n}.Decode(x.PackSubject(3), nil, AppendPack(nil, goldenPack), at)
			return err == nil && len(d.Submissions) == len(goldenPack)
		},
		"reserved": func(x Names) bool { return n.CheckReplyTo(x.LiveSubject("a", "b"), []string{"prod", "duly"}) != nil },
	}
	for what, read := range reads {
		if !read(n) {
			t.Errorf("%s: its own is refused", what)
		}
		for _, other := range []string{"duly", "prod2", "prod-2", "pro", "eprod"} {
			if x := named(t, other); what != "reserved" && read(x) {
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
	n := named(t, strings.Repeat("n", namespaceBytesMax))
	k, longest := &Signer{1, 2}, command(1<<31-1, 1<<63-1, 1<<63-1, 1<<63-1)
	for name, build := range map[string]func() string{
		"reply":        func() string { return n.ReplySubject(1<<31-1, 1<<63-1, 1<<63-1) },
		"with a token": func() string { return k.ReplySubject(n, longest) },
		"pack":         func() string { return n.PackSubject(1<<31 - 1) },
		"do":           func() string { return n.CommandSubject("payment.charge", false) },
		"batch":        func() string { return n.BatchSubject("payment.charge", true) },
	} {
		var s string
		if got := testing.AllocsPerRun(100, func() { s = build() }); got > 1 {
			t.Errorf("%s: %v allocations for %s, want 1: the string", name, got, s)
		}
	}
}

// TestWrongRequestsAreNamed: a client that asks wrongly learns which member is wrong and what may stand there.
func TestWrongRequestsAreNamed(t *testing.T) {
	n := Names{}
	_, _, err := n.ParseAsk("duly.ask.status.order")
	for _, want := range []string{"get, list, cancel", "accept", "edit", "migrate", "signal"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "overdue") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := n.DecodeQuery("duly.ask.get.order", []byte(`{"id":"o-1"}`)); err == nil || !strings.Contains(err.Error(), "v is 0, want 1") {
		t.Errorf("get without v: %v", err)
	}
	for body, want := range map[string]string{
		`{"kind":"cancel","id":"o-1"}`:                                         "v is 0, want 1",
		`{"v":1,"kind":"extend","id":"o-1","type":"order","until":"tomorrow"}`: `until: "tomorrow" is no time, want one such as 2026-12-31T23:00:00Z`,
	} {
		if _, err := n.DecodeAsk("duly.ask.extend.order", []byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}
