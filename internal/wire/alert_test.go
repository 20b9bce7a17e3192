package wire

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

func someAlert() core.Alert {
	return core.Alert{ID: "id-1", Name: "streams", Key: "DULY_TASKS", Node: "n1", Shared: true, Phase: core.AlertBegins, Severity: core.SeverityCritical,
		Text: "a stream does not work", Error: "stream is full", Since: 1_750_000_000_123_456, At: 1_750_000_001_000_000, LastsMS: 876, Times: 2,
		Attrs: []core.AlertAttr{{Name: "a", Value: "1"}, {Name: "task", Value: "t-1"}}}
}

// TestAlert: what is written of an alert is read again; the form is fixed.
func TestAlert(t *testing.T) {
	const golden = `{"v":1,"id":"id-1","name":"streams","key":"DULY_TASKS","node":"n1","shared":true,"phase":"begin","severity":"critical","text":"a stream does not work",` +
		`"error":"stream is full","since":"2025-06-15T15:06:40.123456Z","at":"2025-06-15T15:06:41.000000Z","lasts_ms":876,"times":2,"more":{"a":"1","task":"t-1"}}`
	data, err := AppendAlert([]byte("x"), someAlert())
	if err != nil || string(data) != "x"+golden {
		t.Errorf("%s, %v", data, err)
	}
	got, err := DecodeAlert([]byte(golden))
	if err != nil || !reflect.DeepEqual(got, someAlert()) {
		t.Errorf("%+v, %v", got, err)
	}
	for what, spoil := range map[string][2]string{
		"version": {`"v":1`, `"v":2`}, "name": {`"name":"streams"`, `"name":"a.b"`}, "no name": {`"name":"streams",`, ``}, "no id": {`"id":"id-1"`, `"id":""`},
		"phase": {`"begin"`, `"middle"`}, "time": {`2025-06-15T15:06:41.000000Z`, `yesterday`}, "form": {`"times":2`, `"times":"2"`}, "cut": {`"}}`, `"`},
	} {
		if _, err := DecodeAlert([]byte(strings.Replace(golden, spoil[0], spoil[1], 1))); !errors.Is(err, ErrUndecodable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := DecodeAlert(make([]byte, alertBytesMax+1)); !errors.Is(err, ErrUndecodable) {
		t.Errorf("too long: %v", err)
	}
	huge := someAlert()
	huge.Text, huge.Error, huge.Key = strings.Repeat("\x01", 1<<20), strings.Repeat("\x01", 1<<20), strings.Repeat("\x01", 1<<20)
	if data, err := AppendAlert(nil, huge); err != nil || len(data) > alertBytesMax {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// FuzzAlert: what is read of anything is written and read again.
func FuzzAlert(f *testing.F) {
	data, err := AppendAlert(nil, someAlert())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"v":1,"id":"x","name":"a","phase":"once"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := DecodeAlert(data)
		if err != nil || !writable(a.Since) || !writable(a.At) {
			return
		}
		again, err := AppendAlert(nil, a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeAlert(again); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	})
}
