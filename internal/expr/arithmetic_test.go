package expr

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"

	"duly.dev/duly/internal/core"
)

const typedInput = `{"type":"object","properties":{"cents":{"type":"integer"},"price":{"type":"number"},"name":{"type":"string"},"either":{"type":["integer","null"]},
	"by":{"properties":{"total":{"$ref":"#/$defs/cents"}}},"pair":{"prefixItems":[{"type":"integer"}]},"list":{"items":{"type":"integer"},"type":"array"},
	"rows":{"type":"array","items":{"properties":{"price":{"type":"integer"},"count":{"type":"integer"}}}}},"$defs":{"cents":{"type":"integer"}}}`

// typedPlan has a signal a, whose answer has a schema, and an expression behind it.
func typedPlan(schema, source string, f field) *core.Plan {
	return order(func(p *core.Plan) {
		p.InputSchema = schema
		p.Steps[0] = core.Step{Name: "a", Kind: core.SignalStep, Schema: `{"type":"object","properties":{"cents":{"type":"integer"}}}`}
		switch f {
		case fieldWhen:
			p.Steps[2].When = source
		case fieldWith:
			p.Steps[2].Input = source
		case fieldElements:
			p.Steps[3] = core.Step{Name: "d", Kind: core.EachStep, Child: "q", Elements: "input.rows.filter(r, r.count > 1)", Input: source, ElementsMax: 9}
		}
	})
}

// free are expressions whose types do not depend on data that fits typedInput.
var free = []string{
	`input.cents / 100`, `input.cents % 7 + input.by.total`, `-input.cents * 2`, `input["cents"] - input["by"]["total"]`, `(input.cents + input.by.total) * 2`, `double(input.price) / 100.0`,
	`int(input.price) / 2`, `input.pair[0] + 1`, `input.list[1] + 1`, `input.list.map(n, n * 2)`, `input.rows.map(r, r.price * r.count)`, `input.rows.filter(r, r.count > 1).map(r, r.price + 1)`,
	`input.rows.transformList(i, r, i + r.count)`, `cel.bind(x, input.cents, x * x)`, `input.list.all(n, n / 2 < 9)`, `math.abs(input.cents)`, `math.greatest(input.cents, 5) / 2`, `math.ceil(double(input.price))`,
	`(has(input.cents) ? input.cents : 0) / 2`, `input.name + "/" + string(input.price)`, `"a" + input.name + input.name`, `input.name + input.name`, `[1] + input.list`, `results.a.cents / 2`, `results["a"].cents * input.cents`,
	`timestamp(0) + duration("1h")`, `size(input.rows) * 2`, `input.price > 2 && input.price < 3.5`, `input.cents == input.price || input.either in [1, 2.5]`, `math.greatest(input.price, 1)`,
}

