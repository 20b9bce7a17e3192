package dev_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestBombs: JSON that is dear to read is refused or kept as it came.
//
// covers: E25
func TestBombs(t *testing.T) {
	w := start(t)
	w.plan(abusePlan)
	got := make(chan []byte, 10)
	w.agent("good.only", func(m *nats.Msg) { got <- m.Data; answers(`{}`)(m) }, nil)
	for name, c := range map[string]struct {
		input string
		code  int // 0: accepted
	}{
		"deep":              {strings.Repeat("[", 200) + strings.Repeat("]", 200), 0},
		"too deep":          {strings.Repeat("[", 201) + strings.Repeat("]", 201), 400},
		"deep and open":     {strings.Repeat(`{"a":`, 40_000), 400},
		"huge number":       {"1" + strings.Repeat("0", 200_000), 0},
		"huge exponent":     {`{"n":1e999999999}`, 0},
		"same key":          {`{` + strings.Repeat(`"a":1,`, 30_000) + `"a":2}`, 400},
		"many names":        {names(20_000), 0},
		"many keys":         {`[` + strings.Repeat(`{},`, 80_000) + `{}]`, 0},
		"ten megabytes":     {sized(10 << 20), 413},
		"all escapes":       {`"` + strings.Repeat(`\u00e9`, 40_000) + `"`, 0},
		"lone surrogates":   {`"` + strings.Repeat(`\ud800`, 40_000) + `"`, 0},
		"NUL among escapes": {`"` + strings.Repeat(`\\`, 100_000) + `\u0000"`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			id := strings.ReplaceAll(name, " ", "-")
			code, body := w.http("PUT", "/v1/tasks/good/"+id, c.input, nil)
			if c.code != 0 {
				if code != c.code {
					t.Errorf("http: %d %.300s", code, body)
				}
				if len(c.input) < 8<<20 { // more the server itself refuses
					if answer := w.submit("good", id, c.input, nil); !strings.Contains(answer, fmt.Sprintf(`"code":%d`, c.code)) {
						t.Errorf("nats: %.300s", answer)
					}
				}
				return
			}
			if code != 202 {
				t.Fatalf("http: %d %.300s", code, body)
			}
			w.ends("good", id, "processed")
			if command := <-got; !bytes.Contains(command, []byte(`"input":`+c.input)) {
				t.Errorf("the agent got another input: %.300s", command)
			}
			if _, body := w.http("GET", "/v1/tasks/good/"+id, "", nil); !json.Valid([]byte(body)) || !strings.Contains(body, c.input) {
				t.Errorf("another input is shown: %.300s", body)
			}
		})
	}
	w.good("after")
}

// names is an object with so many members.
func names(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%d":1`, i)
	}
	return "{" + b.String()[1:] + "}"
}

// TestHeaderFlood: headers by the thousand, at every door. What cannot be
// decoded becomes a dead letter, and its partition goes on.
//
// covers: E25, inv12
func TestHeaderFlood(t *testing.T) {
	w := start(t)
	w.plan(abusePlan)
	w.agent("good.only", answers(`{}`), nil)
	flood := func(n, size int) nats.Header {
		h := nats.Header{}
		for i := range n {
			h[fmt.Sprintf("X-%d", i)] = []string{strings.Repeat("x", size)}
		}
		return h
	}
	if answer := w.submit("good", "many", `{}`, flood(2000, 1000)); !strings.Contains(answer, `"seq":`) {
		t.Errorf("fast door: %.300s", answer)
	}
	w.ends("good", "many", "processed")
	for p := range 4 {
		for _, subject := range []string{fmt.Sprintf("duly.control.%d", p), fmt.Sprintf("duly.tasks.%d.pack", p)} {
			if _, err := w.js.PublishMsg(&nats.Msg{Subject: subject, Data: bytes.Repeat([]byte{9}, 1000), Header: flood(60, 1000)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.until("eight dead letters", func() bool {
		info, err := w.js.StreamInfo("DULY_DEAD")
		return err == nil && info.State.Msgs == 8
	})
	if _, err := w.js.PublishMsg(&nats.Msg{Subject: "duly.in.good.plain", Data: []byte(`{}`), Header: flood(60, 1000)}); err != nil {
		t.Fatal(err)
	}
	w.ends("good", "plain", "processed")
	header := map[string]string{}
	for i := range 200 {
		header[fmt.Sprintf("X-%d", i)] = strings.Repeat("x", 1000)
	}
	if code, body := w.http("PUT", "/v1/tasks/good/h", `{}`, header); code != 431 {
		t.Errorf("http: %d %.300s", code, body)
	}
	for i := range 16 { // in every partition
		w.good(fmt.Sprintf("after-%d", i))
	}
}

// TestSubmitterThatNeverReads: it asks for thousands of answers and statuses and
// reads none; another consumes the events and acknowledges none. No other
// client waits for them.
//
// covers: E27
func TestSubmitterThatNeverReads(t *testing.T) {
	w := start(t)
	w.plan(abusePlan)
	w.agent("good.only", answers(`{}`), nil)
	sub, err := w.js.PullSubscribe("duly.events.*.*", "never", nats.BindStream("DULY_EVENTS"), nats.AckExplicit())
	if err != nil {
		t.Fatal(err)
	}
	// The read buffer stays as it is, and fills with a tenth of what comes. One
	// made smaller on an open connection shrinks a window that was offered
	// already: the kernel then drops the segments beyond it with the
	// acknowledgements they carry, and what this client wrote can stay in its own
	// send queue for minutes.
	r := dialRaw(t, w)
	if err := r.conn.SetDeadline(time.Now().Add(4 * patience)); err != nil {
		t.Fatal(err)
	}
	const many = 3000
	r.write("SUB _INBOX.mute.> 1\r\n")
	var b strings.Builder
	header := "NATS/1.0\r\nDuly-Reply-To: _INBOX.mute.status\r\n\r\n"
	for i := range many {
		fmt.Fprintf(&b, "HPUB duly.submit.good.mute-%d _INBOX.mute.%d %d %d\r\n%s{}\r\n", i, i, len(header), len(header)+2, header)
		fmt.Fprintf(&b, "PUB duly.submit.nosuch.%s _INBOX.mute.x 2\r\n{}\r\n", strings.Repeat("x", 60))
	}
	r.write(b.String())
	for i := range 20 {
		w.good(fmt.Sprintf("meanwhile-%d", i))
	}
	if msgs, err := sub.Fetch(100, nats.MaxWait(patience)); err != nil || len(msgs) == 0 {
		t.Errorf("events: %d, %v", len(msgs), err)
	}
	var counts string
	defer func() {
		if t.Failed() {
			t.Logf("counts: %s", counts)
		}
	}()
	w.until("all that it submitted has ended", func() bool {
		_, counts = w.http("GET", "/v1/counts", "", nil)
		return strings.Contains(counts, fmt.Sprintf(`{"type":"good","state":"processed","tasks":%d}`, many+20))
	})
	w.good("after")
}
