package duly

import (
	"errors"
	"strings"
	"testing"

	"duly.dev/duly/internal/jsonschema"
	"duly.dev/duly/internal/planfile"
	"duly.dev/duly/internal/planform"
)

type address struct {
	Street string `json:"street" jsonschema:"minLength=1"`
}

type delivery struct {
	To    address   `json:"to"`
	Lines []int     `json:"lines,omitempty"`
	Note  *string   `json:"note,omitempty"`
	Via   []address `json:"via,omitempty"`
}

func TestInputSchemaOfType(t *testing.T) {
	step := NewCheck[delivery, int]("first", "a")
	plain := NewPlan("delivery", 1, step)
	if plain.spec.InputSchema != "" {
		t.Error("a plan that does not ask for a schema has one")
	}
	p := plain.With(InputSchema())
	if err := p.check(0); err != nil {
		t.Fatal(err)
	}
	if err := jsonschema.CheckPlan(&p.spec); err != nil {
		t.Fatalf("%v: %s", err, p.spec.InputSchema)
	}
	s, err := jsonschema.Compile(p.spec.InputSchema)
	if err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]string{
		`{"to":{"street":"x"},"lines":[1],"more":true}`: "",
		`{"lines":[1]}`:                       "missing property 'to'",
		`{"to":{"street":""}}`:                `at "/to/street"`,
		`{"to":{"street":"x"},"via":[{},{}]}`: `at "/via/0": missing property 'street'`,
		`{"to":{"street":"x"},"lines":["1"]}`: `at "/lines/0"`,
	} {
		if err := s.Check([]byte(input)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", input, err, want)
		}
	}
	if again := plain.With(InputSchema()); again.spec.InputSchema != p.spec.InputSchema {
		t.Error("the same type has two schemas")
	}
}

func TestInputSchemaRefuses(t *testing.T) {
	if err := NewPlan("p", 1, NewCheck[any, int]("first", "a")).With(InputSchema()).check(0); err == nil || !strings.Contains(err.Error(), "give the schema as JSON") {
		t.Error(err)
	}
	if err := NewPlan("p", 1, NewCheck[chan int, int]("first", "a")).With(InputSchema()).check(0); err == nil || !strings.Contains(err.Error(), "plan p: InputSchema") {
		t.Error(err)
	}
	p := NewPlan("p", 1, NewCheck[any, int]("first", "a"))
	if err := p.With(InputSchemaJSON("")).check(0); err == nil || !strings.Contains(err.Error(), "InputSchemaJSON(0)") {
		t.Error(err)
	}
	if err := p.With(InputSchemaJSON(`{"type":"object"}`)).check(0); err != nil {
		t.Error(err)
	}
}

// A plan in Go whose signal has a schema is the same plan as a file.
func TestPayloadSchema(t *testing.T) {
	const file = `
name: order
version: 1
steps:
  - {name: approve, kind: signal, schema: {type: object, required: [by], properties: {by: {type: string, minLength: 1}}}}
`
	read, err := planfile.Read("order.yaml", []byte(file), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	want, err := planform.Canonical(&read)
	if err != nil {
		t.Fatal(err)
	}
	type yes struct {
		By string `json:"by" jsonschema:"minLength=1"`
	}
	plan := NewPlan("order", 1, NewSignal[testOrder, yes]("approve", PayloadSchemaJSON(`{"properties":{"by":{"minLength":1,"type":"string"}},"required":["by"],"type":"object"}`)))
	if err := plan.check(0); err != nil {
		t.Fatal(err)
	}
	if got, err := planform.Canonical(&plan.spec); err != nil || string(got) != string(want) {
		t.Errorf("%v: in Go it is\n%s\nand as a file\n%s", err, got, want)
	}
	const sealed = `{"duly.enc":"A256GCM-1","key":"k1","data":"ZGF0YQ=="}`
	plan = NewPlan("order", 1, NewSignal[testOrder, yes]("approve", PayloadSchema(Encrypted()))).With(InputSchema(Encrypted()))
	for _, schema := range []string{plan.spec.Steps[0].Schema, plan.spec.InputSchema} {
		s, err := jsonschema.Compile(schema)
		if err != nil || s.Check([]byte(sealed)) != nil || s.Check([]byte(`{}`)) == nil {
			t.Errorf("%v: %s", err, schema)
		}
	}
	plan = NewPlan("order", 1, NewSignal[testOrder, yes]("approve", PayloadSchema()))
	s, err := jsonschema.Compile(plan.spec.Steps[0].Schema)
	if err := errors.Join(err, plan.check(0)); err != nil {
		t.Fatal(err)
	}
	for payload, fits := range map[string]bool{`{"by":"olga"}`: true, `{"by":""}`: false, `{}`: false, sealed: false} {
		if err := s.Check([]byte(payload)); (err == nil) != fits {
			t.Errorf("%s: %v", payload, err)
		}
	}
	for want, option := range map[string]SignalOption{"step approve: PayloadSchema: type interface {} can be anything": PayloadSchema(), "PayloadSchemaJSON(0)": PayloadSchemaJSON("")} {
		if err := NewPlan("order", 1, NewSignal[testOrder, any]("approve", option)).check(0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
