package law

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/agents"
	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/schedule"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/wire"
)

// clock is the time of a runtime that never waits.
type clock struct{}

func (clock) Now() core.Instant                                { return core.InstantOf(apitest.At) }
func (clock) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }
func (clock) Float64() float64                                 { return 0 }
func (clock) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// refusedBy is the error of a refusal, which may be a nil pointer.
func refusedBy(bad *operate.Refusal) error {
	if bad == nil {
		return nil
	}
	return bad
}

// asked is a request over NATS with these members.
func asked(kind, members string) error {
	_, err := wire.Names{}.DecodeAsk("duly.ask."+kind+".order", []byte(`{"v":1,"kind":"`+kind+`","id":"o-1",`+members+`}`))
	return err
}

// over asks the HTTP API.
func over(t *testing.T, method, target, body string) error {
	world := apitest.New()
	world.Add("t-error", core.StateError)
	handler, err := world.Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	apitest.As(operate.RoleAdmin, handler).ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	if w.Code >= 500 {
		t.Errorf("%s %s: %d %s", method, target, w.Code, w.Body)
	}
	if w.Code >= 400 {
		return errors.New(w.Body.String())
	}
	return nil
}

// replied is what the code of an answer says.
func replied(r core.Reply, err error) error {
	if err == nil && r.Code != 0 {
		return errors.New(r.Error)
	}
	return err
}

