package duly

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/jsonschema"
)

// Types of users: with names, with JSON of their own, and to be embedded.
type (
	tags    []string
	prices  map[string]float64
	octet   uint8
	uuidOf  [4]byte
	inText  struct{ at int }
	inJSON  struct{ at int }
	Parcel  struct{ Kilos float64 }
	Address struct {
		Street string   `json:"street"`
		Lines  []string `json:"lines"`
	}
	Audit struct {
		By  *string `json:"by"`
		IDs tags
	}
	Both struct { // it has a member of Audit by another type
		By    int `json:"by"`
		Audit Audit
	}
	box[T any] struct {
		Of   T
		More []T
	}
)

func (u uuidOf) MarshalText() ([]byte, error)  { return fmt.Appendf(nil, "%x", u[:]), nil }
func (t *inText) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "at %d", t.at), nil }
func (t inJSON) MarshalJSON() ([]byte, error)  { return json.Marshal(t.at) }

// otherAddress is another type of the name Address.
func otherAddress() reflect.Type {
	type Address struct{ Zip int }
	return reflect.TypeFor[Address]()
}

var plainTypes = []reflect.Type{
	reflect.TypeFor[bool](), reflect.TypeFor[int](), reflect.TypeFor[uint8](), reflect.TypeFor[int64](), reflect.TypeFor[float64](), reflect.TypeFor[string](), reflect.TypeFor[any](),
	reflect.TypeFor[json.RawMessage](), reflect.TypeFor[json.Number](), reflect.TypeFor[time.Time](), reflect.TypeFor[time.Duration](), reflect.TypeFor[[]byte](), reflect.TypeFor[[]octet](),
	reflect.TypeFor[net.IP](), reflect.TypeFor[netip.Addr](), reflect.TypeFor[big.Int](), reflect.TypeFor[url.URL](), reflect.TypeFor[uuidOf](), reflect.TypeFor[inText](), reflect.TypeFor[inJSON](),
	reflect.TypeFor[tags](), reflect.TypeFor[prices](), reflect.TypeFor[Address](), otherAddress(), reflect.TypeFor[box[Parcel]](), reflect.TypeFor[box[Address]](), reflect.TypeFor[Both](),
}

func drawType(t *rapid.T, depth int) reflect.Type {
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	if depth == 0 {
		kind = 0
	}
	switch kind {
	case 1:
		return reflect.PointerTo(drawType(t, depth-1))
	case 2:
		return reflect.SliceOf(drawType(t, depth-1))
	case 3:
		return reflect.ArrayOf(rapid.IntRange(0, 2).Draw(t, "length"), drawType(t, depth-1))
	case 4:
		return reflect.MapOf(rapid.SampledFrom([]reflect.Type{reflect.TypeFor[string](), reflect.TypeFor[int](), reflect.TypeFor[uint16](), reflect.TypeFor[netip.Addr]()}).Draw(t, "key"), drawType(t, depth-1))
	case 5, 6, 7:
		return drawStruct(t, depth)
	}
	return rapid.SampledFrom(plainTypes).Draw(t, "type")
}

func drawStruct(t *rapid.T, depth int) reflect.Type {
	var fields []reflect.StructField
	for i := range rapid.IntRange(0, 3).Draw(t, "fields") {
		f := reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: drawType(t, depth-1)}
		f.Tag = reflect.StructTag(rapid.SampledFrom([]string{"", `json:"a"`, `json:"by"`, `json:"street,omitempty"`, `json:",omitempty"`, `json:",omitzero"`, `json:",string"`, `json:"-"`, `jsonschema:"nullable"`}).Draw(t, "tag"))
		if f.Tag == `json:",string"` && f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Pointer {
			f.Tag = "" // encoding/json looks behind one pointer, the library behind all
		}
		fields = append(fields, f)
	}
	for _, embedded := range []reflect.Type{reflect.TypeFor[Address](), reflect.TypeFor[Audit](), reflect.TypeFor[Parcel]()} {
		switch rapid.IntRange(0, 5).Draw(t, "embedded") {
		case 0:
			fields = append(fields, reflect.StructField{Name: embedded.Name(), Type: embedded, Anonymous: true})
		case 1:
			fields = append(fields, reflect.StructField{Name: embedded.Name(), Type: reflect.PointerTo(embedded), Anonymous: true})
		}
	}
	return reflect.StructOf(fields)
}

