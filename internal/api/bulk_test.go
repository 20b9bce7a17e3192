package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/submit"
)

// TestBulkDefaults: the bounds of a node that says 0 are those of one that says nothing. A setting's default stands in a
// tag, which no constant can, so that there are two places.
func TestBulkDefaults(t *testing.T) {
	var c Config
	c.bulkDefaults()
	for _, setting := range reflect.VisibleFields(reflect.TypeFor[config.Bulk]()) {
		tag := setting.Tag.Get("default")
		want, err := strconv.ParseInt(tag, 10, 64)
		if setting.Type == reflect.TypeFor[time.Duration]() {
			var d time.Duration
			d, err = time.ParseDuration(tag)
			want = int64(d)
		}
		is := reflect.ValueOf(c).FieldByName(setting.Name)
		if err != nil || !is.IsValid() || is.Int() != want {
			t.Errorf("%s: the API's default is %v, the setting's %s (%v)", setting.Name, is, tag, err)
		}
	}
}

// bulkPatience is how long a test waits for what must come.
const bulkPatience = time.Minute

// bulkDoor is a door of the test's own: answer says what becomes of a submission.
type bulkDoor struct {
	mu     sync.Mutex
	tries  map[string]int
	answer func(r ingest.Request, tries int) ingest.Answer
}

func (d *bulkDoor) Late(*submit.Form) *ingest.Refusal { return nil }

func (d *bulkDoor) Submit(r ingest.Request) {
	d.mu.Lock()
	d.tries[r.ID]++
	n := d.tries[r.ID]
	d.mu.Unlock()
	a := ingest.Answer{Task: r.ID, Stream: "TASKS", Seq: 17, Partition: 1}
	if d.answer != nil {
		a = d.answer(r, n)
		a.Task = r.ID
	}
	r.Answer(a)
}

// tried is how often an id was handed in; of "" all together.
func (d *bulkDoor) tried(id string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id != "" {
		return d.tries[id]
	}
	for _, of := range d.tries {
		n += of
	}
	return n
}

// bulkSite is a server of bulk submissions.
type bulkSite struct {
	*site
	t      *testing.T
	door   *bulkDoor
	server *httptest.Server
	client *http.Client
	end    context.CancelCauseFunc // of the credentials of the request that is served
}

// newBulkSite starts one; door nil: one of the test's own.
func newBulkSite(t *testing.T, change func(*Config), door Submitter, set func(*api), http2 bool) *bulkSite {
	t.Helper()
	b := &bulkSite{site: newSite(t), t: t, door: &bulkDoor{tries: map[string]int{}}}
	if door == nil {
		door = b.door
	}
	cfg := Config{Partitions: 16, PartitionOf: byDigit, NewID: func() string { return "new-1" }}
	if change != nil {
		change(&cfg)
	}
	a := newAPI(cfg, door, b.site, b.asks, slog.New(slog.DiscardHandler))
	if set != nil {
		set(a)
	}
	b.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ctx context.Context
		ctx, b.end = context.WithCancelCause(r.Context())
		a.mux.ServeHTTP(w, r.WithContext(operate.WithActor(ctx, operate.Actor{Name: "shop", Role: operate.RoleClient, Via: "http"})))
	}))
	if http2 {
		b.server.EnableHTTP2 = true
		b.server.StartTLS()
	} else {
		b.server.Start()
	}
	b.client = b.server.Client()
	t.Cleanup(func() {
		b.client.CloseIdleConnections()
		b.server.Close()
	})
	return b
}

// answers are what a bulk submission was answered.
type bulkAnswers struct {
	lines   []lineAnswerJSON
	summary *summaryJSON // nil: it was cut off
}

// open begins a bulk submission.
func (b *bulkSite) open(query string, body io.Reader) *http.Response {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), "POST", b.server.URL+"/v1/tasks"+query, body)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", bulkKind)
	resp, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// send sends a body and reads what it is answered.
func (b *bulkSite) send(query string, body io.Reader) bulkAnswers {
	b.t.Helper()
	resp := b.open(query, body)
	if resp.StatusCode != 200 {
		data, _ := io.ReadAll(resp.Body)
		b.t.Fatalf("%d %s", resp.StatusCode, data)
	}
	return readAnswers(b.t, resp.Body)
}

