package wire

import (
	"reflect"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/submit/submittest"
)

// TestStreamCarriesEveryField: a message of the stream endpoint says all that a submission can say, also when it was moved
// from another stream.
func TestStreamCarriesEveryField(t *testing.T) {
	said := submittest.Full(t)
	said.Ago = 0 // of an outbox alone
	want, bad := said.Read(at, nil)
	if bad != nil {
		t.Fatal(bad)
	}
	want.Unchecked = true // no door has looked at it
	moved := Header(said.Header())
	moved[HeaderStored] = []string{at.Time().Format(timeLayout)}
	for name, header := range map[string]Header{"as it came": said.Header(), "moved": moved} {
		d, err := TaskDecoder{}.Decode("duly.tasks.3."+said.Type+"."+said.ID, header, said.Input, at)
		if err != nil || len(d.Submissions) != 1 {
			t.Fatalf("%s: %+v %v", name, d, err)
		}
		submittest.Fields(t, name, reflect.ValueOf(d.Submissions[0]), reflect.ValueOf(want), nil)
	}
}

// TestPackCarriesEveryField: a pack holds all of a submission, in both forms.
func TestPackCarriesEveryField(t *testing.T) {
	said := submittest.Full(t)
	said.Input = []byte(`"` + strings.Repeat("x", 2*compressLeast) + `"`)
	want, bad := said.Read(at, nil)
	if bad != nil {
		t.Fatal(bad)
	}
	plain := AppendPack(nil, []core.Submission{want})
	small, ok := AppendCompressedPack(nil, plain)
	if !ok {
		t.Fatal("the pack is not compressed")
	}
	for name, pack := range map[string][]byte{"plain": plain, "compressed": small} {
		subs, err := decodePack(pack)
		if err != nil || len(subs) != 1 {
			t.Fatalf("%s: %d %v", name, len(subs), err)
		}
		submittest.Fields(t, name, reflect.ValueOf(subs[0]), reflect.ValueOf(want), map[string]string{"Unchecked": "ingest has looked whether the version is stored"})
	}
}

// TestStreamRefusesHeaders: nothing that a message says is left out, and its refusal names it.
func TestStreamRefusesHeaders(t *testing.T) {
	for want, header := range map[string]Header{
		`"Duly-Startat" is not known`:           {"Duly-Startat": {"1h"}},
		"Duly-Start-At is given 2 times":        {headerStartAt: {"1h", "2h"}},
		"cannot be read":                        {submit.Unreadable: {""}},
		`start-at "5" is neither RFC 3339`:      {headerStartAt: {"5"}},
		`start-at "-1h" is neither RFC 3339`:    {headerStartAt: {"-1h"}},
		`start-at "87600h" is more than 8760h0`: {headerStartAt: {"87600h"}},
	} {
		d, err := TaskDecoder{}.Decode("duly.tasks.3.order.o-1", header, []byte("1"), at)
		if err != nil || len(d.Refused) != 1 || d.Refused[0].Code != 400 || d.Refused[0].ID != "o-1" || !strings.Contains(d.Refused[0].Error, want) {
			t.Errorf("%v: %+v %v, want %q", header, d, err, want)
		}
	}
	d, err := TaskDecoder{}.Decode("duly.tasks.3.order.o-1", Header{headerStartAt: {"2020-01-01T00:00:00Z"}}, []byte("1"), at)
	if err != nil || len(d.Submissions) != 1 || d.Submissions[0].StartAt != 0 {
		t.Errorf("a start that has passed: %+v %v, want it to begin at once", d, err)
	}
}
