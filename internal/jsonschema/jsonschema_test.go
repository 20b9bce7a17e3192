package jsonschema

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

const orderSchema = `{"type":"object","required":["item"],"properties":{"item":{"type":"string","minLength":1},
	"lines":{"type":"array","items":{"$ref":"#/$defs/line"}}},"$defs":{"line":{"type":"object","properties":{"a/b":{"type":"integer","minimum":1}}}}}`

func TestCheck(t *testing.T) {
	var c Cache
	for payload, want := range map[string]string{
		`{"item":"lamp"}`: "",
		`{"item":"lamp","lines":[{"a/b":2}],"x":[]}`: "",
		`{}`:                                  `missing property 'item'`,
		`7`:                                   `got number, want object`,
		`{"item":""}`:                         `at "/item": minLength: got 0, want 1`,
		`{"item":"x","lines":[{},{"a/b":0}]}`: `at "/lines/1/a~1b": minimum: got 0, want 1`,
		`{"item":"x","lines":[{"a/b":1e999999}]}`: `at "/lines/0/a~1b": number 1e999999 is out of range, want at most 1000 digits and an exponent of at most 400`,
		`{"item":`: `payload is no JSON: unexpected EOF`,
	} {
		err := c.Check(orderSchema, []byte(payload))
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			t.Errorf("%s: %v, want %s", payload, err, want)
		}
	}
	if err := c.Check("", []byte("anything")); err != nil {
		t.Error(err)
	}
	for i := range cacheMax + 10 {
		if err := c.Check(fmt.Sprintf(`{"minimum":%d}`, i), []byte(`5`)); (err == nil) != (i <= 5) {
			t.Fatal(i, err)
		}
	}
	if n := len(c.all); n == 0 || n > cacheMax {
		t.Errorf("%d schemas are kept", n)
	}
}

// TestEnum: a value is one of them by what it means, and is found at once among however many there are: a list of numbers held
// up the door for minutes.
func TestEnum(t *testing.T) {
	var c Cache
	const some = `{"enum":[1,2.50,"a",null,true,[1,{"x":1e1}]]}`
	for payload, fits := range map[string]bool{
		`1`: true, `1.0`: true, `10e-1`: true, `25e-1`: true, `"a"`: true, `"\u0061"`: true, `null`: true, `true`: true, `[1.0,{"x":10}]`: true,
		`2`: false, `"1"`: false, `"b"`: false, `false`: false, `[1]`: false, `{"x":10}`: false, `[1,{"x":10},1]`: false, `"null"`: false,
	} {
		if err := c.Check(some, []byte(payload)); (err == nil) != fits || err != nil && !strings.Contains(err.Error(), "'enum' failed") {
			t.Errorf("%s: %v, want it to fit: %v", payload, err, fits)
		}
	}
	if err := c.Check(`{"items":{"enum":[1,2]}}`, []byte(`[1,3]`)); err == nil || err.Error() != `at "/1": value must be one of 1, 2` {
		t.Error(err)
	}
	many := "1000"
	for i := range 2000 {
		many += fmt.Sprint(",", 1001+i)
	}
	began := time.Now()
	if err := c.Check(`{"items":{"enum":[`+many+`]}}`, []byte(`[`+strings.Repeat("3000,", 20_000)+`3000]`)); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("20,000 numbers took %v", took)
	}
}

// What a schema may not be is refused where it is stored, in bounded time.
func TestCompileRefuses(t *testing.T) {
	doubling := `{"$ref":"#/$defs/d0","$defs":{`
	for i := range 40 {
		doubling += fmt.Sprintf(`"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	doubling += `"d40":{}}}`
	for schema, want := range map[string]string{
		`{"type":"objekt"}`: "type",
		`{`:                 "it is no JSON",
		`[]`:                "want an object, true or false",
		`{"$ref":"https://example.com/other.json"}`:                 `refers to nothing outside itself`,
		`{"$ref":"file:///etc/passwd"}`:                             `refers to nothing outside itself`,
		`{"$ref":"other.json"}`:                                     `refers to`,
		`{"$ref":"#/$defs/none"}`:                                   `none`,
		`{"$schema":"http://json-schema.org/draft-07/schema#"}`:     "2020-12/schema",
		`{"properties":{"left":{"$ref":"#"}}}`:                      "refers to itself",
		`{"$dynamicRef":"#x","$dynamicAnchor":"x"}`:                 "",
		`{"pattern":"("}`:                                           "",
		`{"properties":{"cents":{"type":"integer","maximun":500}}}`: `at "/properties/cents": "maximun" is no keyword of JSON Schema 2020-12, did you mean maximum?`,
		`{"anyOf":[{"$defs":{"a":{"not":{"Minimum":1}}}}]}`:         `at "/anyOf/0/$defs/a/not": "Minimum" is no keyword`,
		`{"dependencies":{}}`:                                       `"dependencies" is no keyword`,
		doubling:                                                    "more than 4096 schemas",
		`{"description":"` + strings.Repeat("x", bytesMax) + `"}`:   "want at most 65536",
	} {
		_, err := Compile(schema)
		if err == nil || !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", schema, err, want)
		}
	}
	for _, schema := range []string{`true`, `{}`, `{"x-unit":"cents","properties":{"maximun":{"const":{"any":1}}},"default":{"maximun":1}}`, `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":["string","null"]}`, orderSchema} {
		if _, err := Compile(schema); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
	p := core.Plan{Name: "order", Steps: []core.Step{{Name: "approve", Schema: `{"type":7}`}}}
	if err := CheckPlan(&p); !errors.Is(err, core.ErrPlan) || !strings.Contains(err.Error(), "plan order: step approve: schema: ") {
		t.Error(err)
	}
	p.Steps[0].Schema, p.InputSchema = `{}`, `{"type":7}`
	if err := CheckPlan(&p); err == nil || !strings.Contains(err.Error(), "plan order: input_schema: ") {
		t.Error(err)
	}
	p.InputSchema = orderSchema
	if err := CheckPlan(&p); err != nil {
		t.Error(err)
	}
}

// TestEncrypted: what is encrypted, or only looks so, fits a schema that says so at its root, and no other: who submits
// cannot leave out what is required by a form.
//
// covers: P14
func TestEncrypted(t *testing.T) {
	const sealed = `{"duly.enc":"A256GCM-1","key":"k1","data":"ZGF0YQ=="}`
	for _, x := range []struct {
		schema, payload string
		fits            bool
	}{
		{orderSchema, sealed, false},
		{`{"x-duly-encrypted":false,` + orderSchema[1:], sealed, false},
		{`{"x-duly-encrypted":true,` + orderSchema[1:], sealed, true},
		{`{"x-duly-encrypted":true,` + orderSchema[1:], `{"duly.enc":"A256GCM-1","key":"k1","data":"ZGF0YQ==","more":1}`, false},
		{`{"x-duly-encrypted":true,` + orderSchema[1:], `{}`, false},
	} {
		s, err := Compile(x.schema)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check([]byte(x.payload)); (err == nil) != x.fits {
			t.Errorf("%.40s: %s: %v, want it to fit: %v", x.schema, x.payload, err, x.fits)
		}
	}
	for schema, want := range map[string]string{
		`{"x-duly-encrypted":"yes"}`:                        `at "/x-duly-encrypted": want true or false`,
		`{"properties":{"card":{"x-duly-encrypted":true}}}`: `at "/properties/card/x-duly-encrypted": it is said of the whole payload alone, at the root of the schema`,
		`{"x-duly-encryped":true}`:                          "did you mean x-duly-encrypted?",
	} {
		if _, err := Compile(schema); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", schema, err, want)
		}
	}
}
