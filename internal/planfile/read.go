package planfile

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/decimal"
	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/jsonschema"
	"duly.dev/duly/internal/near"
	"duly.dev/duly/internal/planform"
)

// Read reads a plan from a file, YAML or JSON, whose name stands in errors, and checks all that can be checked without a
// server: names, types, order, limits, expressions. payloadMax is as core.Plan.Validate's. The plan has no defaults
// filled in, its steps are in an order in which each stands behind those that it comes after. The error is an errorList.
func Read(name string, data []byte, payloadMax int) (core.Plan, error) {
	f := &file{name: name}
	root := f.parse(data)
	if root == nil {
		return core.Plan{}, f.err()
	}
	r := reader{file: f, root: root}
	p := r.plan(payloadMax)
	return p, f.err()
}

// reader makes a plan of a file's tree. What is wrong is left out of the plan, so that the rest can be checked as well:
// one run tells all that can be known.
type reader struct {
	*file
	root  *node
	steps []*node // in the order of the plan

	loose bool // the order of the steps is not what the file means
}

func (r *reader) plan(payloadMax int) core.Plan {
	var form planform.Plan
	if r.root.kind != mapping {
		r.wrong(r.root.at, "want a plan: a mapping with name, version and steps, got %s", kindNames[r.root.kind])
		return core.Plan{}
	}
	r.fill(r.root, reflect.ValueOf(&form).Elem(), "plan")
	for _, need := range []string{"name", "version", "steps"} {
		if r.root.member(need) == nil && !r.root.told[need] {
			r.wrong(r.root.at, "the plan has no %s", need)
			r.root.tell(need)
		}
	}
	r.readSteps(&form)
	if r.root.told["complete_by"] { // the steps are not compared with its default
		most := int64(core.DurationMax / time.Millisecond)
		form.CompleteBy = &most
	}
	data, err := json.Marshal(form)
	if err != nil {
		r.wrong(r.root.at, "%v", err)
		return core.Plan{}
	}
	p, err := planform.Decode(data)
	if _, all := errors.AsType[core.PlanErrors](err); err != nil && !all {
		if len(r.errors) == 0 {
			r.wrong(r.root.at, "%s", strings.TrimPrefix(err.Error(), core.ErrPlan.Error()+": "))
		}
		return core.Plan{}
	}
	r.point(err)
	r.check(&p, payloadMax)
	return p
}

// check points at what core, jsonschema and expr refuse.
func (r *reader) check(p *core.Plan, payloadMax int) {
	full := p.WithDefaults()
	r.point(full.Validate(payloadMax))
	if len(p.Steps) > core.StepsMax {
		return
	}
	r.point(jsonschema.CheckPlan(&full))
	_, err := expr.Compile(&full)
	all, _ := errors.AsType[expr.Errors](err)
	for _, e := range all {
		if r.loose && e.Result != "" && p.StepIndex(e.Result) >= 0 {
			continue // it may come before, once the order is right
		}
		of, step := r.root, ""
		if e.Step >= 0 {
			of, step = r.steps[e.Step], r.label(e.Step)+": "
		}
		if of.told[e.Field] || of.told["kind"] {
			continue
		}
		at := of.at
		if n := of.member(e.Field); n != nil {
			at = r.in(n.value, e.Line, e.Column)
		}
		r.wrong(at, "%s%s: %s", step, e.Field, e.Text)
	}
	if err != nil && len(all) == 0 {
		r.wrong(r.root.at, "%v", err)
	}
}

// label names a step as the file does.
func (r *reader) label(step int) string {
	if name := r.steps[step].member("name"); name != nil && name.value.kind == text && !r.steps[step].told["name"] {
		return "step " + core.ShortText(name.value.text, core.NameBytesMax)
	}
	return "the step"
}

