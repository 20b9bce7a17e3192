package quickjson

import (
	stdjson "encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// CheckMembers wants the members of a JSON object, and of the objects in its lists, to be written as a form, a struct, has
// them, and none that may be left out (omitempty) to be null or empty text: encoding/json takes a name in any case, and null
// as if nothing was said. Members that the form has not, and values of another kind, are left to the decoder. What is raw
// JSON in the form may be anything.
func CheckMembers(data []byte, form reflect.Type) error { return checkMembers("", data, form) }

func checkMembers(at string, data []byte, form reflect.Type) error {
	var members map[string]stdjson.RawMessage
	if stdjson.Unmarshal(data, &members) != nil {
		return nil
	}
	fields := formOf(form)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		field, known := fields[name]
		if !known {
			if want := meant(fields, name); want != "" {
				return fmt.Errorf("%s%s is written %s", at, name, want)
			}
			continue
		}
		if field.Type == reflect.TypeFor[stdjson.RawMessage]() {
			continue
		}
		if err := checkMember(at+name, members[name], field); err != nil {
			return err
		}
	}
	return nil
}

// forms are the fields of the forms that were checked: a plan has up to a thousand steps of one form.
var forms sync.Map // reflect.Type to map[string]reflect.StructField

// formOf are the fields of a form by their names in JSON.
func formOf(form reflect.Type) map[string]reflect.StructField {
	if known, ok := forms.Load(form); ok {
		return known.(map[string]reflect.StructField)
	}
	fields := map[string]reflect.StructField{}
	for field := range form.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fields[name] = field
	}
	forms.Store(form, fields)
	return fields
}

// meant is the field that encoding/json takes a member for, whose name is none; empty: it takes it for none.
func meant[F any](fields map[string]F, name string) string {
	for field := range fields {
		if strings.EqualFold(name, field) {
			return field
		}
	}
	return ""
}

func checkMember(at string, value stdjson.RawMessage, field reflect.StructField) error {
	if strings.HasSuffix(field.Tag.Get("json"), ",omitempty") {
		switch string(value) {
		case "null":
			return fmt.Errorf("%s is null: leave it out, if nothing is said of it", at)
		case `""`:
			return fmt.Errorf("%s is empty", at)
		}
	}
	var items []stdjson.RawMessage
	if field.Type.Kind() != reflect.Slice || field.Type.Elem().Kind() != reflect.Struct || stdjson.Unmarshal(value, &items) != nil {
		return nil
	}
	for i, item := range items {
		if err := checkMembers(fmt.Sprintf("%s[%d].", at, i), item, field.Type.Elem()); err != nil {
			return err
		}
	}
	return nil
}