func readAnswers(t *testing.T, from io.Reader) (all bulkAnswers) {
	t.Helper()
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var line struct {
			lineAnswerJSON
			Summary *summaryJSON
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || all.summary != nil {
			t.Fatalf("line %s: %v", lines.Text(), err)
		}
		if all.summary = line.Summary; line.Summary == nil {
			all.lines = append(all.lines, line.lineAnswerJSON)
		}
	}
	return all
}

// bulkText are so many lines, from a number on.
func bulkText(from, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"type\":\"order\",\"id\":\"b-%d\",\"input\":%d}\n", from+i, from+i)
	}
	return b.String()
}

func (s *summaryJSON) counts() string {
	return fmt.Sprintf("%d = %d %d %d %d", s.Lines, s.Stored, s.Existing, s.Refused, s.Failed)
}

// TestBulkOutcomes: what is a task already with the same input exists, with another it is refused; the same id twice in a
// body waits for the first; what the door says of a repeated one is told.
func TestBulkOutcomes(t *testing.T) {
	b := newBulkSite(t, func(c *Config) { c.BulkWait = time.Millisecond }, nil, nil, false)
	b.door.answer = func(r ingest.Request, tries int) ingest.Answer {
		switch {
		case r.ID == "away-4":
			return ingest.Answer{Err: ingest.Refuse(503, ingest.CauseLogDown, "not stored").After(time.Second)}
		case r.ID == "never-5":
			return ingest.Answer{Err: ingest.Refuse(404, ingest.CauseTypeUnknown, "unknown")}
		}
		return ingest.Answer{Stream: "TASKS", Again: tries > 1}
	}
	b.put("is-1", "order", "1")
	b.put("other-2", "order", "2")
	b.put("type-3", "parcel", "3")
	got := b.send("", strings.NewReader(`{"type":"order","id":"is-1","input":1}
{"type":"order","id":"other-2","input":1}
{"type":"order","id":"type-3","input":3}
{"type":"order","id":"away-4","input":1}
{"type":"order","id":"never-5","input":1}
{"type":"order","id":"new-6","input":1}
{"type":"order","id":"new-6","input":1}`))
	want := []string{"existing 0", "refused 409", "refused 409", "failed 503", "refused 404", "stored 0", "existing 0"}
	for i, l := range got.lines {
		code := 0
		if l.Error != nil {
			code = l.Error.Status
		}
		if is := fmt.Sprintf("%s %d", l.Outcome, code); i >= len(want) || is != want[i] || l.Line != int64(i+1) || l.Type != "order" || l.ID == "" {
			t.Errorf("line %d: %+v, want %v", i+1, l, want)
		}
	}
	if got.summary == nil || got.summary.counts() != "7 = 1 2 3 1" || got.summary.Error != nil {
		t.Errorf("%+v", got.summary)
	}
	if got.lines[0].State != core.StateProcessing || b.door.tried("is-1") != 0 {
		t.Errorf("%+v, handed in %d times", got.lines[0], b.door.tried("is-1"))
	}
	b.err = errors.New("the store is away") // no line waits for it
	if got := b.send("", strings.NewReader(bulkText(0, 3))); got.summary == nil || got.summary.Stored != 3 {
		t.Errorf("%+v", got.summary)
	}
}

// TestBulkWaitsForRoom: a real door that is full much of the time makes lines wait, and none fail.
func TestBulkWaitsForRoom(t *testing.T) {
	plan := core.Plan{Name: "order", Version: 1, InputMax: 1000}
	door, err := ingest.NewDoor(ingest.Config{StreamOf: func(int) string { return "" }, Partitions: 16, PartitionOf: byDigit, ItemsMax: 8}, &onePlan{plan}, stored{})
	if err != nil {
		t.Fatal(err)
	}
	in := serveDoor(t, door)
	b := newBulkSite(t, func(c *Config) { c.BulkInFlight = 64 }, in, nil, false)
	const n = 100
	got := b.send("", strings.NewReader(bulkText(0, n)))
	if got.summary == nil || got.summary.counts() != fmt.Sprintf("%d = %d 0 0 0", n, n) {
		t.Fatalf("%+v", got.summary)
	}
	if stats := in.Stats(); stats.Outcomes()["door_full"] == 0 {
		t.Error("the door was never full: nothing is tested")
	}
	for i, l := range got.lines {
		if l.Line != int64(i+1) || l.ID != fmt.Sprintf("b-%d", i) {
			t.Fatalf("answer %d is %+v", i, l)
		}
	}
}