// point points at errors of a plan, unless something is said of the place already.
func (r *reader) point(err error) {
	all, is := errors.AsType[core.PlanErrors](err)
	if err != nil && !is {
		r.wrong(r.root.at, "%v", err)
	}
	for _, e := range all {
		of, step := r.root, ""
		if e.Step >= 0 {
			of, step = r.steps[e.Step], r.label(e.Step)+": "
			if of.told["kind"] {
				continue // what it may say depends on that
			}
		}
		if of.told[e.Field] || of.broken && of.member(e.Field) == nil || e.Field == "" && len(of.told) > 0 {
			continue
		}
		of.tell(e.Field)
		at := r.placeOf(of, e.Field)
		if m := of.member(e.Field); m != nil {
			if place, ok := errors.AsType[*jsonschema.Mismatch](e); ok {
				at = m.value.behind(place.Pointer).at
			}
		}
		r.wrong(at, "%s%s", step, e.Text())
	}
}

// placeOf is where a field of a plan or step stands; of one that is not there, where the plan or step begins.
func (r *reader) placeOf(of *node, field string) pos {
	for _, name := range []string{field, field + "_ms"} {
		if m := of.member(name); m != nil && field != "" {
			return m.value.at
		}
	}
	return of.at
}

// behind is the node that a JSON pointer leads to, as far as there is one.
func (n *node) behind(pointer string) *node {
	for _, part := range strings.Split(pointer, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		if m := n.member(part); m != nil {
			n = m.value
		} else if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(n.items) {
			n = n.items[i]
		}
	}
	return n
}

// member is the member of that name, or nil.
func (n *node) member(name string) *member {
	for i := range n.members {
		if n.members[i].name == name {
			return &n.members[i]
		}
	}
	return nil
}

// expressions are the fields that hold one, so that a bare true or 5 is meant as text.
var expressions = map[string]bool{"when": true, "with": true, "until": true, "elements": true, "result": true}

