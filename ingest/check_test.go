package ingest

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

func jsonOf(size int) []byte { return []byte(`"` + strings.Repeat("x", size-2) + `"`) }

func TestBadInput(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	hostile := []string{
		"", ".", "..", "a.b", "a b", "a/b", "../x", "*", ">", "$x", "a\x00b", "a\nb", "é", "日本", "\xff\xfe",
		"a%00", "<script>", "'; DROP TABLE tasks;--", strings.Repeat("x", 65), strings.Repeat("x", 1<<20),
	}
	var tests []badInput
	for _, name := range hostile {
		cut := name[:min(len(name), 8)]
		tests = append(tests,
			badInput{"id " + cut, func(r *Request) { r.ID = name }, 400, CauseIDName, []string{"id "}},
			badInput{"type " + cut, func(r *Request) { r.Type = name }, 400, CauseTypeName, []string{"type "}})
	}
	input := func(what string, value []byte, code, cause int, want ...string) badInput {
		return badInput{"input " + what, func(r *Request) { r.Input = value }, code, cause, want}
	}
	by := func(value string, cause int, want ...string) badInput {
		code := 400
		if cause == 0 {
			code = 0
		}
		return badInput{"complete-by " + value[:min(len(value), 24)], func(r *Request) { r.CompleteBy = value }, code, cause, want}
	}
	start := func(value, by string, cause int, want ...string) badInput {
		code := 400
		if cause == 0 {
			code = 0
		}
		return badInput{"start-at " + value[:min(len(value), 24)], func(r *Request) { r.StartAt, r.CompleteBy = value, by }, code, cause, want}
	}
	labels := func(value string, code int, want ...string) badInput {
		cause := CauseLabels
		if code == 0 {
			cause = 0
		}
		return badInput{"labels " + value[:min(len(value), 24)], func(r *Request) { r.Labels = value }, code, cause, want}
	}
	tests = append(tests,
		labels("a=b", 0), labels("a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8", 0), labels("a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=9", 400, "8"),
		labels("a", 400, "key=value"), labels("a=b,a=c", 400, "key a", "twice"), labels("a.b=c", 400, "key", `"a.b"`), labels("a="+strings.Repeat("v", 65), 400, "65 bytes", "1 to 64"),
		input("at the plan's limit", jsonOf(1000), 0, 0),
		input("over the plan's limit", jsonOf(1001), 413, CauseInputSize, "1001 bytes", "limit is 1000", `"order"`),
		input("over every limit", jsonOf(core.InputBytesMax+1), 413, CauseInputSize, "262145 bytes", "limit is 262144"),
		input("absurd", jsonOf(10<<20), 413, CauseInputSize, "10485760 bytes"),
		input("nil", nil, 400, causeInputJSON, "empty"),
		input("empty", []byte{}, 400, causeInputJSON, "empty"),
		input("blank", []byte("  "), 400, causeInputJSON, "not JSON"),
		input("half", []byte(`{"a":`), 400, causeInputJSON, "byte 5 of 5"),
		input("two values", []byte(`{} {}`), 400, causeInputJSON, "byte 4 of 5"),
		input("text", []byte(`hello`), 400, causeInputJSON, "byte 1 of 5"),
		input("raw NUL", []byte("{\"a\":\"\x00\"}"), 400, causeInputText, "NUL at byte 7"),
		input("escaped NUL", []byte(`{"a":"\u0000"}`), 400, causeInputText, "NUL", "byte 7"),
		input("escaped NUL behind a backslash", []byte(`["\\\u0000"]`), 400, causeInputText, "byte 5"),
		input("an escaped backslash and u0000", []byte(`["\\u0000"]`), 0, 0),
		input("not UTF-8", []byte("[\"\xff\"]"), 400, causeInputText, "not UTF-8: byte 3"),
		input("deep", bytes.Repeat([]byte("["), 1000), 400, causeInputJSON, "not JSON"),
		input("a number", []byte(`0`), 0, 0),
		input("null", []byte(`null`), 0, 0),
		by("1us", 0), by("30s", 0), by("8760h", 0), by("2023-11-14T22:13:20.000001Z", 0), by("2024-11-13T22:13:20Z", 0),
		by("2023-11-15T00:13:21+02:00", 0),
		start("2h", "", 0), start("0s", "", 0), start("2001-01-01T00:00:00Z", "", 0), start("8760h", "", 0), start("2h", "2h1s", 0),
		start("-2h", "", causeStartAtForm, `"-2h"`), start("tomorrow", "", causeStartAtForm, "a delay such as 2h"), start("10s\x00", "", causeStartAtForm),
		start(strings.Repeat("9", 1<<20), "", causeStartAtForm, "…"),
		start("8760h0m0.000001s", "", causeStartAtFar, "8760h0m0s"), start("9999-12-31T23:59:59Z", "", causeStartAtFar),
		start("2h", "2h", causeStartAtAfter, "is not after it"), start("2024-01-01T00:00:00Z", "30s", causeStartAtAfter, "2023-11-14T22:13:50.000000Z"),
		by("0", causeCompleteByPast, `"0"`, "2023-11-14T22:13:20.000000Z"),
		by("0s", causeCompleteByPast), by("-1s", causeCompleteByPast), by("1ns", causeCompleteByPast),
		by("2023-11-14T22:13:20Z", causeCompleteByPast, "2023-11-14T22:13:20.000000Z"),
		by("0001-01-01T00:00:00Z", causeCompleteByPast),
		by("8760h0m0.000001s", causeCompleteByFar, "8760h0m0s"), by("2024-11-13T22:13:20.000001Z", causeCompleteByFar),
		by("9999-12-31T23:59:59Z", causeCompleteByFar), by("2540400h10m10s", causeCompleteByFar),
		by("99999999h", causeCompleteByForm), by("tomorrow", causeCompleteByForm, `"tomorrow"`), by("30", causeCompleteByForm),
		by("2023-11-14", causeCompleteByForm), by("10s\x00", causeCompleteByForm), by("\xff", causeCompleteByForm),
		by(strings.Repeat("9", 1<<20), causeCompleteByForm, "…"),
		badInput{"reply-to allowed", func(r *Request) { r.ReplyTo = "_INBOX.x" }, 0, 0, nil},
		badInput{"reply-to refused", func(r *Request) { r.ReplyTo = "$SYS.x" }, 400, causeReplyTo, []string{`reply-to "$SYS.x"`, "not allowed"}},
		badInput{"reply-to absurd", func(r *Request) { r.ReplyTo = strings.Repeat("d", 1<<20) }, 400, causeReplyTo, []string{"…"}},
		badInput{"trace", func(r *Request) { r.Trace = trace }, 0, 0, nil},
		badInput{"bad trace", func(r *Request) { r.Trace = "no" }, 0, 0, nil},
	)
	for _, tt := range tests {
		t.Run(tt.name, tt.run)
	}
}

