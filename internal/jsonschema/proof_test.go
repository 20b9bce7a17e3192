package jsonschema

import "testing"

// A type is proven only where every payload that fits has it.
//
// covers: W12
func TestType(t *testing.T) {
	const schema = `{"type":"object","properties":{
		"n":{"type":"integer"},"p":{"type":"number"},"either":{"type":["integer","null"]},"none":{},"ref":{"$ref":"#/$defs/cents"},"both":{"allOf":[{"minimum":1},{"type":"number"},{"$ref":"#/$defs/cents"}]},
		"any":{"anyOf":[{"type":"integer"},{"const":5}]},"mixed":{"oneOf":[{"type":"integer"},{"type":"string"}]},"some":{"anyOf":[{"type":"integer"},{}]},
		"enum":{"enum":[1,2.0,3e0]},"fine":{"enum":[1,2.5]},"word":{"enum":["a","b"]},"yes":{"const":true},
		"rows":{"type":"array","items":{"properties":{"n":{"type":"integer"}}}},"pair":{"prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"boolean"}},
		"list":{"type":["array","null"],"items":{"type":"integer"}},"one":{"type":["null","object"],"properties":{"n":{"type":"integer"}}},"parts":{"type":["array","object","null"]},
		"by":{"additionalProperties":{"type":"integer"},"properties":{"name":{"type":"string"}}}},
		"patternProperties":{"^x_":{"type":"integer"}},"$defs":{"cents":{"type":"integer"}}}`
	s, err := Compile(schema)
	if err != nil {
		t.Fatal(err)
	}
	name := func(n string) Step { return Step{Name: n} }
	element := func(i int) Step { return Step{Element: true, Index: i} }
	for _, c := range []struct {
		want string
		path []Step
	}{
		{Object, nil},
		{Integer, []Step{name("n")}}, {Number, []Step{name("p")}}, {"", []Step{name("either")}}, {"", []Step{name("none")}}, {"", []Step{name("nothing")}},
		{Integer, []Step{name("ref")}}, {Integer, []Step{name("both")}}, {Integer, []Step{name("any")}}, {"", []Step{name("mixed")}}, {"", []Step{name("some")}},
		{Integer, []Step{name("enum")}}, {"", []Step{name("fine")}}, {String, []Step{name("word")}}, {Boolean, []Step{name("yes")}}, {Integer, []Step{name("x_1")}},
		{Array, []Step{name("rows")}}, {Integer, []Step{name("rows"), element(-1), name("n")}}, {Integer, []Step{name("rows"), element(3), name("n")}}, {"", []Step{name("rows"), element(0)}},
		{Integer, []Step{name("pair"), element(0)}}, {String, []Step{name("pair"), element(1)}}, {Boolean, []Step{name("pair"), element(2)}}, {"", []Step{name("pair"), element(-1)}},
		{Array, []Step{name("list")}}, {Integer, []Step{name("list"), element(-1)}}, {Object, []Step{name("one")}}, {Integer, []Step{name("one"), name("n")}}, {"", []Step{name("parts")}},
		{String, []Step{name("by"), name("name")}}, {Integer, []Step{name("by"), name("else")}},
	} {
		if got := s.Type(c.path...); got != c.want {
			t.Errorf("%v: %q, want %q", c.path, got, c.want)
		}
	}
	if none := (*Schema)(nil); none.Type(name("n")) != "" {
		t.Error("no schema proves something")
	}
}
