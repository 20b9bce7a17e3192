package dev_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/agents/httpagent"
	"duly.dev/duly/internal/decimal"
	"duly.dev/duly/internal/planfile"
)

// drawnNumbers are numbers as JSON writes them, most of which 64 bits cannot hold.
func drawnNumbers(n int) []string {
	draw := rand.New(rand.NewPCG(5, 6))
	digits := func(most int) string {
		var b strings.Builder
		for range 1 + draw.IntN(most) {
			b.WriteByte(byte('0' + draw.IntN(10)))
		}
		return b.String()
	}
	all := []string{"9007199254740993", "9223372036854775809", "18446744073709551615", "100000000000000000001", "12345678901234.123456789", "9007199254740993.0", "1e400", "-0.0"}
	for len(all) < n {
		text := []string{"", "-"}[draw.IntN(2)] + fmt.Sprint(1+draw.IntN(9)) + digits(30)
		if draw.IntN(2) == 0 {
			text += "." + digits(25)
		}
		if draw.IntN(3) == 0 {
			text += fmt.Sprintf("e%d", draw.IntN(80)-40)
		}
		all = append(all, text)
	}
	return all
}

// numbersOf are the values of every number in a JSON value, in its order.
func numbersOf(t *testing.T, data string) (all []string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(data))
	d.UseNumber()
	for {
		switch token, err := d.Token(); {
		case err == io.EOF:
			return all
		case err != nil:
			t.Fatalf("%s: %v", data, err)
		default:
			if n, ok := token.(json.Number); ok {
				canon, err := decimal.Canon(n.String())
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, canon)
			}
		}
	}
}

// A number of an input is the same number at each hop: the door, the store, expressions, commands, an HTTP service's address,
// body and form, its answer, the result of the task, and what the API shows as JSON and as YAML.
//
// covers: W3
func TestNumbersPassEveryHop(t *testing.T) {
	numbers := drawnNumbers(200)
	list := "[" + strings.Join(numbers, ",") + "]"
	want := strings.Join(numbersOf(t, list), " ")
	var mu sync.Mutex
	seen := map[string]string{}
	note := func(hop, data string) {
		mu.Lock()
		defer mu.Unlock()
		seen[hop] = data
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/form" {
			form, err := url.ParseQuery(string(body))
			if err != nil {
				t.Error(err)
			}
			body = []byte("[" + strings.Join(form["n"], ",") + "]")
		}
		note(strings.TrimRight(r.URL.Path, "0123456789.e-"), string(body))
		note("address of "+r.URL.Path, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
		_, _ = w.Write(body)
	}))
	defer service.Close()
	w := start(t)
	agents, err := httpagent.Read("agents.yaml", fmt.Appendf(nil, `
services:
  web: {url: %q, allow: [127.0.0.1]}
agents:
  web:
    service: web
    steps:
      body: {do: {method: PUT, path: "/body/{input.one}", body: input.numbers, result: body}}
      form: {do: {method: POST, path: /form, content_type: application/x-www-form-urlencoded, body: '{"n": input.numbers}', result: body}}
`, service.URL))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agents.Run(ctx, w.nc) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	w.agent("plain", func(m *nats.Msg) {
		var c struct{ Input json.RawMessage }
		if err := json.Unmarshal(m.Data, &c); err != nil {
			t.Error(err)
		}
		note("command", string(c.Input))
		answers(list)(m)
	}, nil)
	w.plan(`{"name":"sum","version":1,"result":"[results.plain, results.body, results.form]","steps":[
		{"name":"plain","agent":"plain","undoable":false,"with":"input.numbers"},
		{"name":"body","agent":"web","undoable":false},
		{"name":"form","agent":"web","undoable":false}]}`)
	for i, n := range numbers[:8] {
		id := fmt.Sprint("t", i)
		if code, body := w.http("PUT", "/v1/tasks/sum/"+id, fmt.Sprintf(`{"one":%s,"numbers":%s}`, n, list), nil); code != 202 {
			t.Fatalf("%d %s", code, body)
		}
		w.ends("sum", id, "processed")
		_, view := w.http("GET", "/v1/tasks/sum/"+id, "", nil)
		var task struct{ Input, Result json.RawMessage }
		if err := json.Unmarshal([]byte(view), &task); err != nil {
			t.Fatal(err)
		}
		yaml, err := planfile.YAML(task.Result)
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		for hop, got := range map[string]string{"command": seen["command"], "body": seen["/body/"], "form": seen["/form"]} {
			if strings.Join(numbersOf(t, got), " ") != want {
				t.Errorf("%s of %s: %s\nwant %s", hop, id, got, list)
			}
		}
		canon, _ := decimal.Canon(n)
		if seen["address of /body/"+canon] != canon {
			t.Errorf("the address of %s: %v", n, seen)
		}
		mu.Unlock()
		lines := strings.NewReplacer("- ", "", "\n", " ").Replace(string(yaml))
		if got := strings.Join(numbersOf(t, string(task.Result)), " "); got != want+" "+want+" "+want || strings.Join(numbersOf(t, lines), " ") != got {
			t.Errorf("the result of %s: %s\nin YAML: %s", id, task.Result, lines)
		}
		if got := numbersOf(t, string(task.Input)); strings.Join(got, " ") != canon+" "+want {
			t.Errorf("the input of %s: %s", id, task.Input)
		}
	}
}