// TestBulkFailsAfterItsWait: a line that finds no room in time failed, and says when to come again; the others pass.
func TestBulkFailsAfterItsWait(t *testing.T) {
	b := newBulkSite(t, func(c *Config) { c.BulkWait = 300 * time.Millisecond }, nil, nil, false)
	b.door.answer = func(r ingest.Request, _ int) ingest.Answer {
		if r.ID == "b-2" {
			return ingest.Answer{Err: ingest.Refuse(429, ingest.CauseFull, "full").After(10 * time.Millisecond)}
		}
		return ingest.Answer{}
	}
	got := b.send("", strings.NewReader(bulkText(0, 5)))
	if got.summary == nil || got.summary.counts() != "5 = 4 0 0 1" || got.lines[2].Outcome != lineFailed || got.lines[2].Error.RetryMS != 10 {
		t.Errorf("%+v %+v", got.summary, got.lines)
	}
	if n := b.door.tried("b-2"); n < 2 || b.door.tried("b-3") != 1 {
		t.Errorf("handed in %d times", n)
	}
}

// TestBulkBounds: what is over a limit is said with it, and where to go on; from goes on there.
func TestBulkBounds(t *testing.T) {
	line := len(bulkText(1, 1))
	for name, test := range map[string]struct {
		change    func(*Config)
		query     string
		lines     int64
		next      int64
		says      string
		firstLine int64
	}{
		"lines":         {func(c *Config) { c.BulkLines = 4 }, "", 4, 5, "more than 4 lines", 1},
		"lines, from 3": {func(c *Config) { c.BulkLines = 4 }, "?from=3", 4, 7, "more than 4 lines", 3},
		"lines, all":    {func(c *Config) { c.BulkLines = 9 }, "", 9, 0, "", 1},
		"bytes":         {func(c *Config) { c.BulkBytes = int64(3*line + 5) }, "", 3, 4, fmt.Sprintf("more than %d bytes", 3*line+5), 1},
		"bytes, all":    {func(c *Config) { c.BulkBytes = int64(9 * line) }, "", 9, 0, "", 1},
		"from 8":        {nil, "?from=8", 2, 0, "", 8},
		"from beyond":   {nil, "?from=88", 0, 0, "", 0},
	} {
		b := newBulkSite(t, test.change, nil, nil, false)
		got := b.send(test.query, strings.NewReader(bulkText(1, 9)))
		if got.summary == nil || got.summary.Lines != test.lines || got.summary.Next != test.next || (got.summary.Error != nil) != (test.says != "") {
			t.Errorf("%s: %+v", name, got.summary)
			continue
		}
		if test.says != "" && (got.summary.Error.Status != 413 || !strings.Contains(got.summary.Error.Detail, test.says)) {
			t.Errorf("%s: %+v", name, got.summary.Error)
		}
		if len(got.lines) > 0 && (got.lines[0].Line != test.firstLine || got.lines[0].ID != fmt.Sprintf("b-%d", test.firstLine)) {
			t.Errorf("%s: begins with %+v", name, got.lines[0])
		}
	}
	b := newBulkSite(t, func(c *Config) { c.BulkLineBytes = line - 1; c.BulkRequests = 1 }, nil, nil, false)
	long := `{"type":"order","id":"long","input":"` + strings.Repeat("x", 100_000) + `"}` + "\n"
	got := b.send("", strings.NewReader(bulkText(1, 1)+long+bulkText(2, 1)))
	if got.summary == nil || got.summary.counts() != "3 = 2 0 1 0" || !strings.Contains(got.lines[1].Error.Detail, fmt.Sprintf("line 2 has more than %d bytes", line-1)) {
		t.Errorf("%+v %+v", got.summary, got.lines)
	}
	for query, says := range map[string]string{"?from=0": `from is "0"`, "?from=x": `from is "x"`, "?from=": ""} {
		resp := b.open(query, strings.NewReader(""))
		data, err := io.ReadAll(resp.Body)
		if bad := says != ""; err != nil || (resp.StatusCode == 400) != bad || bad && !strings.Contains(strings.ReplaceAll(string(data), `\`, ""), says) {
			t.Errorf("%s: %d %s %v", query, resp.StatusCode, data, err)
		}
	}
	reader, writer := io.Pipe()
	defer writer.Close()
	b.open("", reader)
	if resp := b.open("", strings.NewReader("")); resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a second one: %d", resp.StatusCode)
	}
}

// TestBulkClientThatReadsLast: one that takes no answer before it has sent everything is served all the same, by either
// version of HTTP; one that takes none for long is not read from any more, and goes on when it takes them.
func TestBulkClientThatReadsLast(t *testing.T) {
	const n = 100_000
	// Over HTTP/2 the server of the library grants no more of the body behind an answer that is not taken.
	for query, http2 := range map[string]bool{"": false, "?answers=last": false, "?answers=last&from=1": true} {
		t.Run(fmt.Sprintf("HTTP/2 %v %s", http2, query), func(t *testing.T) {
			b := newBulkSite(t, nil, nil, func(a *api) { a.bulkIdle = bulkPatience }, http2)
			reader, writer := io.Pipe()
			resp := b.open(query, reader)
			if resp.ProtoMajor == 2 != http2 {
				t.Fatalf("protocol %s", resp.Proto)
			}
			if _, err := io.WriteString(writer, bulkText(0, n)); err != nil {
				t.Fatal(err)
			}
			writer.Close()
			got := readAnswers(t, resp.Body)
			if got.summary == nil || got.summary.Stored != n || len(got.lines) != n {
				t.Errorf("%d answers, %+v", len(got.lines), got.summary)
			}
		})
	}
	t.Run("without room", func(t *testing.T) {
		b := newBulkSite(t, func(c *Config) { c.BulkHeldBytes = 1 }, nil, nil, true)
		reader, writer := io.Pipe()
		resp := b.open("", reader)
		sent := make(chan error, 1)
		go func() {
			_, err := io.WriteString(writer, bulkText(0, n))
			writer.Close()
			sent <- err
		}()
		before, same := -1, 0
		for same < 25 { // it does not grow for half a second
			tick := time.NewTimer(20 * time.Millisecond)
			<-tick.C
			if now := b.door.tried(""); now == before {
				same++
			} else {
				before, same = now, 0
			}
		}
		select {
		case err := <-sent:
			t.Errorf("all was taken from a client that takes nothing: %d lines, %v", before, err)
		default:
		}
		got := readAnswers(t, resp.Body)
		if err := <-sent; err != nil || got.summary == nil || got.summary.Stored != n {
			t.Errorf("%d answers, %+v, %v", len(got.lines), got.summary, err)
		}
	})
}

// TestBulkLetsGo: a client that sends nothing for long is told so with where to go on; one that takes nothing is cut off.
func TestBulkLetsGo(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			b := newBulkSite(t, func(c *Config) { c.BulkHeldBytes = 1 }, nil, func(a *api) { a.bulkIdle = 500 * time.Millisecond }, http2)
			reader, writer := io.Pipe()
			resp := b.open("", reader)
			go func() { _, _ = io.WriteString(writer, bulkText(1, 3)+`{"type":"or`) }()
			got := readAnswers(t, resp.Body)
			if got.summary == nil || got.summary.Stored != 3 || got.summary.Next != 4 || got.summary.Error == nil || got.summary.Error.Status != 408 {
				t.Errorf("%+v", got.summary)
			}
			writer.Close()
			// Nothing is read: when the room is full, the writing ends with an error.
			reader, writer = io.Pipe()
			b.open("", reader)
			if _, err := io.WriteString(writer, bulkText(0, 1_000_000)); err == nil {
				t.Error("a client that takes nothing could send everything")
			}
		})
	}
}

// TestBulkCutOff: of a connection that is cut in a line the half of it is not handed in.
func TestBulkCutOff(t *testing.T) {
	b := newBulkSite(t, nil, nil, nil, false)
	conn, err := net.Dial("tcp", b.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// A whole object without its end of line: what follows is not known.
	body := bulkText(0, 2) + strings.TrimSuffix(bulkText(2, 1), "\n")
	fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", bulkKind, len(body)+100, body)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(conn)
	conn.Close()
	if err != nil || !bytes.Contains(data, []byte(`"line":2`)) || bytes.Contains(data, []byte(`"line":3`)) || !bytes.Contains(data, []byte(`"next":3`)) {
		t.Errorf("%s %v", data, err)
	}
	if n := b.door.tried(""); n != 2 {
		t.Errorf("%d lines were handed in", n)
	}
}

// TestBulkOfAServerThatStops: what was read is answered, and the rest is sent to another.
func TestBulkOfAServerThatStops(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			closing := make(chan struct{})
			var handed atomic.Int64
			b := newBulkSite(t, func(c *Config) { c.Closing = closing }, nil, nil, http2)
			b.door.answer = func(r ingest.Request, _ int) ingest.Answer {
				if handed.Add(1); r.ID == "b-2" { // it waits for room until the server stops
					return ingest.Answer{Err: ingest.Refuse(429, ingest.CauseFull, "full").After(time.Minute)}
				}
				return ingest.Answer{}
			}
			reader, writer := io.Pipe()
			defer writer.Close()
			resp := b.open("", reader)
			if _, err := io.WriteString(writer, bulkText(1, 5)); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(bulkPatience); handed.Load() < 5; {
				if time.Now().After(deadline) {
					t.Fatal("not all were handed in")
				}
				<-time.After(time.Millisecond)
			}
			close(closing)
			got := readAnswers(t, resp.Body)
			if got.summary == nil || got.summary.counts() != "5 = 4 0 0 1" || got.summary.Next != 6 || got.summary.Error.Status != 503 {
				t.Errorf("%+v", got.summary)
			}
		})
	}
}

