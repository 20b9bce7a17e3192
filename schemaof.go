package duly

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/invopop/jsonschema"
)

// schemaOf is the schema of a Go type.
func schemaOf(t reflect.Type, more []SchemaOption) (schema string, err error) {
	defer func() {
		if r := recover(); r != nil { // the library's answer to a type that no JSON has
			err = fmt.Errorf("type %v has no schema: %v", t, r)
		}
	}()
	if t.Kind() == reflect.Interface {
		return "", fmt.Errorf("type %v can be anything: give the schema as JSON", t)
	}
	names := typeNames{}
	r := jsonschema.Reflector{Anonymous: true, ExpandedStruct: t.Kind() == reflect.Struct, AllowAdditionalProperties: true, Namer: names.of, Mapper: asWritten}
	made := r.ReflectFromType(t)
	w := widening{made.Definitions, map[*jsonschema.Schema]bool{}}
	w.widen(made, t, false)
	for _, o := range more {
		extra(made, o.word, true)
	}
	data, err := json.Marshal(made)
	if err != nil {
		return "", fmt.Errorf("schema of %v: %w", t, err)
	}
	return string(data), nil
}

// extra gives a schema a member that the library has no field for.
func extra(s *jsonschema.Schema, word string, is any) {
	s.Extras = maps.Clone(s.Extras)
	if s.Extras == nil {
		s.Extras = map[string]any{}
	}
	s.Extras[word] = is
}

// typeNames are the types by their names in a schema: two types of one name are two, and a name is part of a reference.
type typeNames map[string]reflect.Type

func (n typeNames) of(t reflect.Type) string {
	if t.Name() == "" {
		return ""
	}
	plain := strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '_'
	}, t.Name())
	for i := 1; ; i++ {
		name := plain
		if i > 1 {
			name += "_" + strconv.Itoa(i)
		}
		if is, taken := n[name]; !taken || is == t {
			n[name] = t
			return name
		}
	}
}

// Types that JSON is not written of as of their kinds, or that the library knows.
var (
	timeType      = reflect.TypeFor[time.Time]()
	numberType    = reflect.TypeFor[json.Number]()
	urlType       = reflect.TypeFor[url.URL]()
	marshalerType = reflect.TypeFor[json.Marshaler]()
	textType      = reflect.TypeFor[encoding.TextMarshaler]()
)

// ownSchema reports whether a type says itself what its schema is.
func ownSchema(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[interface{ JSONSchema() *jsonschema.Schema }]()) || t.Implements(reflect.TypeFor[interface{ JSONSchemaAlias() any }]()) ||
		t.Implements(reflect.TypeFor[interface{ JSONSchemaProperty(prop string) any }]()) || t.Implements(reflect.TypeFor[interface{ JSONSchemaExtend(*jsonschema.Schema) }]())
}

// asWritten is the schema of a type that encoding/json writes unlike others of its kind; nil: it is for the library.
func asWritten(t reflect.Type) *jsonschema.Schema {
	writes := func(t, how reflect.Type) bool { return reflect.PointerTo(t).Implements(how) }
	switch {
	case t == timeType || ownSchema(t):
		return nil
	case t == numberType:
		return &jsonschema.Schema{Type: "number"}
	case t == urlType, writes(t, marshalerType), writes(t, textType) && !t.Implements(textType): // of a pointer's method it may be either
		return &jsonschema.Schema{}
	case t.Implements(textType):
		return &jsonschema.Schema{Type: "string"}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && !writes(t.Elem(), marshalerType) && !writes(t.Elem(), textType):
		return &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}
	}
	return nil
}

// widening has a schema that the library made of a type accept all that encoding/json writes of the type.
type widening struct {
	defs jsonschema.Definitions
	seen map[*jsonschema.Schema]bool
}

const refPrefix = "#/$defs/"

// widen widens the schema of a type. omitted: where a value of it is empty it is not written.
func (w *widening) widen(s *jsonschema.Schema, t reflect.Type, omitted bool) {
	if len(s.OneOf) == 2 && s.OneOf[1].Type == "null" { // by the library's tag nullable
		*s, omitted = *s.OneOf[0], false
		defer w.orNull(s)
	}
	null := false
	for ; t.Kind() == reflect.Pointer; t = t.Elem() {
		null, omitted = null || !omitted, false
	}
	is := s
	if s.Ref != "" {
		is = w.defs[strings.TrimPrefix(s.Ref, refPrefix)]
	}
	if is != nil && !w.seen[is] && !ownSchema(t) {
		w.seen[is] = true
		w.inner(is, t)
	}
	if k := t.Kind(); k == reflect.Map || k == reflect.Slice && !positive(s.MinItems) && !positive(s.MinLength) {
		null = null || !omitted
	}
	if null {
		w.orNull(s)
	}
}

