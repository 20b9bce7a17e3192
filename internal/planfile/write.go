package planfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/planform"
	"duly.dev/duly/internal/sheet"
)

// Write is a plan as a file, YAML: what has its default is left out, so that Read gives a plan of the same meaning.
func Write(p *core.Plan) ([]byte, error) {
	data, err := planform.Encode(said(p))
	if err != nil {
		return nil, err
	}
	var form planform.Plan
	if err := json.Unmarshal(data, &form); err != nil {
		return nil, fmt.Errorf("plan %s: %w", p.Name, err)
	}
	form.V = 0
	for i := range form.Steps { // what a file means without saying it
		if after := *form.Steps[i].After; i == 0 && len(after) == 0 || i > 0 && slices.Equal(after, []string{form.Steps[i-1].Name}) {
			form.Steps[i].After = nil
		}
	}
	out, err := members(reflect.ValueOf(form))
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", p.Name, err)
	}
	text, err := yaml.MarshalWithOptions(out, yaml.UseLiteralStyleIfMultiline(true), yaml.IndentSequence(true))
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", p.Name, err)
	}
	return text, nil
}

// said is the plan without what has its default.
func said(p *core.Plan) *core.Plan {
	full := planform.Normal(p)
	out := planform.Normal(p)
	same := func() bool {
		again := planform.Normal(&out)
		return reflect.DeepEqual(again, full)
	}
	omit := func(of reflect.Value) {
		for i := range of.NumField() {
			f := of.Field(i)
			if name := of.Type().Field(i).Name; name == "Name" || name == "Version" || name == "Steps" || name == "Undoable" || f.IsZero() {
				continue
			}
			was := reflect.ValueOf(f.Interface())
			if f.SetZero(); !same() {
				f.Set(was)
			}
		}
	}
	for i := range out.Steps {
		omit(reflect.ValueOf(&out.Steps[i]).Elem())
	}
	omit(reflect.ValueOf(&out).Elem())
	return &out
}

// members are the fields of a form that are said, in their order, durations as text.
func members(form reflect.Value) (yaml.MapSlice, error) {
	var out yaml.MapSlice
	for i := range form.NumField() {
		f := form.Field(i)
		name, _, _ := strings.Cut(form.Type().Field(i).Tag.Get("json"), ",")
		if f.IsZero() {
			continue
		}
		var value any
		switch v := f.Interface().(type) {
		case *bool:
			if *v { // the default
				continue
			}
			value = false
		case *int64:
			if value = *v; strings.HasSuffix(name, "_ms") {
				name, value = strings.TrimSuffix(name, "_ms"), duration(*v)
			}
		case *[]string:
			names := make([]any, len(*v))
			for j, name := range *v {
				names[j] = quoted(name)
			}
			value = names
		case json.RawMessage:
			var err error
			if value, err = ordered(v); errors.Is(err, errName) {
				value = verbatim(sheet.JSON(v))
			} else if err != nil {
				return nil, err
			}
		case []planform.Step:
			steps := make([]yaml.MapSlice, len(v))
			for j := range v {
				step, err := members(reflect.ValueOf(v[j]))
				if err != nil {
					return nil, err
				}
				steps[j] = step
			}
			value = steps
		case string:
			value = quoted(v)
		default:
			value = v
		}
		out = append(out, yaml.MapItem{Key: name, Value: value})
	}
	return out, nil
}

// duration is milliseconds as a person writes them: 1h, not 1h0m0s.
func duration(ms int64) string {
	text := (time.Duration(ms) * time.Millisecond).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