// nested is a payload of that depth.
func nested(depth int) string {
	return `{"a":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + "}"
}

// TestOneRuleForAPayload: what one door refuses every door does, on the way to an agent and back.
//
// covers: W15, P2
func TestOneRuleForAPayload(t *testing.T) {
	command := core.Command{Agent: "a", Step: "s", Task: "o-1", Type: "order", Left: time.Hour, CompleteBy: core.InstantOf(apitest.At.Add(time.Hour))}
	runtime := func(result []byte) *agents.Runtime {
		r := agents.New(agents.Config{Time: clock{}, Log: slog.New(slog.DiscardHandler)})
		if err := r.Register("a", "s", agents.Handlers{Do: func(context.Context, *core.Command) ([]byte, error) { return result, nil }}); err != nil {
			t.Fatal(err)
		}
		if err := r.RegisterProbe("a", "s", func(context.Context, *core.Command) (core.Probe, error) {
			return core.Probe{Outcome: core.ProbeDone, Result: result}, nil
		}); err != nil {
			t.Fatal(err)
		}
		return r
	}
	act := func(r operate.Request) error { return refusedBy(r.CheckOne(apitest.At)) }
	doors := map[string]func(payload string) error{
		"a submission's form, of every door": func(p string) error {
			_, bad := (&submit.Form{Type: "order", ID: "o-1", Input: []byte(p)}).Read(core.InstantOf(apitest.At), nil)
			if bad == nil {
				return nil
			}
			return bad
		},
		"Go: a submission": func(p string) error {
			_, err := duly.PrepareRaw(t.Context(), nil, "order", "o-1", []byte(p))
			return err
		},
		"HTTP: edit": func(p string) error {
			return over(t, "POST", "/v1/tasks/order/t-error/edit", `{"reason":"r","input":`+p+`}`)
		},
		"HTTP: accept": func(p string) error {
			return over(t, "POST", "/v1/tasks/order/t-error/accept", `{"reason":"r","result":`+p+`}`)
		},
		"NATS: edit":   func(p string) error { return asked("edit", `"input":`+p) },
		"NATS: accept": func(p string) error { return asked("accept", `"result":`+p) },
		"NATS: signal": func(p string) error { return asked("signal", `"step":"s","result":`+p) },
		"action: edit": func(p string) error {
			return act(operate.Request{Action: operate.ActionEdit, Reason: "r", Input: json.RawMessage(p)})
		},
		"action: patch": func(p string) error {
			return refusedBy((&operate.Request{Action: operate.ActionEdit, Reason: "r", Patch: json.RawMessage(p)}).Check(apitest.At))
		},
		"action: accept": func(p string) error {
			return act(operate.Request{Action: operate.ActionAccept, Reason: "r", Result: json.RawMessage(p)})
		},
		"action: signal": func(p string) error {
			return act(operate.Request{Action: operate.ActionSignal, Step: "s", Result: json.RawMessage(p)})
		},
		"schedule": func(p string) error {
			_, err := schedule.Parse(&schedule.Spec{Name: "s", Type: "order", Input: json.RawMessage(p), Cron: "0 9 * * *", Zone: "UTC"})
			return err
		},
		"agent: reply": func(p string) error {
			return replied(wire.Names{}.DecodeReply(wire.Names{}.ReplySubject(1, 2, 3), nil, []byte(p), core.ResultBytesMax))
		},
		"agent: batch": func(p string) (err error) {
			batch := wire.AppendBatchReply([]byte{wire.BatchVersion}, &command, core.TokenOf(1), &core.Reply{Result: []byte(p)})
			bad := wire.DecodeBatchReplies(batch, "x", core.ResultBytesMax, func(r core.Reply) { err = replied(r, nil) })
			return errors.Join(bad, err)
		},
		"agent: probe": func(p string) error {
			_, err := wire.DecodeProbe(wire.AppendProbe(nil, &core.Probe{Outcome: core.ProbeDone, Result: []byte(p)}), core.ResultBytesMax)
			return err
		},
		"Go: a handler's result": func(p string) error {
			reply, _ := runtime([]byte(p)).Handle(t.Context(), clock{}.Now(), &command)
			return replied(reply, nil)
		},
		"Go: a probe's result": func(p string) error {
			_, _, err := runtime([]byte(p)).Probe(t.Context(), clock{}.Now(), &command)
			return err
		},
	}
	for door, takes := range doors {
		for _, good := range []string{`{"a":"é"}`, ` {"a": [1,2.5e3,null,true,"\\u0000"]} `, nested(200)} {
			if err := takes(good); err != nil {
				t.Errorf("%s refuses %s: %v", door, good, err)
			}
		}
		for what, bad := range map[string]string{
			"bytes that are not UTF-8": "{\"a\":\"caf\xe9\"}", "an escaped NUL": `{"a":"x\u0000"}`, "an escaped NUL in a name": `{"x\u0000":1}`,
			"a NUL": "{\"a\":\"x\x00\"}", "a control character": "{\"a\":\"\x01\"}", "no JSON": `{"a":hello}`, "half a document": `{"a":`,
			"too deep a document": nested(201), "a document of the depth that decoders take": nested(10_000),
		} {
			if takes(bad) == nil {
				t.Errorf("%s takes %s", door, what)
			}
		}
	}
}

// TestOneRuleForWords: what a person says is held to one rule at every door.
//
// covers: W15
func TestOneRuleForWords(t *testing.T) {
	quoted := func(words string) string { // as JSON, also what is not UTF-8
		return `"` + strings.NewReplacer("\n", `\n`, "\t", `\t`, "\x00", `\u0000`, "\x1b", `\u001b`).Replace(words) + `"`
	}
	doors := map[string]func(words string) error{
		"action": func(words string) error {
			return refusedBy((&operate.Request{Action: operate.ActionCancel, Reason: words}).CheckOne(apitest.At))
		},
		"limit": func(words string) error {
			return refusedBy((&operate.SetLimit{Agent: "a", Concurrent: 1, Reason: words}).Check())
		},
		"HTTP: DELETE": func(words string) error {
			return over(t, http.MethodDelete, "/v1/tasks/order/t-1?reason="+url.QueryEscape(words), "")
		},
		"HTTP: cancel": func(words string) error {
			return over(t, "POST", "/v1/tasks/order/t-1/cancel", `{"reason":`+quoted(words)+`}`)
		},
		"HTTP: note": func(words string) error {
			return over(t, "POST", "/v1/failures/g1/notes", `{"text":`+quoted(words)+`}`)
		},
		"NATS: cancel": func(words string) error { return asked("cancel", `"reason":`+quoted(words)) },
		"NATS: signal": func(words string) error { return asked("signal", `"step":"s","reason":`+quoted(words)) },
	}
	for door, takes := range doors {
		for _, good := range []string{"two lines,\n\tand é", strings.Repeat("x", core.WordsBytesMax)} {
			if err := takes(good); err != nil {
				t.Errorf("%s refuses %.20q: %v", door, good, err)
			}
		}
		for what, bad := range map[string]string{
			"too many bytes": strings.Repeat("x", core.WordsBytesMax+1), "too many bytes of few characters": strings.Repeat("é", core.WordsBytesMax/2+1),
			"a NUL": "x\x00", "a control character": "\x1b[2J", "bytes that are not UTF-8": "caf\xe9",
		} {
			if takes(bad) == nil {
				t.Errorf("%s takes %s", door, what)
			}
		}
	}
}
