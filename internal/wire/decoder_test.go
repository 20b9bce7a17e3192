package wire

import (
	"errors"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

// covers: C5
//
// covers: C5
func TestStreamEndpointPlanVersion(t *testing.T) {
	id := idIn(3, 16, 0)
	for said, want := range map[string]core.Submission{
		"": {Unchecked: true}, "newest": {Unchecked: true}, "7": {PlanVersion: 7, Unchecked: true},
	} {
		d, err := TaskDecoder{Partitions: 16}.Decode("duly.tasks.3.order."+id, submitHeaders("", "", "", said, ""), []byte("1"), at)
		if err != nil || len(d.Submissions) != 1 || d.Submissions[0].PlanVersion != want.PlanVersion || d.Submissions[0].Unchecked != want.Unchecked {
			t.Errorf("version %q: %+v, %v", said, d, err)
		}
	}
	d, err := TaskDecoder{Partitions: 16}.Decode("duly.tasks.3.order."+id, submitHeaders("", "", "", "latest", ""), []byte("1"), at)
	if err != nil || len(d.Refused) != 1 || d.Refused[0].Code != 400 || !strings.Contains(d.Refused[0].Error, `"latest"`) {
		t.Errorf("no version: %+v, %v", d, err)
	}
}

// covers: I15, D10, inv12
func TestTaskDecoder(t *testing.T) {
	good := core.Submission{Type: "order", ID: idIn(3, 16, 0), Input: []byte("1"), At: at}
	elsewhere, badID, large, hostile := good, good, good, good
	elsewhere.ID = idIn(4, 16, 0)
	badID.ID = "a b"
	large.Input = make([]byte, core.InputBytesMax+1)
	hostile.ReplyTo = "duly.submit.order.x"
	d, err := TaskDecoder{Partitions: 16}.Decode("duly.tasks.3.pack", nil, AppendPack(nil, []core.Submission{elsewhere, good, badID, large, hostile}), at)
	if err != nil || len(d.Submissions) != 1 || d.Submissions[0].ID != good.ID || len(d.Refused) != 4 {
		t.Fatalf("%+v, %v", d, err)
	}
	for i, want := range []struct {
		code int
		text string
	}{{400, "belongs to partition 4 of 16, not 3"}, {400, "want A–Z"}, {413, "the limit is 262144"}, {400, "is reserved"}} {
		if r := d.Refused[i]; r.Code != want.code || !strings.Contains(r.Error, want.text) {
			t.Errorf("%d: %+v, want %+v", i, r, want)
		}
	}
	for _, subject := range []string{"duly.tasks.3", "duly.tasks.x.order.a", "duly.control.3", "duly.tasks.3.order.a.b", ""} {
		if _, err := (TaskDecoder{}).Decode(subject, nil, []byte("1"), at); !isUndecodable(err) {
			t.Errorf("%q: %v", subject, err)
		}
	}
	if _, err := (TaskDecoder{}).Decode("duly.tasks.3.pack", nil, []byte("nonsense"), at); !isUndecodable(err) {
		t.Errorf("pack: %v", err)
	}
}

// covers: S25
func TestCheckReplyTo(t *testing.T) {
	long := "status." + strings.Repeat("x", replyToBytesMax)
	for subject, ok := range map[string]bool{
		"_INBOX.abc.1": true, "_INBOX_client.abc": true, "status.order.7": true, "status.é": true,
		"status.": false, "mine.abc": false, "": false, "duly": false, "duly.live.a.b": false, "$SYS.x": false, "$JS.API.X": false,
		"status.*": false, "status.>": false, "status.a b": false, "status.a\r\nPUB x": false, "status.a\x7f": false, "status.a..b": false,
		"status.a.": false, ".a": false, "status.\xff": false, long: false,
	} {
		if err := CheckReplyTo(subject, nil); (err == nil) != ok || err != nil && !errors.Is(err, errReplyTo) {
			t.Errorf("%q: %v, want ok %v", subject, err, ok)
		}
	}
	if err := CheckReplyTo("mine.abc", []string{"mine."}); err != nil {
		t.Error(err)
	}
	if err := CheckReplyTo("duly.live.a.b", []string{"duly."}); err == nil {
		t.Error("a prefix must not open Duly's own subjects")
	}
	if err := CheckReplyTo("status.a", []string{}); err == nil {
		t.Error("an empty list allows nothing")
	}
}
