package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

var labelled = core.Submission{Type: "t", ID: "i", PlanVersion: 1, Input: []byte("{}"), At: 1, Labels: []core.Label{{Key: "a", Value: "b"}, {Key: "c", Value: "d"}}}

// TestPackedLabelsGolden pins labels in a pack: behind the input, and nothing there without labels, as packs always were.
//
// covers: OP19
func TestPackedLabelsGolden(t *testing.T) {
	bare := labelled
	bare.Labels = nil
	for _, x := range []struct {
		s    core.Submission
		want string
	}{
		{bare, "01" + "0c" + "0174" + "0169" + "01" + "00" + "00" + "00" + "02" + "027b7d"},
		{labelled, "01" + "15" + "0174" + "0169" + "01" + "00" + "00" + "00" + "02" + "027b7d" + "02" + "0161" + "0162" + "0163" + "0164"},
	} {
		data := AppendPack(nil, []core.Submission{x.s})
		if got := hex.EncodeToString(data); got != x.want {
			t.Errorf("got  %s\nwant %s", got, x.want)
		}
		if PackedSize(&x.s) != len(data)-1 {
			t.Errorf("size %d, want %d", PackedSize(&x.s), len(data)-1)
		}
		back, err := decodePack(data)
		if err != nil || len(back) != 1 || !reflect.DeepEqual(back[0], x.s) {
			t.Errorf("back: %+v, %v", back, err)
		}
	}
	for _, bad := range []string{"00", "09", "01", "0101", "010161", "0101610162", "02016101620163" + "0164" + "00"} {
		tail, err := hex.DecodeString(bad)
		if err != nil {
			t.Fatal(err)
		}
		data := AppendPack(nil, []core.Submission{bare})
		data = append(data, tail...)
		data[1] += byte(len(tail))
		if back, err := decodePack(data); bad != "0101610162" && !errors.Is(err, ErrUndecodable) || bad == "0101610162" && (err != nil || back[0].Labels[0] != (core.Label{Key: "a", Value: "b"})) {
			t.Errorf("%s behind the input: %+v, %v", bad, back, err)
		}
	}
}

// TestPackedStartGolden pins a start-at in a pack: behind the labels, of which there may be none.
func TestPackedStartGolden(t *testing.T) {
	bare := labelled
	bare.Labels = nil
	later, both := bare, labelled
	later.StartAt, both.StartAt = 5, 5
	for _, x := range []struct {
		subs []core.Submission
		want string
	}{
		{[]core.Submission{later}, "01" + "0e" + "0174" + "0169" + "01" + "00" + "00" + "00" + "02" + "027b7d" + "00" + "0a"},
		{[]core.Submission{both}, "01" + "16" + "0174" + "0169" + "01" + "00" + "00" + "00" + "02" + "027b7d" + "02" + "0161" + "0162" + "0163" + "0164" + "0a"},
		{[]core.Submission{bare, later}, "01" + "0c" + "0174" + "0169" + "01" + "00" + "00" + "00" + "02" + "027b7d" +
			"0e" + "0174" + "0169" + "01" + "00" + "00" + "00" + "02" + "027b7d" + "00" + "0a"},
	} {
		data := AppendPack([]byte("before"), x.subs)[len("before"):]
		if got := hex.EncodeToString(data); got != x.want {
			t.Errorf("got  %s\nwant %s", got, x.want)
		}
		if back, err := decodePack(data); err != nil || !reflect.DeepEqual(back, x.subs) {
			t.Errorf("back: %+v, %v", back, err)
		}
		size := 1
		for i := range x.subs {
			size += PackedSize(&x.subs[i])
		}
		if size != len(data) {
			t.Errorf("size %d, want %d", size, len(data))
		}
	}
	subs := manyOrders(100)
	subs[7].StartAt = at + 1
	packed, ok := AppendCompressedPack(nil, AppendPack(nil, subs))
	if !ok || packed[0] != packCompressed {
		t.Fatalf("compressed: %v, version %d", ok, packed[0])
	}
	if back, err := decodePack(packed); err != nil || !reflect.DeepEqual(back, subs) {
		t.Errorf("compressed: %d, %v", len(back), err)
	}
	if _, err := decodePack([]byte{3, 0}); err == nil || !strings.Contains(err.Error(), "pack has version 3, want 1 or 2") {
		t.Errorf("a newer one: %v", err)
	}
}

// Both doors of the stream hold labels to their limits, and refuse the one submission that breaks them.
func TestLabelsAtTheDoors(t *testing.T) {
	decode := func(labels string) Decoded {
		t.Helper()
		d, err := TaskDecoder{}.Decode("duly.tasks.3.order.o-1", submitHeaders("", "", "", "", labels), []byte("1"), at)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := decode("a=b, c=d"); len(d.Submissions) != 1 || !reflect.DeepEqual(d.Submissions[0].Labels, labelled.Labels) {
		t.Errorf("at the stream endpoint: %+v", d)
	}
	if d := decode("a=b,a=c"); len(d.Refused) != 1 || d.Refused[0].Code != CodeBadRequest || !strings.Contains(d.Refused[0].Error, "twice") {
		t.Errorf("a key twice at the stream endpoint: %+v", d)
	}
	bad := labelled
	bad.ID, bad.Labels = "j", []core.Label{{Key: "a", Value: "é"}}
	d, err := TaskDecoder{}.Decode("duly.tasks.3.pack", nil, AppendPack(nil, []core.Submission{labelled, bad}), at)
	if err != nil || len(d.Submissions) != 1 || len(d.Refused) != 1 || d.Refused[0].ID != "j" || !strings.Contains(d.Refused[0].Error, "ASCII") {
		t.Errorf("in a pack: %+v, %v", d, err)
	}
	if h := submitHeaders("", "", "", "", "a=b"); h.Get("Duly-Labels") != "a=b" || len(h) != 1 {
		t.Errorf("headers: %v", h)
	}
}

// A list is asked for by label, and a task shows its labels.
func TestLabelsRead(t *testing.T) {
	subject, data, err := Names{}.ListRequest(core.Filter{Label: "a=b", Limit: 5})
	if err != nil || !bytes.Contains(data, []byte(`"label":"a=b"`)) {
		t.Fatalf("%s, %v", data, err)
	}
	q, err := Names{}.DecodeQuery(subject, data)
	if err != nil || q.List.Label != "a=b" {
		t.Errorf("%+v, %v", q, err)
	}
	if _, err := (Names{}).DecodeQuery(subject, []byte(`{"v":1,"label":"ab"}`)); !errors.Is(err, core.ErrLabel) || !errors.Is(err, ErrUndecodable) {
		t.Errorf("a label without =: %v", err)
	}
	v, err := DecodeTask([]byte(`{"id":"i","state":"pending","labels":{"c":"d","a":"b"}}`))
	if err != nil || !reflect.DeepEqual(v.Labels, labelled.Labels) {
		t.Errorf("%+v, %v", v.Labels, err)
	}
}
