package duly

import "fmt"

// InputSchema gives the plan a JSON Schema (2020-12) of its input, made of the input's Go type: a submission whose input
// does not fit is refused, with a JSON pointer to what does not. Fields without omitempty are required; fields that the
// type does not have are allowed; tags `jsonschema:"…"` say more (minimum=1, enum=…). But for such tags all fits that
// encoding/json writes of the type: null for what is nil, without omitempty, which an expression then has to ask for (to the
// elements of an each it is no element); anything for a type that writes its own JSON.
//
// The schema is a part of the plan: a stored version of a plan that had none keeps none, so raise the version to add it,
// and whenever the type changes.
func InputSchema(more ...SchemaOption) PlanOption {
	return func(p *planSpec) {
		schema, err := schemaOf(p.in, more)
		if err != nil {
			p.refuse(fmt.Errorf("plan %s: InputSchema: %w", p.Name, err))
		}
		p.InputSchema = schema
	}
}

// InputSchemaJSON is InputSchema with a schema of your own, as JSON: up to 64 KiB, without references to anything outside
// it or to itself.
func InputSchemaJSON(schema string) PlanOption {
	return func(p *planSpec) {
		p.zero("InputSchemaJSON", schema == "", "a JSON Schema")
		p.InputSchema = schema
	}
}

// PayloadSchema gives a [Signal] a JSON Schema of its payload, made of its Go type as [InputSchema] makes one: an answer that
// does not fit is refused, with a JSON pointer to what does not, and can be given again.
func PayloadSchema(more ...SchemaOption) SignalOption {
	return option(func(def *definition) {
		schema, err := schemaOf(def.payload, more)
		if err != nil {
			def.refuse("PayloadSchema: %w", err)
		}
		def.step.Schema = schema
	})
}

// PayloadSchemaJSON is PayloadSchema with a schema of your own, as [InputSchemaJSON] takes it.
func PayloadSchemaJSON(schema string) SignalOption {
	return option(func(def *definition) {
		if schema == "" {
			def.refuse("PayloadSchemaJSON(0), want a JSON Schema")
		}
		def.step.Schema = schema
	})
}

// SchemaOption is what a schema that is made of a Go type says besides.
type SchemaOption struct{ word string }

// Encrypted has a schema accept encrypted payloads, which the server cannot read: see [WithCodec]. Without it
// these are refused, as all else that does not fit. A schema of your own says "x-duly-encrypted": true at its root.
func Encrypted() SchemaOption { return SchemaOption{"x-duly-encrypted"} }