// fill fills the fields of a form, a planform.Plan or planform.Step, from a mapping. steps is filled elsewhere.
func (r *reader) fill(n *node, form reflect.Value, what string) {
	fields := map[string]reflect.Value{}
	var known []string
	for i := range form.NumField() {
		name, _, _ := strings.Cut(form.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = form.Field(i)
		known = append(known, name)
		if short, ok := strings.CutSuffix(name, "_ms"); ok {
			known = append(known, short)
		}
	}
	for _, m := range n.members {
		if m.name == "steps" && what == "plan" {
			continue
		}
		before := len(r.errors)
		field := strings.TrimSuffix(m.name, "_ms")
		if into, ok := fields[m.name]; ok {
			r.value(m, into)
		} else if into, ok = fields[m.name+"_ms"]; ok {
			if n.member(m.name+"_ms") != nil {
				r.wrong(m.at, "%s and %s_ms are said, want one of them", m.name, m.name)
			} else {
				r.duration(m, into)
			}
		} else {
			meant := near.Nearest(m.name, known)
			if r.wrong(m.at, "a %s has no %q%s", what, core.ShortText(m.name, 64), planform.Meant(m.name, known)); meant != "" {
				field = strings.TrimSuffix(meant, "_ms")
			}
		}
		if len(r.errors) > before {
			n.tell(field)
		}
	}
}

// value fills one field.
func (r *reader) value(m member, into reflect.Value) {
	v := m.value
	switch into.Interface().(type) {
	case string:
		if v.kind == text || expressions[m.name] && (v.kind == number || v.kind == boolean) {
			if into.SetString(v.text); v.text == "" {
				r.wrong(v.at, "%s is empty", m.name)
			}
			return
		}
		want := "want text"
		if expressions[m.name] {
			want = "want an expression, as text in quotes or behind |"
		}
		r.wrong(v.at, "%s: %s, got %s", m.name, want, kindNames[v.kind])
	case *bool, bool:
		if v.kind != boolean {
			r.wrong(v.at, "%s: want true or false, got %s", m.name, kindNames[v.kind])
			return
		}
		yes := strings.EqualFold(v.text, "true")
		if into.Kind() == reflect.Bool {
			into.SetBool(yes)
			return
		}
		into.Set(reflect.ValueOf(&yes))
	case int:
		if n, ok := r.whole(m); ok {
			into.SetInt(n)
		}
	case int64:
		if n, ok := r.whole(m); ok {
			into.SetInt(n)
		}
	case *int64:
		n, ok := r.whole(m)
		if ok && n == 0 && m.name != "failures_max" {
			r.wrong(v.at, "%s is 0, want 1 or more, or nothing said", m.name)
		}
		into.Set(reflect.ValueOf(&n))
	case []string:
		into.Set(reflect.ValueOf(r.names(m)))
	case *[]string:
		names := r.names(m)
		into.Set(reflect.ValueOf(&names))
	case json.RawMessage:
		r.schema(m, into)
	default:
		panic("planfile: no way to read " + into.Type().String() + " of " + m.name) // a field of the form that is new
	}
}

// whole reads a whole number.
func (r *reader) whole(m member) (int64, bool) {
	if m.value.kind == number {
		n, err := strconv.ParseInt(strings.ReplaceAll(m.value.text, "_", ""), 0, 64)
		if err == nil {
			return n, true
		}
		r.wrong(m.value.at, "%s: want a whole number, got %s", m.name, core.ShortText(m.value.text, 40))
		return 0, false
	}
	r.wrong(m.value.at, "%s: want a whole number, got %s", m.name, kindNames[m.value.kind])
	return 0, false
}

// duration reads a duration as text.
func (r *reader) duration(m member, into reflect.Value) {
	v := m.value
	d, err := time.ParseDuration(v.text)
	switch {
	case v.kind == number:
		r.wrong(v.at, "%s: want a duration with its unit, such as 30s, got %s; for milliseconds there is %s_ms", m.name, core.ShortText(v.text, 40), m.name)
	case v.kind != text || err != nil:
		got := kindNames[v.kind]
		if v.kind == text {
			got = core.QuoteShort(v.text)
		}
		r.wrong(v.at, "%s: want a duration, such as 30s or 1h30m, got %s", m.name, got)
	case d == 0 || d%time.Millisecond != 0:
		r.wrong(v.at, "%s is %v, want whole milliseconds, 1ms or more", m.name, d)
	default:
		ms := d.Milliseconds()
		into.Set(reflect.ValueOf(&ms))
	}
}

// names reads a list of names; it is not nil.
func (r *reader) names(m member) []string {
	names := []string{}
	if m.value.kind != list {
		r.wrong(m.value.at, "%s: want a list of names of steps, got %s", m.name, kindNames[m.value.kind])
		return names
	}
	for _, item := range m.value.items {
		if item.kind != text {
			r.wrong(item.at, "%s: want the name of a step, got %s", m.name, kindNames[item.kind])
			continue
		}
		names = append(names, item.text)
	}
	return names
}

// schema reads a JSON Schema, written as what it is or as its JSON in a text.
func (r *reader) schema(m member, into reflect.Value) {
	v := m.value
	if v.kind == text {
		if !json.Valid([]byte(v.text)) {
			r.wrong(v.at, "%s: want a JSON Schema: a mapping, true, false or JSON in a text", m.name)
			return
		}
		into.SetBytes([]byte(v.text))
		return
	}
	if v.kind != mapping && v.kind != boolean {
		r.wrong(v.at, "%s: want a JSON Schema: a mapping, true, false or JSON in a text, got %s", m.name, kindNames[v.kind])
		return
	}
	data, err := json.Marshal(r.plain(v))
	if err != nil {
		r.wrong(v.at, "%s: %v", m.name, err)
		return
	}
	into.SetBytes(data)
}

// plain is a node as encoding/json has it, numbers with all their digits.
func (f *file) plain(n *node) any {
	switch n.kind {
	case boolean:
		return strings.EqualFold(n.text, "true")
	case number:
		text := strings.ReplaceAll(n.text, "_", "")
		if i, err := strconv.ParseInt(text, 0, 64); err == nil { // YAML's 0x10 and 0b11 as well
			return i
		}
		canon, err := decimal.Canon(text)
		if err != nil {
			f.wrong(n.at, "number %v", err)
			return 0
		}
		return json.Number(canon)
	case text:
		return n.text
	case list:
		all := make([]any, 0, len(n.items))
		for _, x := range n.items {
			all = append(all, f.plain(x))
		}
		return all
	case mapping:
		all := map[string]any{}
		for _, m := range n.members {
			all[m.name] = f.plain(m.value)
		}
		return all
	}
	return nil
}
