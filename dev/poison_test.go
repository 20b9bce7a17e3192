package dev_test

import (
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestBadResults: a result over its limit, or that is not JSON, is a failed
// attempt that says so.
//
// covers: I17, inv12
func TestBadResults(t *testing.T) {
	w := start(t)
	const limit = 100
	w.plan(`{"name":"res","version":1,"steps":[{"name":"only","agent":"res.only","undoable":false,"attempts_max":2,"backoff_ms":20,"result_max":100}]}`)
	for _, c := range []struct {
		id, result string
		want       []string
	}{
		{"over", sized(limit + 1), []string{"bad_result", "101", "100"}},
		{"far-over", sized(64<<10 + 1), []string{"bad_result", "65537"}},
		{"text", `no JSON at all`, []string{"bad_result", "JSON", "no JSON at all"}},
	} {
		t.Run(c.id, func(t *testing.T) {
			w := w.in(t)
			var calls atomic.Int64
			sub, err := w.nc.QueueSubscribe("duly.do.res.only", "q", func(m *nats.Msg) {
				calls.Add(1)
				answers(c.result)(m)
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.nc.Flush(); err != nil {
				t.Fatal(err)
			}
			w.accepted("res", c.id, `{}`, nil)
			v := w.ends("res", c.id, "undone")
			for _, want := range c.want {
				if !strings.Contains(v.Steps[0].Error, want) {
					t.Errorf("the attempt's error does not name %q: %q", want, v.Steps[0].Error)
				}
			}
			if n := calls.Load(); n != 1 { // the same would come again
				t.Errorf("%d calls, want 1", n)
			}
			if err := sub.Unsubscribe(); err != nil {
				t.Error(err)
			}
		})
	}
	w.agent("res.only", answers(sized(limit)), nil)
	w.accepted("res", "at-limit", `{}`, nil)
	w.ends("res", "at-limit", "processed")
}

// TestUndecodable: what no door would have stored ends as a dead letter with its
// cause, and the stream goes on.
//
// covers: E17, I15, D10, T9, inv12
func TestUndecodable(t *testing.T) {
	w := start(t)
	w.plan(badPlan)
	w.agent("good.only", answers(`{}`), nil)
	for _, c := range []struct{ name, subject, stream, data string }{
		{"garbage", "duly.tasks.%.pack", "DULY_TASKS", "garbage"},
		{"empty", "duly.tasks.%.pack", "DULY_TASKS", ""},
		{"another version", "duly.tasks.%.pack", "DULY_TASKS", "\x09\x01\x01"},
		{"a length beyond the end", "duly.tasks.%.pack", "DULY_TASKS", "\x01\xff\xff\xff\xff\x7f"},
		{"control", "duly.control.%", "DULY_CONTROL", "garbage"},
		{"control of no kind", "duly.control.%", "DULY_CONTROL", `{"v":1,"kind":"dance","id":"x"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			for _, partition := range []string{"0", "1", "2", "3"} {
				subject := strings.ReplaceAll(c.subject, "%", partition)
				before := w.dead(c.stream)
				if _, err := w.js.Publish(subject, []byte(c.data)); err != nil {
					t.Fatalf("publish %s: %v", subject, err)
				}
				var letter *nats.RawStreamMsg
				w.until("a dead letter", func() bool { letter = w.dead(c.stream); return letter.Sequence > before.Sequence })
				if letter.Header.Get("Duly-Cause") == "" || letter.Header.Get("Duly-Subject") != subject || string(letter.Data) != c.data {
					t.Errorf("dead letter %v %q", letter.Header, letter.Data)
				}
			}
		})
	}
	// Every partition goes on.
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		w.accepted("good", id, `{}`, nil)
	}
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		w.ends("good", id, "processed")
	}
}

// dead is the last dead letter of a stream; its sequence is 0 without one.
func (w *world) dead(stream string) *nats.RawStreamMsg {
	w.t.Helper()
	letter, err := w.js.GetLastMsg("DULY_DEAD", "duly.dead."+stream)
	if err != nil {
		if errors.Is(err, nats.ErrMsgNotFound) {
			return &nats.RawStreamMsg{}
		}
		w.t.Fatal(err)
	}
	return letter
}

// TestBadPlans: a plan that cannot work is refused where it is stored.
func TestBadPlans(t *testing.T) {
	w := start(t)
	step := `{"name":"a","agent":"x.a","undoable":false}`
	for _, c := range []struct {
		name, spec string
		want       []string
	}{
		{"not JSON", `{"name":`, []string{`"code":400`}},
		{"unknown member", `{"name":"p","version":1,"stepps":[]}`, []string{`"code":400`, "stepps"}},
		{"no step", `{"name":"p","version":1,"steps":[]}`, []string{`"code":400`, "1000"}},
		{"two of a name", `{"name":"p","version":1,"steps":[` + step + `,` + step + `]}`, []string{`"code":400`, "a"}},
		{"after itself", `{"name":"p","version":1,"steps":[{"name":"a","agent":"x.a","undoable":false,"after":["a"]}]}`, []string{`"code":400`, "after names the step itself"}},
		{"agent outside the alphabet", `{"name":"p","version":1,"steps":[{"name":"a","agent":"x.*","undoable":false}]}`, []string{`"code":400`, "x.*"}},
		{"result over every limit", `{"name":"p","version":1,"steps":[{"name":"a","agent":"x.a","undoable":false,"result_max":65537}]}`, []string{`"code":400`, "result_max", "65537", "65536"}},
		{"input over every limit", `{"name":"p","version":1,"input_max":262145,"steps":[` + step + `]}`, []string{`"code":400`, "input_max", "262145", "262144"}},
		{"more steps than there may be", `{"name":"p","version":1,"steps":[` + manySteps(1001) + `]}`, []string{`"code":400`, "1001 steps", "1 to 1000"}},
		{"version 0", `{"name":"p","version":0,"steps":[` + step + `]}`, []string{`"code":400`, "version"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			answer := w.apply(c.spec)
			for _, want := range append(c.want, `"stored":false`) {
				if !strings.Contains(answer, want) {
					t.Errorf("answer does not name %q: %s", want, answer)
				}
			}
		})
	}
	w.plan(badPlan)
	if answer := w.apply(badPlan); strings.Contains(answer, "error") {
		t.Errorf("the same again: %s", answer)
	}
	if answer := w.apply(strings.Replace(badPlan, "1000", "999", 1)); !strings.Contains(answer, `"code":409`) {
		t.Errorf("another content: %s", answer)
	}
}

func manySteps(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = `{"name":"s` + strconv.Itoa(i) + `","agent":"x.a","undoable":false}`
	}
	return strings.Join(all, ",")
}
