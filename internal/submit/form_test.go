package submit_test

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/submit/submittest"
)

// beside is what no header says.
var beside = map[string]string{"Type": "it is in the subject, path or column", "ID": "the same", "Input": "it is the payload", "Ago": "of who reads an outbox"}

// TestHeaderCarriesEveryField: what is said goes into headers and comes out of them, whatever their case, also as JSON.
func TestHeaderCarriesEveryField(t *testing.T) {
	sent := submittest.Full(t)
	lower, flat := map[string][]string{"Nats-Msg-Id": {"x"}, "Other": {"1", "2"}}, map[string]string{}
	for name, values := range sent.Header() {
		lower[strings.ToLower(name)] = values
		flat[name] = values[0]
	}
	object, err := json.Marshal(flat)
	if err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func(*submit.Form) error{
		"header": func(f *submit.Form) error { return f.ReadHeader(sent.Header()) },
		"lower":  func(f *submit.Form) error { return f.ReadHeader(lower) },
		"object": func(f *submit.Form) error { return f.ReadObject(object) },
	} {
		var got submit.Form
		if err := read(&got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		submittest.Same(t, name, got, sent, beside)
	}
	if h := (&submit.Form{Type: "order", ID: "o", Input: []byte("1")}).Header(); h != nil {
		t.Errorf("nothing is said, and there are headers %v", h)
	}
}

// TestHeaderRefused: nothing that is said is left out.
func TestHeaderRefused(t *testing.T) {
	for name, x := range map[string]struct {
		header map[string][]string
		want   []string
	}{
		"unknown":    {map[string][]string{"duly-tomorrow": {"x"}}, []string{`"duly-tomorrow"`, "Duly-Complete-By, Duly-Start-At, Duly-Plan-Version, Duly-Reply-To, Duly-Labels"}},
		"twice":      {map[string][]string{"Duly-Start-At": {"1h", "2h"}}, []string{"Duly-Start-At", "2 times", `"1h"`, `"2h"`, "want once"}},
		"two cases":  {map[string][]string{"Duly-Start-At": {"1h"}, "duly-start-at": {"2h"}}, []string{"Duly-Start-At", "2 times"}},
		"unreadable": {map[string][]string{submit.Unreadable: {""}}, []string{"cannot be read"}},
	} {
		var f submit.Form
		err := f.ReadHeader(x.header)
		if !errors.Is(err, submit.ErrHeader) {
			t.Errorf("%s: %v, want ErrHeader", name, err)
			continue
		}
		for _, want := range x.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not name %s", name, err, want)
			}
		}
	}
	var f submit.Form
	if err := f.ReadHeader(map[string][]string{"traceparent": {"a", "b"}}); err != nil || f.Trace != "" {
		t.Errorf("a trace that is given twice: %q %v, want none", f.Trace, err)
	}
}

// TestReadTakesEveryField: each field of a form changes what the task stream holds.
func TestReadTakesEveryField(t *testing.T) {
	const now = core.Instant(1_700_000_000_000_000)
	full := submittest.Full(t)
	s, bad := full.Read(now, nil)
	if bad != nil {
		t.Fatal(bad)
	}
	if s.StartAt != now.Add(59*60e9) || s.CompleteBy != now.Add(119*60e9) {
		t.Errorf("starts %v, complete by %v; want both from a minute before %v", s.StartAt, s.CompleteBy, now)
	}
	for i := range reflect.TypeFor[submit.Form]().NumField() {
		less := full
		reflect.ValueOf(&less).Elem().Field(i).SetZero()
		if got, bad := less.Read(now, nil); bad == nil && reflect.DeepEqual(got, s) {
			t.Errorf("%s changes nothing", reflect.TypeFor[submit.Form]().Field(i).Name)
		}
	}
}

// TestObjectRefused: what is no object of texts is refused as headers, and a name that comes twice is told twice.
func TestObjectRefused(t *testing.T) {
	for data, want := range map[string]string{
		``: "object", `[]`: "object", `"x"`: "object", `{`: "JSON", `{"a"`: "JSON", `{"Duly-Labels":"a=b`: "JSON", `{} {}`: "more than one JSON value",
		`{"Duly-Labels":5}`: "want text", `{"Duly-Labels":null}`: "want text", `{"Duly-Labels":"a=b","Duly-Labels":"a=c"}`: "2 times", `{"":"x"}`: "",
	} {
		var f submit.Form
		err := f.ReadObject([]byte(data))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", data, err, want)
		}
	}
	seen := map[string]int{}
	if err := submit.Object([]byte(`{"a":{"a":1},"b":[{"a":2}],"a":3}`), func(name string, _ json.RawMessage) error { seen[name]++; return nil }); err != nil || !maps.Equal(seen, map[string]int{"a": 2, "b": 1}) {
		t.Errorf("%v %v", seen, err)
	}
}
