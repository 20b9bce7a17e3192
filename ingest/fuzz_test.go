package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// FuzzDoor: a request at the door is refused with a short text and a known
// cause, or it is a submission that every reader can hold.
func FuzzDoor(f *testing.F) {
	f.Add("order", "o-1", []byte(`{"a":1}`), "30s", "_INBOX.a", "")
	f.Add("", "..", []byte(`"\u0000"`), "9999-12-31T23:59:59Z", "duly.do.x", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("order", "o-1", bytes.Repeat([]byte("["), 20_000), "-0s", "$JS.API.x", strings.Repeat("0", 200))
	f.Add("order", "o-1", []byte(`1e999999999`), "2562047h47m16.854775807s", ".", "ff")
	f.Fuzz(func(t *testing.T, taskType, id string, input []byte, completeBy, replyTo, trace string) {
		d := &Door{cfg: Config{CheckReplyTo: func(s string) error {
			if strings.HasPrefix(s, "_INBOX.") {
				return nil
			}
			return errors.New("not allowed")
		}}}
		var sub core.Submission
		refused := d.check(epoch, &Request{Form: submit.Form{Type: taskType, ID: id, Input: input, CompleteBy: completeBy, ReplyTo: replyTo, Trace: trace}}, &sub)
		if refused != nil {
			if refused.Code < 400 || refused.Code > 499 || refused.ErrCode < CauseFirst || refused.ErrCode > CauseLast ||
				refused.Description == "" || len(refused.Description) > descriptionBytesMax+len("…") || !utf8.ValidString(refused.Description) {
				t.Fatalf("refusal %+v", refused)
			}
			return
		}
		if core.CheckName("type", sub.Type) != nil || core.CheckName("id", sub.ID) != nil || len(sub.Input) > core.InputBytesMax || !json.Valid(sub.Input) || !utf8.Valid(sub.Input) {
			t.Fatalf("let through: %q %q %.100q", sub.Type, sub.ID, sub.Input)
		}
		if sub.CompleteBy != 0 && (sub.CompleteBy <= epoch || sub.CompleteBy > epoch.Add(core.DurationMax)) || core.CleanTrace(sub.Trace) != sub.Trace {
			t.Fatalf("let through: complete-by %v, trace %q", sub.CompleteBy.Time(), sub.Trace)
		}
	})
}
