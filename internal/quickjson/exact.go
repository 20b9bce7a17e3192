package quickjson

import (
	"encoding"
	stdjson "encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Unmarshal is that of encoding/json, but takes members for fields by their exact names: encoding/json also takes one in
// other case, which a schema or an expression reads as another member. The error about one is a *NameError.
func Unmarshal(data []byte, into any) error {
	if err := stdjson.Unmarshal(data, into); err != nil {
		return err
	}
	t := reflect.TypeOf(into).Elem()
	if !namesOf(t).like(data) {
		return nil
	}
	return misnamed(t, data)
}

// NameError says that a member is like a field's name, and not the same.
type NameError struct{ Member, Field string }

// Error names both.
func (e *NameError) Error() string {
	return fmt.Sprintf("member %.40q is none that is known: %q is", e.Member, e.Field)
}

// nameSet are the names of all fields that a type has, however deep.
type nameSet struct {
	all  []string
	only map[string]bool // false: of another case than another
}

var nameSets sync.Map // by reflect.Type

func namesOf(t reflect.Type) *nameSet {
	if s, ok := nameSets.Load(t); ok {
		return s.(*nameSet)
	}
	s := &nameSet{only: map[string]bool{}}
	s.addType(t, map[reflect.Type]bool{})
	nameSets.Store(t, s)
	return s
}

func (s *nameSet) addType(t reflect.Type, seen map[reflect.Type]bool) {
	if seen[t] || decodesItself(t) {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Array:
		s.addType(t.Elem(), seen)
	case reflect.Struct:
		for name, of := range fieldsOf(t) {
			s.addName(name)
			s.addType(of, seen)
		}
	}
}

func (s *nameSet) addName(name string) {
	if _, has := s.only[name]; has {
		return
	}
	s.only[name] = true
	for _, other := range s.all {
		if strings.EqualFold(other, name) {
			s.only[other], s.only[name] = false, false
		}
	}
	s.all = append(s.all, name)
}

// like reports whether valid JSON may have a member that is like a field's name, and not the same.
func (s *nameSet) like(data []byte) (found bool) {
	if len(s.all) == 0 {
		return false
	}
	eachName(data, func(name []byte) bool {
		found = !s.only[string(name)] && slices.ContainsFunc(s.all, func(field string) bool { return strings.EqualFold(field, string(name)) })
		return !found
	})
	return found
}

var (
	jsonItself = reflect.TypeFor[stdjson.Unmarshaler]()
	textItself = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decodesItself reports whether a type has its own way to be decoded.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonItself) || p.Implements(textItself)
}

// fieldsOf are the fields of a struct that JSON has, by name, with those of structs that it embeds.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	addFields(t, all, map[reflect.Type]bool{})
	return all
}

func addFields(t reflect.Type, all map[string]reflect.Type, seen map[reflect.Type]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		if of := f.Type; f.Anonymous && name == "" {
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			if of.Kind() == reflect.Struct {
				addFields(of, all, seen)
				continue
			}
		}
		if name == "" {
			name = f.Name
		}
		if _, nearer := all[name]; f.IsExported() && tag != "-" && !nearer {
			all[name] = f.Type
		}
	}
}

// misnamed is an error about the first member that a type has a field for only in other case.
func misnamed(t reflect.Type, data []byte) error {
	for t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	if decodesItself(t) {
		return nil
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return misnamedMember(t, data)
	case reflect.Slice, reflect.Array:
		var all []stdjson.RawMessage
		_ = stdjson.Unmarshal(data, &all) // it was decoded before: what fails is null, or bytes
		for _, element := range all {
			if err := misnamed(t.Elem(), element); err != nil {
				return err
			}
		}
	}
	return nil
}

func misnamedMember(t reflect.Type, data []byte) error {
	var all map[string]stdjson.RawMessage
	_ = stdjson.Unmarshal(data, &all) // it was decoded before: what fails is null
	var fields map[string]reflect.Type
	if t.Kind() == reflect.Struct {
		fields = fieldsOf(t)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		of := fields[name]
		if fields == nil {
			of = t.Elem()
		}
		if of == nil {
			if field := meant(fields, name); field != "" {
				return &NameError{name, field}
			}
			continue
		}
		if err := misnamed(of, all[name]); err != nil {
			return err
		}
	}
	return nil
}