func positive(n *uint64) bool { return n != nil && *n > 0 }

// inner widens what a schema has for the parts of a type.
func (w *widening) inner(s *jsonschema.Schema, t reflect.Type) {
	switch t.Kind() {
	case reflect.Struct:
		if s.Properties == nil {
			return
		}
		all := map[string]member{}
		members(t, all)
		if always, known := alwaysWritten(t); known {
			s.Required = slices.DeleteFunc(s.Required, func(name string) bool { _, is := always[name]; return !is && !all[name].must })
		}
		for name, m := range all {
			property, there := s.Properties.Get(name)
			switch {
			case !there:
			case m.is == nil:
				s.Properties.Set(name, &jsonschema.Schema{})
			default:
				w.widen(property, m.is, m.omitted)
			}
		}
	case reflect.Slice, reflect.Array:
		if s.Items != nil {
			w.widen(s.Items, t.Elem(), false)
		}
	case reflect.Map:
		of, ints := s.PatternProperties["^[0-9]+$"]
		switch {
		case ints && t.Key().Implements(textType):
			s.PatternProperties, s.AdditionalProperties = nil, of
		case ints:
			s.PatternProperties = map[string]*jsonschema.Schema{"^-?[0-9]+$": of}
		default:
			of = s.AdditionalProperties
		}
		if of != nil {
			w.widen(of, t.Elem(), false)
		}
	}
}

// alwaysWritten are the members that encoding/json writes of every value of a struct type, which are those of its zero value.
func alwaysWritten(t reflect.Type) (always map[string]json.RawMessage, known bool) {
	defer func() {
		if recover() != nil { // of a method of a field, which cannot write its zero value
			known = false
		}
	}()
	data, err := json.Marshal(reflect.Zero(t).Interface())
	return always, err == nil && json.Unmarshal(data, &always) == nil
}

// member is one of a struct type, as the library names it.
type member struct {
	is      reflect.Type // nil: of several types, of which encoding/json chooses one or none
	omitted bool         // where it is empty
	must    bool         // a tag says that it is required
}

func members(t reflect.Type, all map[string]member) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		embeds := f.Type
		if embeds.Kind() == reflect.Pointer {
			embeds = embeds.Elem()
		}
		switch {
		case name == "-" || !f.Anonymous && !f.IsExported():
			continue
		case f.Anonymous && name == "" && embeds.Kind() == reflect.Struct:
			members(embeds, all)
			continue
		case name == "":
			name = f.Name
		}
		has := func(list, word string) bool { return slices.Contains(strings.Split(list, ","), word) }
		m := member{f.Type, has(options, "omitempty") || has(options, "omitzero"), has(f.Tag.Get("jsonschema"), "required")}
		if is, twice := all[name]; twice && is != m {
			m.is = nil
		}
		all[name] = m
	}
}

// orNull has a schema accept null as well.
func (w *widening) orNull(s *jsonschema.Schema) {
	name := strings.TrimPrefix(s.Ref, refPrefix)
	switch def := w.defs[name]; {
	case s.Ref != "" && def != nil && !strings.HasSuffix(name, nullSuffix):
		if w.defs[name+nullSuffix] == nil {
			is := *def
			w.defs[name+nullSuffix] = &is
			w.orNull(&is)
		}
		s.Ref += nullSuffix
	case s.Ref != "" && def != nil:
	case s.Type != "":
		extra(s, "type", []string{s.Type, "null"})
		s.Type = ""
		if s.Enum != nil {
			s.Enum = append(slices.Clone(s.Enum), nil)
		}
	case s.Extras["type"] != nil:
	case len(s.OneOf)+len(s.AnyOf)+len(s.AllOf)+len(s.Enum) > 0 || s.Const != nil || s.Ref != "":
		own := *s
		*s = jsonschema.Schema{AnyOf: []*jsonschema.Schema{&own, {Type: "null"}}}
	}
}

// nullSuffix ends the name of a schema that accepts null as well: no type has such a name.
const nullSuffix = "-null"