// TestBulkEndsWithItsToken: a client that goes on sending is let go when its token has ended.
//
// covers: P8
func TestBulkEndsWithItsToken(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			b := newBulkSite(t, nil, nil, nil, http2)
			reader, writer := io.Pipe()
			defer writer.Close()
			resp := b.open("", reader)
			if _, err := io.WriteString(writer, bulkText(1, 1)); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(resp.Body)
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			b.end(operate.ErrEnded)
			if rest, _ := io.ReadAll(lines); strings.Contains(string(rest), "summary") {
				t.Errorf("it came to its end: %s", rest)
			}
		})
	}
}

// TestBulkOfOneActor: one actor reads in half of all at most, however many it begins.
//
// covers: P14
func TestBulkOfOneActor(t *testing.T) {
	b := newBulkSite(t, func(c *Config) { c.BulkRequests = 4 }, nil, nil, false)
	var writers []io.Closer
	defer func() {
		for _, w := range writers {
			w.Close()
		}
	}()
	for i := range 3 {
		reader, writer := io.Pipe()
		var body io.Reader = reader
		if i == 2 { // a refused one is answered when its body has come
			body = strings.NewReader("")
		}
		if resp := b.open("", body); resp.StatusCode != map[bool]int{true: 200, false: 429}[i < 2] {
			t.Errorf("bulk submission %d: %d", i+1, resp.StatusCode)
		}
		writers = append(writers, writer)
	}
}

// TestLineOfATaskSaysItsState: where the door has looked, a line is told the task's state, as a single submission is.
func TestLineOfATaskSaysItsState(t *testing.T) {
	for _, x := range []struct {
		got  ingest.Answer
		want core.State
	}{
		{ingest.Answer{Task: "o-1"}, core.StatePending},
		{ingest.Answer{Task: "o-1", Again: true}, core.StatePending},
		{ingest.Answer{Task: "o-1", Again: true, State: core.StateProcessed}, core.StateProcessed},
	} {
		if a := accepted(&bulkLine{got: &x.got}); a.State != x.want {
			t.Errorf("%+v is answered %s, want %s", x.got, a.State, x.want)
		}
	}
}