type badInput struct {
	name        string
	change      func(*Request)
	code, cause int // 0: accepted
	want        []string
}

func (tt badInput) run(t *testing.T) {
	r := newRig(t, nil)
	var got []Answer
	req := Request{Form: submit.Form{Type: "order", ID: "x1", Input: []byte(`{}`)}, Answer: func(a Answer) { got = append(got, a) }}
	tt.change(&req)
	r.door.Submit(epoch, req)
	r.door.Flush(epoch)
	if tt.code == 0 {
		if len(got) != 0 || len(r.log.got) != 1 {
			t.Fatalf("%v, %d messages; want it in the stream", got, len(r.log.got))
		}
		return
	}
	if len(got) != 1 || got[0].Err == nil || len(r.log.got) != 0 {
		t.Fatalf("%v, %d messages; want one refusal", got, len(r.log.got))
	}
	refusal := got[0].Err
	if refusal.Code != tt.code || refusal.ErrCode != tt.cause || refusal.Retryable() {
		t.Fatalf("code %d cause %d retryable %v: %s; want code %d cause %d", refusal.Code, refusal.ErrCode, refusal.Retryable(), refusal, tt.code, tt.cause)
	}
	for _, part := range tt.want {
		if !strings.Contains(refusal.Description, part) {
			t.Errorf("%q does not contain %q", refusal.Description, part)
		}
	}
	if len(refusal.Description) > descriptionBytesMax+len("…") || strings.Contains(refusal.Description, "\x00") || !utf8.ValidString(refusal.Description) {
		t.Errorf("description of %d bytes: %q", len(refusal.Description), refusal.Description)
	}
	if r.door.Stats(epoch).Refused[tt.cause] != 1 {
		t.Errorf("counts %v, want one of cause %d", r.door.Stats(epoch).Refused, tt.cause)
	}
	r.idle()
}

