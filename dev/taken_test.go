package dev_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
)

// TestTakenID hands in another input, and another type, under an id that is a task: every
// door refuses it at once, whether the first came through it or through another, and
// however it came. What could not be known at once ends a watch.
//
// covers: C2
func TestTakenID(t *testing.T) {
	w := start(t)
	c, err := duly.NewClient(w.nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience) // of all of it
	defer cancel()
	for _, name := range []string{"taken", "other"} { // no agent serves them: they stay at work
		plan := duly.NewPlan(name, 1, duly.NewStep[parcel, string](name, "absent."+name))
		if err := plan.Apply(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	// Each door gives a code as HTTP's, and its words.
	doors := map[string]func(typ, id, input string) (int, string){
		"POST": func(typ, id, input string) (int, string) {
			return w.http("POST", "/v1/tasks/"+typ, input, map[string]string{"Idempotency-Key": id})
		},
		"PUT": func(typ, id, input string) (int, string) { return w.http("PUT", "/v1/tasks/"+typ+"/"+id, input, nil) },
		"NATS": func(typ, id, input string) (int, string) {
			msg, err := w.nc.RequestWithContext(ctx, "duly.submit."+typ+"."+id, []byte(input))
			if err != nil {
				t.Fatal(err)
			}
			return codeOf(string(msg.Data)), string(msg.Data)
		},
		"Go": func(typ, id, input string) (int, string) {
			_, err := c.SubmitRaw(ctx, typ, id, []byte(input))
			if err == nil {
				return 202, ""
			}
			refused, ok := errors.AsType[*duly.SubmitError](err)
			if !ok || !errors.Is(err, duly.ErrTaken) || !errors.Is(err, duly.ErrRefused) {
				t.Errorf("%s: not told to be taken: %v", id, err)
				return 0, err.Error()
			}
			return refused.Code, err.Error()
		},
	}
	plain := func(typ, id, input string) (int, string) {
		msg := &nats.Msg{Subject: "duly.in." + typ + "." + id, Data: []byte(input)}
		if _, err := w.js.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
		w.until(id+" is a task", func() bool { _, found := w.task(typ, id); return found })
		return 202, ""
	}
	n := 0
	for first, hand := range doors {
		for second, again := range doors {
			for _, stored := range []bool{false, true} {
				t.Run(fmt.Sprint(first, " then ", second, ", stored ", stored), func(t *testing.T) {
					n++
					id := fmt.Sprint("t-", n)
					begin := hand
					if stored {
						begin = plain // no door remembers it
					}
					if code, text := begin("taken", id, `{"Weight":1}`); code != 202 {
						t.Fatalf("%d %s", code, text)
					}
					for _, other := range [][2]string{{"taken", `{"Weight":2}`}, {"other", `{"Weight":1}`}} {
						code, text := again(other[0], id, other[1])
						if stored && code == 202 || code == 503 {
							// A database that is slow just now is not waited for: it is asked the next time. And while the
							// first is no task yet, it is not decided.
							w.in(t).until("it is refused", func() bool { code, text = again(other[0], id, other[1]); return code != 202 && code != 503 })
						}
						if code != 409 || !strings.Contains(text, "already") {
							t.Errorf("%s: %d %s, want 409", other, code, text)
						}
					}
					if code, text := again("taken", id, `{"Weight":1}`); code != 202 && code != 200 {
						t.Errorf("the same again: %d %s", code, text)
					}
				})
			}
		}
	}
	began := time.Now()
	plain("taken", "late", `{"Weight":1}`)
	plain("taken", "late", `{"Weight":2}`)
	for status, err := range c.Watch(ctx, "taken", "late", duly.Since(began)) {
		if err == nil && !status.State.Ended() {
			continue
		}
		if status.State != duly.StateRefused || !errors.Is(err, duly.ErrTaken) {
			t.Errorf("watched %+v, %v", status, err)
		}
	}
}

// codeOf is the code of an answer of the fast door; 202: it accepts.
func codeOf(answer string) int {
	code := 202
	if _, rest, refused := strings.Cut(answer, `{"error":{"code":`); refused {
		if _, err := fmt.Sscanf(rest, "%d", &code); err != nil {
			return 0
		}
	}
	return code
}
