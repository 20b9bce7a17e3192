// Package submittest has a submission that says everything, for the tests of all that one travels through.
package submittest

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/submit"
)

// values are those of the fields of [Full].
var values = map[string]any{
	"Type": "order", "ID": "o-1", "Input": `{"a":1}`, "CompleteBy": "2h", "StartAt": "1h", "Version": "3", "ReplyTo": "_INBOX.me",
	"Trace": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Labels": "a=b,duly-priority=low", "Ago": time.Minute,
}

// Full is a form in which every field is set. It fails the test for one that it has no value for.
func Full(t testing.TB) (f submit.Form) {
	t.Helper()
	is := reflect.ValueOf(&f).Elem()
	for i := range is.NumField() {
		name := is.Type().Field(i).Name
		value, ok := values[name]
		if !ok {
			t.Fatalf("submittest has no value for the field %s: give it one, and see that it travels", name)
		}
		is.Field(i).Set(reflect.ValueOf(value).Convert(is.Field(i).Type()))
	}
	return f
}

// Same fails the test for every field in which what came differs from what was sent, but for those that shall not travel
// there, each named with its reason.
func Same(t testing.TB, transport string, got, sent submit.Form, besides map[string]string) {
	t.Helper()
	Fields(t, transport, reflect.ValueOf(got), reflect.ValueOf(sent), besides)
}

// Fields is Same of any struct. A field of what was sent that is zero proves nothing, and fails the test too.
func Fields(t testing.TB, transport string, got, sent reflect.Value, besides map[string]string) {
	t.Helper()
	var left []string
	for i := range sent.NumField() {
		name := sent.Type().Field(i).Name
		switch is := reflect.DeepEqual(got.Field(i).Interface(), sent.Field(i).Interface()); {
		case besides[name] != "":
			left = append(left, name)
		case sent.Field(i).IsZero():
			t.Errorf("%s: the field %s is not set", transport, name)
		case !is:
			t.Errorf("%s: the field %s comes as %v, sent %v", transport, name, got.Field(i), sent.Field(i))
		}
	}
	for name := range besides {
		if !slices.Contains(left, name) {
			t.Errorf("%s: there is no field %s that need not travel", transport, name)
		}
	}
}