// fill draws a value, of which any part may be empty.
func fill(t *rapid.T, v reflect.Value) {
	if !v.CanSet() || rapid.IntRange(0, 3).Draw(t, "empty") == 0 {
		return
	}
	switch v.Type() {
	case reflect.TypeFor[json.RawMessage]():
		v.Set(reflect.ValueOf(json.RawMessage(`{"a":[1]}`)))
		return
	case reflect.TypeFor[json.Number]():
		v.SetString("1.5")
		return
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)))
		return
	case reflect.TypeFor[net.IP]():
		v.Set(reflect.ValueOf(net.IPv6loopback))
		return
	case reflect.TypeFor[netip.Addr]():
		v.Set(reflect.ValueOf(netip.IPv6Unspecified()))
		return
	}
	n := rapid.IntRange(0, 2).Draw(t, "n")
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(n) - 5)
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(uint64(n) + 1)
	case reflect.Float64:
		v.SetFloat(float64(n) + 0.5)
	case reflect.String:
		v.SetString("é")
	case reflect.Interface:
		v.Set(reflect.ValueOf(n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(t, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range n {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(t, key)
			fill(t, value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	}
}

// TestSchemaFitsItsType: what encoding/json writes of any value of a type, its zero value among them, fits the schema of the type.
func TestSchemaFitsItsType(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := drawType(t, 3)
		if typ.Kind() == reflect.Interface { // which alone has no schema
			typ = reflect.SliceOf(typ)
		}
		text, err := schemaOf(typ, nil)
		if err != nil {
			t.Fatalf("%v: %v", typ, err)
		}
		s, err := jsonschema.Compile(text)
		if err != nil {
			t.Fatalf("%v: %v: %s", typ, err, text)
		}
		for _, zero := range []bool{true, false, false} {
			v := reflect.New(typ)
			if !zero {
				fill(t, v.Elem())
			}
			written, err := json.Marshal(v.Elem().Interface())
			if err != nil {
				t.Fatalf("%v: %v", typ, err)
			}
			if err := s.Check(written); err != nil {
				t.Fatalf("%v: %v\n%s\n%s", typ, err, written, text)
			}
		}
	})
}

// TestSchemaStillRefuses: what a schema takes beside the values of its type's fields is null, where it may be written.
func TestSchemaStillRefuses(t *testing.T) {
	type order struct {
		Lines []int           `json:"lines"`
		Via   []int           `json:"via,omitempty"`
		Some  []int           `json:"some" jsonschema:"minItems=1"`
		To    Address         `json:"to"`
		Bill  *Address        `json:"bill"`
		Note  *string         `json:"note" jsonschema:"enum=a,enum=b"`
		Each  map[string]uint `json:"each"`
		Must  *int            `json:"must,omitempty" jsonschema:"required"`
		*Audit
	}
	text, err := schemaOf(reflect.TypeFor[order](), []SchemaOption{Encrypted()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := jsonschema.Compile(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	fits := map[string]any{"lines": nil, "some": []int{1}, "to": map[string]any{"street": "", "lines": nil}, "bill": nil, "note": nil, "each": nil, "must": 1}
	for _, x := range []struct {
		name  string
		value any
		want  string
	}{
		{"lines", nil, ""}, {"lines", []int{}, ""}, {"lines", []string{"x"}, "/lines/0"}, {"lines", 1, "/lines"}, {"via", nil, "/via"}, {"some", nil, "/some"}, {"some", []int{}, "/some"},
		{"to", nil, "/to"}, {"bill", map[string]any{}, "/bill"}, {"note", "a", ""}, {"note", "c", "/note"}, {"each", map[string]any{"a": -0.5}, "/each/a"}, {"must", nil, "/must"}, {"IDs", nil, ""}, {"IDs", 1, "/IDs"},
	} {
		was := fits[x.name]
		fits[x.name] = x.value
		data, err := json.Marshal(fits)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(data); (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), `at "`+x.want+`"`) {
			t.Errorf("%s: %v, want %q\n%s", data, err, x.want, text)
		}
		if fits[x.name] = was; was == nil && x.name != "lines" && x.name != "bill" && x.name != "note" && x.name != "each" {
			delete(fits, x.name)
		}
	}
	delete(fits, "must")
	if data, _ := json.Marshal(fits); s.Check(data) == nil {
		t.Errorf("%s fits without what a tag requires", data)
	}
}