// Arithmetic on what may be an int for one task and a double for the next is refused where a plan is applied, with the way
// out; comparisons and all that joins are free.
//
// covers: W12
func TestArithmeticNeedsAType(t *testing.T) {
	const depends = "what type %s has depends on the data: say int(%[1]s) or double(%[1]s)"
	inSchema := depends + ", or give the plan an input_schema in which it is an integer"
	for _, c := range []struct{ schema, source, want string }{
		{``, `input.cents / 100 > 2`, fmt.Sprintf("line 1, column 1: "+inSchema+"\n | input.cents / 100 > 2\n | ^", "input.cents")},
		{``, `1 + input.a + input.b > 2`, fmt.Sprintf("column 5: "+inSchema, "input.a")},
		{typedInput, `input.price / 100 > 2`, "column 1: input.price may be whole or not: say double(input.price)"},
		{typedInput, `input.either / 100 > 2`, fmt.Sprintf(inSchema, "input.either")},
		{typedInput, `input.cents * 1.5 > 2.0`, "column 1: * does not go with an int and a double; int(), double() and string() convert"},
		{typedInput, `input.name - 1 > 2`, "- does not go with a string and an int"},
		{typedInput, `input.rows.exists(r, r.weight * 2 > 1)`, fmt.Sprintf("column 22: "+inSchema, "r.weight")},
		{typedInput, `input.exists(k, k + 1 > 2)`, "+ does not go with a string and an int"},
		{``, `input.rows.exists(r, r % 2 == 1)`, fmt.Sprintf("column 22: "+inSchema, "r")},
		{``, `cel.bind(x, input.n, -x > 1)`, fmt.Sprintf(inSchema, "x")},
		{``, `input.rows[0] + 1 > 2`, fmt.Sprintf(inSchema, "input.rows[0]")},
		{``, `[input.rows[0], 1].exists(x, x / 2 > 1)`, fmt.Sprintf(depends, "x")},
		{``, `(true ? input.a : 5) / 2 > 1`, "depends on the data"},
		{``, `math.ceil(input.p) > 1`, fmt.Sprintf(inSchema, "input.p")},
		{``, `math.greatest(input.p, 1) / 2 > 1`, "depends on the data"},
		{``, `results.b.n - 1 > 2`, fmt.Sprintf(depends+"\n", "results.b.n")},
		{``, `results.a.n * 2 > 2`, fmt.Sprintf(depends+", or give step a a schema in which it is an integer", "results.a.n")},
		{``, `input.at - duration("1h") > timestamp(0)`, "say timestamp(input.at) or duration(input.at)"},
	} {
		if _, err := Compile(typedPlan(c.schema, c.source, fieldWhen)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.source, err, c.want)
		}
	}
	for _, source := range free {
		if _, err := Compile(typedPlan(typedInput, source, fieldWith)); err != nil {
			t.Error(err)
		}
	}
	if _, err := Compile(typedPlan(typedInput, `element.price * 2 + index`, fieldElements)); err != nil {
		t.Error(err)
	}
	if _, err := Compile(typedPlan(typedInput, `element.weight * 2`, fieldElements)); err == nil || !strings.Contains(err.Error(), "element.weight has depends on the data") {
		t.Error(err)
	}
	if _, err := NewKey(`input.n % 10`); err == nil || err.Error() != "line 1, column 1: what type input.n has depends on the data: say int(input.n) or double(input.n)" {
		t.Errorf("a limit's key: %v", err)
	}
	if _, err := NewKey(`int(input.n) % 10`); err != nil {
		t.Error(err)
	}
}

// For drawn data that fits the schema, an expression that was taken gives one type, whatever the data is, unless it fails.
//
// covers: W12
func TestOneType(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	whole := func() json.Number { // of all spellings
		n := draw.IntN(2000) - 1000
		return []json.Number{json.Number(fmt.Sprint(n)), json.Number(fmt.Sprintf("%d.0", n)), json.Number(fmt.Sprintf("%de0", n))}[draw.IntN(3)]
	}
	data := func() string {
		list, rows := []any{}, []any{}
		for range 2 + draw.IntN(3) {
			list, rows = append(list, whole()), append(rows, map[string]any{"price": whole(), "count": whole()})
		}
		text, err := json.Marshal(map[string]any{"cents": whole(), "price": []any{whole(), json.Number("2.5")}[draw.IntN(2)], "name": "n", "either": []any{whole(), nil}[draw.IntN(2)],
			"by": map[string]any{"total": whole()}, "pair": []any{whole(), "x"}, "list": list, "rows": rows})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, source := range free {
		if strings.HasPrefix(source, "math.greatest(input.price") {
			continue // it chooses, and calculates nothing
		}
		p := compile(t, typedPlan(typedInput, source, fieldWith))
		x := p.exprs[place{2, fieldWith}]
		types := map[string]string{}
		for range 200 {
			input := data()
			task := taskOf(input, `{"cents":`+string(whole())+`}`, `1`)
			v, _, err := x.program.Eval(cel.Activation(&view{p: p, t: task, step: 2, x: x}))
			if err != nil {
				t.Errorf("%s of %s: %v", source, input, err)
				break
			}
			is := v.Type().TypeName()
			if types[is] = input; len(types) > 1 {
				t.Errorf("%s has a type by its data: %v", source, types)
				break
			}
		}
	}
}