func TestSubmissionIsFilled(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r := newRig(t, nil)
	r.door.Submit(epoch, Request{Form: submit.Form{Type: "order", ID: "x1", Input: []byte(`[1]`), CompleteBy: "90s", StartAt: "30s", ReplyTo: "_INBOX.a", Trace: trace, Labels: "a=b, c=d"}})
	r.door.Flush(epoch)
	got := r.log.got[0].subs[0]
	if got.Type != "order" || got.ID != "x1" || got.PlanVersion != 3 || string(got.Input) != `[1]` || got.CompleteBy != epoch.Add(90*time.Second) || got.StartAt != epoch.Add(30*time.Second) ||
		got.ReplyTo != "_INBOX.a" || got.Trace != trace || core.FormatLabels(got.Labels) != "a=b,c=d" || got.At != epoch || r.log.got[0].partition != 1 {
		t.Errorf("partition %d: %+v", r.log.got[0].partition, got)
	}
	r.log.store(0)
	r.door.Flush(epoch) // the request wants no answer: accepted but unconfirmed
	r.idle()
}

func TestBadTraceIsDropped(t *testing.T) {
	r := newRig(t, nil)
	r.door.Submit(epoch, Request{Form: submit.Form{Type: "order", ID: "x1", Input: []byte(`1`), Trace: "bad"}})
	r.door.Flush(epoch)
	if got := r.log.got[0].subs[0].Trace; got != "" || r.door.Stats(epoch).TracesDropped != 1 {
		t.Errorf("trace %q, %d dropped: a bad one is dropped, the task is not", got, r.door.Stats(epoch).TracesDropped)
	}
}

func TestPayloadMax(t *testing.T) {
	r := newRig(t, func(c *Config) { c.PayloadMax = 500 })
	for _, tt := range []struct {
		id   string
		size int
		code int
	}{{"fits-1", 300, 0}, {"large-1", 900, 413}} {
		req := r.request(tt.id)
		req.Input = jsonOf(tt.size)
		r.door.Submit(epoch, req)
		if tt.code != 0 {
			if e := r.refused(tt.id, tt.code, CauseInputSize); !strings.Contains(e.Description, "max_payload is 500") {
				t.Error(e)
			}
		}
	}
	r.door.Flush(epoch)
	if len(r.log.got) != 1 || r.log.got[0].ids[0] != "fits-1" {
		t.Errorf("messages %+v", r.log.got)
	}
}

func TestReplyToNotConfigured(t *testing.T) {
	r := newRig(t, func(c *Config) { c.CheckReplyTo = nil })
	req := r.request("x1")
	req.ReplyTo = "_INBOX.x"
	r.door.Submit(epoch, req)
	r.refused("x1", 400, causeReplyTo)
}

func TestConfigRefused(t *testing.T) {
	good := Config{StreamOf: oneStream, Partitions: 1, PartitionOf: byDigit}
	for name, change := range map[string]func(*Config){
		"Partitions": func(c *Config) { c.Partitions = 0 }, "PartitionOf": func(c *Config) { c.PartitionOf = nil },
		"PackItems": func(c *Config) { c.PackItems = -1 }, "ItemsMax": func(c *Config) { c.ItemsMax = -1 },
		"PublishMax": func(c *Config) { c.PublishMax = -1 },
	} {
		cfg := good
		change(&cfg)
		if _, err := NewDoor(cfg, plans(), &memLog{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := NewDoor(good, nil, nil); err == nil {
		t.Error("no error without ports")
	}
}
