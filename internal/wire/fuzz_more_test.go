package wire

import (
	"errors"
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
)

// writable holds for a time that our encoder can write: a year of four digits.
func writable(at core.Instant) bool { y := at.Time().Year(); return at == 0 || y >= 0 && y <= 9999 }

// FuzzDecodeStatus: what a watcher reads survives the encoder.
func FuzzDecodeStatus(f *testing.F) {
	f.Add([]byte(`{"v":1,"id":"o-1","type":"order","status":"refused","error":"no","code":409,"at":"2026-01-02T03:04:05.000678Z"}`))
	f.Add([]byte(`{"v":1,"id":"\u0000","status":"\ud800"}`))
	f.Add([]byte(`{"v":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := DecodeStatus(data)
		if err != nil {
			if !isUndecodable(err) {
				t.Fatalf("error %v does not wrap ErrUndecodable", err)
			}
			return
		}
		if !writable(s.At) {
			return
		}
		again, err := DecodeStatus(AppendStatus(nil, &s))
		if err != nil || again != s {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}

// FuzzEndings: a message of the event stream survives the encoder.
func FuzzEndings(f *testing.F) {
	f.Add([]byte(`{"v":1,"type":"order","status":"processed","events":[{"id":"o-1","partition":3,"end":7,"seq":6,"created_at":"2026-01-02T03:04:05Z","at":"2026-01-02T03:04:05Z"}]}`))
	f.Add([]byte(`{"v":1,"id":"o-1","type":"order","status":"undone","partition":-3,"end":-9,"seq":12,"step":"charge","error":"\u0001"}`))
	f.Add([]byte(`{"v":1,"status":"processed","events":[{"events":[{}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		endings, err := DecodeEndings(data)
		if err != nil || len(endings) == 0 {
			return
		}
		for i := range endings {
			if !writable(endings[i].At) || !writable(endings[i].CreatedAt) {
				return
			}
			again, err := DecodeEndings(AppendEnding(nil, &endings[i]))
			if err != nil || len(again) != 1 || again[0] != endings[i] {
				t.Fatalf("%+v became %+v, %v", endings[i], again, err)
			}
		}
		again, err := DecodeEndings(appendEvents(nil, endings))
		if err != nil || !reflect.DeepEqual(again, endings) {
			t.Fatalf("%+v became %+v, %v", endings, again, err)
		}
	})
}

// FuzzSubmitAnswer: both answers to a submission survive the encoder.
func FuzzSubmitAnswer(f *testing.F) {
	f.Add([]byte(`{"stream":"DULY_TASKS","seq":77,"task":"o-1","partition":3}`))
	f.Add([]byte(`{"error":{"code":429,"err_code":10077,"description":"full"},"task":"o-1","retry_ms":250}`))
	f.Add([]byte(`{"error":{"code":-1,"err_code":99999},"retry_ms":-9223372036854775808}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := DecodeSubmitAnswer(data)
		var refused *RefusedError
		if err == nil {
			again, err := DecodeSubmitAnswer(AppendAccepted(nil, &a))
			if err != nil || again != a {
				t.Fatalf("%+v became %+v, %v", a, again, err)
			}
			return
		}
		if !errors.As(err, &refused) {
			if !isUndecodable(err) {
				t.Fatalf("error %v does not wrap ErrUndecodable", err)
			}
			return
		}
		if refused.Retry < -core.DurationMax-time.Hour || refused.Retry > core.DurationMax+time.Hour {
			t.Fatalf("retry after %v", refused.Retry)
		}
		if refused.ErrCode < 0 || refused.ErrCode > 1<<16-1 {
			return // written as 16 bits
		}
		refused.Retry = max(0, refused.Retry) // below zero is no hint
		_, err = DecodeSubmitAnswer(AppendRefused(nil, refused))
		var again *RefusedError
		if !errors.As(err, &again) || *again != *refused {
			t.Fatalf("%+v became %+v, %v", refused, again, err)
		}
	})
}

// FuzzAsk: every request is refused, or is one of the five requests about
// one task, by the subject's own word.
func FuzzAsk(f *testing.F) {
	f.Add("duly.ask.cancel", []byte(`{"v":1,"kind":"cancel","id":"o-1"}`))
	f.Add("duly.ask.cancel.order", []byte(`{"v":1,"kind":"cancel","id":"o-1"}`))
	f.Add("duly.ask.overdue", []byte(`{"v":1,"kind":"overdue","numbers":[1]}`))
	f.Add("duly.ask.cancel", []byte(`{"v":1,"kind":"overdue","numbers":[1]}`))
	f.Add("duly.ask.resolve", []byte(`{"v":1,"kind":"resolve","id":"o-1","as":"processed","numbers":[1,2]}`))
	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		c, err := readAsk(subject, data)
		if err != nil {
			if !isUndecodable(err) && !errors.Is(err, errSubject) && !errors.Is(err, errAskKind) {
				t.Fatalf("error %v is of no kind", err)
			}
			return
		}
		if c.Kind == 0 || c.Kind == core.EventOverdue || AskSubject(ControlWord(c.Kind)) != subject && AskTypeSubject(ControlWord(c.Kind), c.Type) != subject || core.CheckName("id", c.ID) != nil {
			t.Fatalf("%q: let through: %+v", subject, c)
		}
		if len(c.Reason) > core.ErrorBytesMax || len(c.Actor) > core.ErrorBytesMax || !utf8.ValidString(c.Reason+c.Actor) {
			t.Fatalf("%d and %d bytes of text", len(c.Reason), len(c.Actor))
		}
	})
}

// FuzzPlanAnswer: an error is the node's, or says that the answer is none.
func FuzzPlanAnswer(f *testing.F) {
	f.Add([]byte(`{"name":"x","version":1,"stored":true}`))
	f.Add([]byte(`{"error":{"code":409,"description":"other"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := DecodePlanAnswer(data)
		var wire *APIError
		if err != nil && !isUndecodable(err) && !errors.As(err, &wire) {
			t.Fatalf("error %v is of no kind", err)
		}
		if err == nil && a.Error != nil {
			t.Fatalf("let through: %+v", a)
		}
	})
}

// FuzzNames holds every parser of subjects and names to its builder.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"duly.tasks.7.pack", "duly.tasks.07.pack", "duly.tasks.7.order.o-1", "duly.reply.1.2.3.x", "p07-e1-2", "p7-e01-2", "duly.batch.reply.x.1", "duly.ask.cancel", "duly.ask.cancel.order"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, ok := ParsePack(s); ok && PackSubject(p) != s {
			t.Fatalf("%q read as pack of %d", s, p)
		}
		if p, taskType, id, err := ParseIn(s); err == nil && numbered("duly.tasks.", p, "."+taskType+"."+id) != s {
			t.Fatalf("%q read as %d %q %q", s, p, taskType, id)
		}
		if p, e, n, ok := ParseConsumer(s); ok && ConsumerName(p, e, n) != s {
			t.Fatalf("%q read as %d %d %d", s, p, e, n)
		}
		if k, of, err := ParseAsk(s); err == nil && (of == "" && AskSubject(ControlWord(k)) != s || of != "" && AskTypeSubject(ControlWord(k), of) != s) {
			t.Fatalf("%q read as %d of %q", s, k, of)
		}
		if mayAnswer(s) && s != "" && (Names{}).CheckAnswer(s, nil) != nil {
			p, n, q, err := ParseReply(s)
			if err != nil || len(s) < len(ReplySubject(p, n, q)) {
				t.Fatalf("an agent would answer to %q", s)
			}
		}
	})
}
