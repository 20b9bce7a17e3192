package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

// Every decoder reads what any client may send. None may panic, and what one accepts
// must survive its encoder.

func FuzzDecodePack(f *testing.F) {
	f.Add(AppendPack(nil, goldenPack))
	f.Add(AppendPack(nil, goldenPack[1:]))
	f.Add([]byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Add([]byte{})
	small, _ := AppendCompressedPack(nil, AppendPack(nil, manyOrders(30)))
	f.Add(small)
	f.Fuzz(func(t *testing.T, data []byte) {
		subs, err := decodePack(data)
		if err != nil {
			if !isUndecodable(err) {
				t.Fatalf("error %v does not wrap ErrUndecodable", err)
			}
			return
		}
		again, err := decodePack(AppendPack(nil, subs))
		if err != nil || !reflect.DeepEqual(again, subs) {
			t.Fatalf("%+v became %+v, %v", subs, again, err)
		}
	})
}

func FuzzTaskDecoder(f *testing.F) {
	f.Add("duly.tasks.7.pack", AppendPack(nil, goldenPack), "", "")
	f.Add("duly.tasks.7.order.o-1", []byte(`{"a":1}`), "10s", "_INBOX.a")
	f.Add("duly.tasks.7.order.o-1", []byte(`{"a":`), "2026-01-02T03:04:06Z", "duly.do.x")
	f.Add("duly.tasks.x.order.o-1", []byte(`1`), "-1s", "$SYS.a")
	f.Fuzz(func(t *testing.T, subject string, data []byte, completeBy, replyTo string) {
		header := Header{HeaderCompleteBy: {completeBy}, HeaderReplyTo: {replyTo}}
		got, err := TaskDecoder{Partitions: 16}.Decode(subject, header, data, at)
		if err != nil && !isUndecodable(err) {
			t.Fatalf("error %v does not wrap ErrUndecodable", err)
		}
		if err == nil && len(got.Submissions)+len(got.Refused) == 0 {
			t.Fatal("neither a submission nor a refusal nor an error")
		}
		for _, s := range got.Submissions {
			if core.CheckName("id", s.ID) != nil || core.CheckName("type", s.Type) != nil || len(s.Input) > core.InputBytesMax {
				t.Fatalf("let through: %+v", s)
			}
			if s.ReplyTo != "" && safeSubject(s.ReplyTo) != nil {
				t.Fatalf("let through: reply to %q", s.ReplyTo)
			}
		}
		for i := range got.Refused {
			if b := AppendStatus(nil, &got.Refused[i]); !json.Valid(b) {
				t.Fatalf("refusal is not JSON: %s", b)
			}
		}
	})
}

func FuzzDecodeCommand(f *testing.F) {
	f.Add([]byte(goldenCommandJSON))
	f.Add([]byte(`{"v":1,"task":"a","type":"b","step":"c","results":{"x":"}\\\"{"},"\u0076":2}`))
	f.Add([]byte(`{"v":1,"results":{`))
	f.Add([]byte(`{"v":1,"task":"a","type":"b","step":"c","input":[{"x":"]"}],"result":tru}`))
	f.Add([]byte(`{"`))
	f.Add([]byte(`{"\`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := DecodeCommand(data)
		if err != nil {
			if !isUndecodable(err) {
				t.Fatalf("error %v does not wrap ErrUndecodable", err)
			}
			return
		}
		if !json.Valid(data) {
			return // cut out by its brackets only; nothing to hold it to
		}
		for _, raw := range [][]byte{c.Input, c.Result} {
			if len(raw) > 0 && !json.Valid(raw) {
				t.Fatalf("cut out %q, which is not JSON", raw)
			}
		}
		if c.CompleteBy.Time().Year() < 0 || c.CompleteBy.Time().Year() > 9999 {
			return // no encoder writes it
		}
		for i := range c.Results {
			if core.CheckName("step", c.Results[i].Step) != nil {
				return // no encoder of ours escapes a name; it stays as written
			}
		}
		c.Undo = true
		encoded := AppendCommand(nil, &c)
		again, err := DecodeCommand(encoded)
		again.Undo = true
		if c.Input == nil {
			c.Input = []byte("null")
		}
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%+v became %+v, %v", c, again, err)
		}
	})
}

// FuzzEachMember holds our cutting of objects against the library's.
func FuzzEachMember(f *testing.F) {
	f.Add([]byte(` {"a" : 1 , "b":[{"]":"}"}],"c":"\\\"","d":{} } `))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"a":1,}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got := map[string]string{}
		ok := eachMember(data, func(name, value []byte) bool {
			var s string
			if json.Unmarshal([]byte(`"`+string(name)+`"`), &s) == nil {
				got[s] = string(value)
			}
			return true
		})
		var want map[string]json.RawMessage
		if json.Unmarshal(data, &want) != nil || want == nil {
			return // ours may pass what is no JSON inside
		}
		if !ok || len(got) != len(want) {
			t.Fatalf("%s: %v, %v, want %v", data, got, ok, want)
		}
		for name, value := range want {
			if got[name] != string(value) {
				t.Fatalf("%s: %q is %s, want %s", data, name, got[name], value)
			}
		}
	})
}

// FuzzInstant holds our own writing of times against the library's.
func FuzzInstant(f *testing.F) {
	f.Add(int64(at))
	f.Add(int64(0))
	f.Add(int64(-62135596800000001))
	f.Add(int64(253402300800000000))
	f.Fuzz(func(t *testing.T, micros int64) {
		i := core.Instant(micros)
		if got, want := string(appendInstant(nil, i)), i.Time().Format(timeLayout); got != want {
			t.Fatalf("%d: %s, want %s", micros, got, want)
		}
	})
}

func FuzzDecodeReply(f *testing.F) {
	f.Add("duly.reply.3.17.5", []byte(`{"a":1}`), "", "")
	f.Add("duly.reply.3.17.5.mac", []byte(`x`), "no", "422")
	f.Add("duly.reply.3.17", []byte{}, "", "")
	f.Fuzz(func(t *testing.T, subject string, data []byte, text, code string) {
		r, err := DecodeReply(subject, Header{HeaderError: {text}, HeaderErrorCode: {code}}, data, 64)
		if err != nil {
			return
		}
		if (r.Code == 0) != (len(r.Result) > 0) {
			t.Fatalf("neither success nor failure: %+v", r)
		}
		if len(r.Result) > 0 && quickjson.Check("result", r.Result) != nil || len(r.Error) > core.ErrorBytesMax {
			t.Fatalf("let through: %+v", r)
		}
		if p := ReplySubject(r.Partition, r.Number, r.Seq); len(subject) < len(p) || subject[:len(p)] != p {
			t.Fatalf("%s read as %s", subject, p)
		}
	})
}

func FuzzDecodeControl(f *testing.F) {
	f.Add([]byte(`{"v":1,"kind":"overdue","numbers":[4,5]}`))
	f.Add([]byte(`{"v":1,"kind":"resubmit","id":"o-1","step":"charge","until":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"v":1,"kind":"cancel","id":"o-1","type":"order","actor":"\ud800"}`))
	f.Add([]byte(`{"v":1,"kind":"edit","numbers":[4,5],"seqs":[1,2],"input":{"a": [1]}}`))
	f.Add([]byte(`{"v":1,"kind":"accept","id":"o-1","if_seq":4,"result":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := DecodeControl(data)
		if err != nil {
			if !isUndecodable(err) {
				t.Fatalf("error %v does not wrap ErrUndecodable", err)
			}
			return
		}
		again, err := DecodeControl(AppendControl(nil, &c))
		if len(c.Numbers) == 0 {
			c.Numbers = nil
		}
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%+v became %+v, %v", c, again, err)
		}
	})
}

func FuzzDecodeEndings(f *testing.F) {
	f.Add([]byte(`{"v":1,"type":"order","status":"processed","events":[{"id":"o-1","partition":3,"end":7,"seq":6,"created_at":"2026-01-02T03:04:05Z","at":"2026-01-02T03:04:05Z"}]}`))
	f.Add([]byte(`{"v":1,"id":"o-1","type":"order","status":"undone","partition":3,"end":9,"seq":12,"step":"charge","error":"card"}`))
	f.Add([]byte(`{"v":1,"status":"processed","events":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := DecodeStatus(data); err != nil && !isUndecodable(err) {
			t.Fatalf("error %v does not wrap ErrUndecodable", err)
		}
		endings, err := DecodeEndings(data)
		if err != nil && !isUndecodable(err) {
			t.Fatalf("error %v does not wrap ErrUndecodable", err)
		}
		for i := range endings {
			if b := AppendEnding(nil, &endings[i]); !json.Valid(b) {
				t.Fatalf("ending is not JSON: %s", b)
			}
		}
	})
}

func FuzzDecodePlan(f *testing.F) {
	f.Add([]byte(goldenPlanJSON))
	f.Add([]byte(`{"name":"x","version":1,"complete_by_ms":9223372036854775807,"steps":[{"name":"a","agent":"b","undoable":true}]}`))
	f.Add([]byte(`{"steps":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodePlan(data)
		if err != nil {
			return
		}
		first, err := EncodePlan(&p)
		if err != nil {
			t.Fatalf("%+v does not encode: %v", p, err)
		}
		full := p.WithDefaults()
		if full.Validate(0) != nil {
			return // names may repeat, so after need not survive
		}
		again, err := DecodePlan(first)
		if err != nil {
			t.Fatalf("%s does not decode: %v", first, err)
		}
		if second, err := EncodePlan(&again); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%s became %s, %v", first, second, err)
		}
	})
}

func FuzzDecodeAnswers(f *testing.F) {
	f.Add([]byte(`{"stream":"DULY_TASKS","seq":77,"task":"o-1","partition":3}`))
	f.Add([]byte(`{"error":{"code":429,"err_code":10077,"description":"full"},"task":"o-1","retry_ms":-9223372036854775808}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := DecodeSubmitAnswer(data)
		if err == nil && (a.Stream == "" || a.Seq == 0) {
			t.Fatalf("let through: %+v", a)
		}
		if _, err := DecodePlanAnswer(data); err != nil {
			_ = err.Error()
		}
	})
}

func FuzzSubjects(f *testing.F) {
	f.Add("duly.submit.order.o-1")
	f.Add("duly.reply.1.2.3")
	f.Add("p07-e1-2")
	f.Add("status.a..b")
	f.Fuzz(func(t *testing.T, s string) {
		if taskType, id, err := ParseSubmit(s); err == nil && SubmitSubject(taskType, id) != s {
			t.Fatalf("%q read as %s %s", s, taskType, id)
		}
		if p, ok := ParsePack(s); ok && p < 0 {
			t.Fatalf("%q read as partition %d", s, p)
		}
		if p, e, n, ok := ParseConsumer(s); ok && (p < 0 || e < 0 || n < 0) {
			t.Fatalf("%q read as %d %d %d", s, p, e, n)
		}
		if CheckReplyTo(s, []string{""}) == nil {
			if len(s) > replyToBytesMax || bytes.ContainsAny([]byte(s), " *>\r\n\x00") || s[0] == '$' {
				t.Fatalf("let through: reply to %q", s)
			}
		}
		if by, err := core.ParseCompleteBy(s, at, at); err == nil && by != 0 && by <= at {
			t.Fatalf("%q read as %v", s, by.Time())
		}
		var back string
		if err := json.Unmarshal(appendString(nil, s), &back); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if text := CutText(s); len(text) > core.ErrorBytesMax || !bytes.Equal([]byte(text), bytes.ToValidUTF8([]byte(text), nil)) {
			t.Fatalf("cut to %q", text)
		}
	})
}
