package expr

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// wholeNumbers are members of the inputs of these tests.
const wholeNumbers = `{"properties":{"total":{"type":"integer"},"a":{"type":"integer"},"n":{"type":"integer"},"one":{"type":"integer"},"z":{"type":"integer"},"least":{"type":"integer"},
	"rows":{"type":"array","items":{"properties":{"n":{"type":"integer"}}}}}}`

// order is a plan of checks a, b after a, c after b, and alone d, which comes after nothing.
func order(change func(*core.Plan)) *core.Plan {
	p := core.Plan{Name: "order", Version: 1, InputSchema: wholeNumbers, Steps: []core.Step{
		{Name: "a", Agent: "x"}, {Name: "b", Agent: "x", After: []int{0}}, {Name: "c", Agent: "x", After: []int{1}}, {Name: "my-step", Agent: "x"},
	}}
	change(&p)
	p = p.WithDefaults()
	return &p
}

// taskOf is a task with results of its first steps; "-" is of a step that was skipped.
func taskOf(input string, results ...string) *core.Task {
	t := &core.Task{ID: "t1", Input: []byte(input), Steps: make([]core.StepState, 4)}
	for i, r := range results {
		t.Steps[i].Status = core.StepDone
		switch r {
		case "-":
			t.Steps[i].Status = core.StepSkipped
		case "":
		default:
			t.Steps[i].Result = []byte(r)
		}
	}
	return t
}

func compile(t *testing.T, plan *core.Plan) *Program {
	t.Helper()
	if err := plan.Validate(1 << 20); err != nil {
		t.Fatal(err)
	}
	p, err := Compile(plan)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What an expression gives is what its JSON means, and the same each time.
func TestAnswers(t *testing.T) {
	for _, c := range []struct{ source, input, want string }{
		{`input.total * 2`, `{"total":60}`, `120`},
		{`input.total * 2`, `{"total":60.0}`, `120`},
		{`input.total * 2`, `{"total":6e1}`, `120`},
		{`double(input.total) * 1.5`, `{"total":3}`, `4.5`},
		{`double(input.total) * 2.0`, `{"total":60.5}`, `121`},
		{`input.total > 59.5`, `{"total":60}`, `true`},
		{`[input.n, input.m]`, `{"n":9223372036854775807,"m":9223372036854775808}`, `[9223372036854775807,9223372036854775808]`},
		{`{"b": input.x, "a": [1, 2.5, true, null], "t": "<é>"}`, `{"x":null}`, `{"a":[1,2.5,true,null],"b":null,"t":"<é>"}`},
		{`input`, `{"z":1,"y":{"q":[]},"s":"a\"b"}`, `{"s":"a\"b","y":{"q":[]},"z":1}`},
		{`input`, `null`, `null`},
		{`timestamp(input) + duration("1h")`, `"2027-01-31T09:00:00+02:00"`, `"2027-01-31T08:00:00Z"`},
		{`duration("90s")`, `1`, `"90s"`},
		{`results`, `1`, `{"a":{"score":7},"b":null}`},
		{"results.`my-step`", `1`, ``},
		{`int(results.a.score) + int(results["a"]["score"])`, `1`, `14`},
		{`has(results.b) ? "b" : "none"`, `1`, `"b"`},
		{`input.rows.filter(r, r.ok).map(r, r.id)`, `{"rows":[{"ok":true,"id":1},{"ok":false,"id":2},{"ok":true,"id":3}]}`, `[1,3]`},
		{`input.rows.map(input, input.id)`, `{"rows":[{"id":1}]}`, `[1]`},
		{`math.greatest(input.a, 4)`, `{"a":5}`, `5`},
		{`cel.bind(x, input.a, x + x)`, `{"a":5}`, `10`},
		{`sets.contains(input.all, ["a"])`, `{"all":["b","a"]}`, `true`},
		{`input.all.transformMap(i, v, v + 1)`, `{"all":[5]}`, ``},
		{`b"ab"`, `1`, `"YWI="`},
	} {
		plan := order(func(p *core.Plan) { p.Steps[2].Input = c.source })
		if c.want == "" { // refused below or at run time
			p, err := Compile(plan)
			if err == nil {
				_, err = p.Input(taskOf(c.input, `{"score":7}`, ""), 2)
			}
			if err == nil {
				t.Errorf("%s: no error", c.source)
			}
			continue
		}
		p := compile(t, plan)
		for range 2 {
			got, err := p.Input(taskOf(c.input, `{"score":7}`, ""), 2)
			if err != nil || string(got) != c.want {
				t.Errorf("%s of %s: %s, %v; want %s", c.source, c.input, got, err, c.want)
			}
		}
	}
}

// The result of a step that was skipped is missing, and has says so; a step without a result has null.
func TestSkippedResult(t *testing.T) {
	p := compile(t, order(func(p *core.Plan) { p.Steps[2].When = `has(results.b) && results.b.score > 5` }))
	for result, want := range map[string]bool{"-": false, `{"score":7}`: true, `{"score":5}`: false} {
		if got, err := p.When(taskOf(`{}`, `1`, result), 2); err != nil || got != want {
			t.Errorf("b is %s: %v, %v", result, got, err)
		}
	}
	if _, err := p.When(taskOf(`{}`, `1`, ``), 2); err == nil || !strings.HasPrefix(err.Error(), "step c: when: ") {
		t.Errorf("b has no result: %v", err)
	}
	in := compile(t, order(func(p *core.Plan) { p.Steps[2].When = `"b" in results` }))
	for result, want := range map[string]bool{"-": false, "": true} {
		if got, err := in.When(taskOf(`{}`, `1`, result), 2); err != nil || got != want {
			t.Errorf("in: b is %q: %v, %v", result, got, err)
		}
	}
	done := compile(t, order(func(p *core.Plan) { p.Result = `results.size()` }))
	if got, err := done.Result(taskOf(`{}`, `1`, `-`, ``, `[]`)); err != nil || string(got) != "3" {
		t.Errorf("the plan's own result: %s, %v", got, err)
	}
}

// An expression that is not one, or has the wrong type, or names what it cannot see, is refused when the plan is applied,
// with a caret at the place.
func TestCompileRefused(t *testing.T) {
	for _, c := range []struct {
		change func(*core.Plan)
		want   string
	}{
		{func(p *core.Plan) { p.Steps[2].When = "inptu.total > 5" },
			"plan cannot work: plan order: step c: when, line 1, column 1: there is no \"inptu\": is input meant?\n | inptu.total > 5\n | ^"},
		{func(p *core.Plan) { p.Steps[2].When = "input.total >\n\t\t 5 5" },
			"step c: when, line 2, column 6: 5 cannot stand here, want an operator before it, such as == or &&, or the end\n | \t\t 5 5\n | \t\t   ^"},
		{func(p *core.Plan) { p.Steps[2].When = `"yes"` }, "step c: when, line 1, column 1: it gives a string, want true or false"},
		{func(p *core.Plan) { p.Steps[2].When = `size(input)` }, "it gives an int, want true or false"},
		{func(p *core.Plan) { p.Steps[2].When = `results.d > 1` }, `column 1: results has no "d": the plan has no such step; there is a, b`},
		{func(p *core.Plan) { p.Steps[1].When = `true || results["c"] > 1` }, `line 1, column 9: results has no "c": step b does not come after it; there is a`},
		{func(p *core.Plan) { p.Steps[0].When = `has(results.c)` }, `results has no "c": step a does not come after it; there is nothing`},
		{func(p *core.Plan) { p.Steps[2].When = `"my-step" in results` }, `results has no "my-step": step c does not come after it`},
		{func(p *core.Plan) { p.Steps[2].When = `has(results.c)` }, "that is the step itself"},
		{func(p *core.Plan) { p.Steps[2].Input = `element` }, `there is no "element": an expression sees input and results, and text stands in quotes`},
		{func(p *core.Plan) { p.Steps[2].When = `now() > timestamp("2027-01-01T00:00:00Z")` }, "CEL has no function now: an expression sees no clock"},
		{func(p *core.Plan) { p.Result = `results.x` }, `plan order: result, line 1, column 1: results has no "x"`},
		{func(p *core.Plan) { p.Steps[2] = core.Step{Name: "c", Kind: core.WaitStep, Until: `"tomorrow"`} }, "step c: until, line 1, column 1: it gives a string, want a timestamp"},
		{func(p *core.Plan) {
			p.Steps[2] = core.Step{Name: "c", Kind: core.EachStep, Child: "q", Elements: `{"a": 1}`}
		}, "step c: elements, line 1, column 1: it gives a map, want a list"},
		{func(p *core.Plan) { p.Steps[2].When = strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200) }, "it nests deeper than 100"},
		{func(p *core.Plan) { p.Steps[2].When = "true" + strings.Repeat(" ", core.ExpressionBytesMax) }, "it has 4100 bytes, want at most 4096"},
	} {
		_, err := Compile(order(c.change))
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, core.ErrPlan) {
			t.Errorf("want %s\ngot %v", c.want, err)
		}
	}
	_, err := Compile(order(func(p *core.Plan) { p.Steps[1].When, p.Steps[2].When = "x", "y" }))
	all, ok := errors.AsType[Errors](err)
	if !ok || len(all) != 2 || all[1].Step != 2 || all[1].Field != "when" || all[1].Text != `there is no "y": an expression sees input and results, and text stands in quotes` {
		t.Errorf("all that is wrong: %v", err)
	}
}

// What fails at run time fails with one line that names step and field.
func TestFailsAtRunTime(t *testing.T) {
	long := `{"x":"` + strings.Repeat("x", 200_000) + `"}`
	for _, c := range []struct{ when, with, input, want string }{
		{`input.total > 5`, ``, `{}`, `step c: when: at column 6 of input.total > 5: there is no "total"; has() tells whether there is one`},
		{`input.flag`, ``, `{"flag":"yes"}`, `step c: when: it gives a string, want true or false`},
		{`results.b.x > 5`, ``, `{}`, `step c: when: at column 10 of results.b.x > 5: there is no "x"; has() tells whether there is one`},
		{`input.total > 5`, ``, `{"total":"many"}`, `step c: when: at column 13 of input.total > 5: values of such types have no such operation; int(), double() and string() convert`},
		{`input.total / 0 > 5`, ``, `{"total":1}`, `step c: when: at column 13 of input.total / 0 > 5: division by zero`},
		{`input.all(a, input.all(b, input.all(c, input.all(d, int(a) + int(b) > 0))))`, ``, "[" + strings.Repeat("1,", 99) + "1]",
			`step c: when: in input.all(a, input.all(b, input.all(c, input.all(d, int(a) + int(b) > 0)))): it costs more than 1000000, the limit of one evaluation`},
		{``, `[input.x, input.x]`, long, `step c: with: its answer has more than 262144 bytes`},
		{``, `{1: 2}`, `{}`, `step c: with: a map has the key 1, an int: JSON has keys of text alone`},
		{``, `"a\x00"`, `{}`, `step c: with: a text holds a NUL, or bytes that are not UTF-8: no store holds it`},
		{``, `{input.x: 1}`, `{"x":"\u0000"}`, `step c: with: a text holds a NUL, or bytes that are not UTF-8: no store holds it`},
		{``, `1.0 / 0.0`, `{}`, `step c: with: JSON has no number +Inf`},
		{``, `input`, `{"n":1e999}`, `step c: with: n of the input: number 1e999 is out of range, want at most 1000 digits and an exponent of at most 400`},
		{``, `input.a`, `{"duly":{"form":"x"`, `step c: with: the input: unexpected EOF`},
		{``, `results.b`, `{}`, ``},
	} {
		p := compile(t, order(func(p *core.Plan) { p.Steps[2].When, p.Steps[2].Input = c.when, c.with }))
		task := taskOf(c.input, `1`, `{}`)
		var err error
		if c.when != "" {
			_, err = p.When(task, 2)
		} else {
			_, err = p.Input(task, 2)
		}
		if c.want == "" && err == nil {
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %s\ngot  %.300v", c.want, err)
		}
	}
}

// A wait's instant is a timestamp; an each has a list that is no longer than it may be.
func TestUntilAndElements(t *testing.T) {
	p := compile(t, order(func(p *core.Plan) {
		p.Steps[2] = core.Step{Name: "c", Kind: core.WaitStep, After: []int{1}, Until: `timestamp(input.at) - duration("24h")`}
		p.Steps[3] = core.Step{Name: "d", Kind: core.EachStep, Child: "q", Elements: `input.rows`, ElementsMax: 3, Input: `{"row": element, "number": index, "run": input.run}`}
	}))
	until, err := p.Until(taskOf(`{"at":"2027-01-02T00:00:00.5Z"}`), 2)
	if want := core.InstantOf(time.Date(2027, 1, 1, 0, 0, 0, 500000000, time.UTC)); err != nil || until != want {
		t.Errorf("until %v, %v", until.Time(), err)
	}
	if _, err := p.Until(taskOf(`{"at":5}`), 2); err != nil { // seconds since 1970
		t.Errorf("of a number: %v", err)
	}
	task := taskOf(`{"rows": [ {"id": 1}, "x" , [] ],"run":9}`)
	list, n, err := p.Elements(task, 3)
	if err != nil || n != 3 || string(list) != `[{"id":1},"x",[]]` {
		t.Errorf("%s, %d, %v", list, n, err)
	}
	children := p.Children(task, 3)
	for i, want := range []string{`{"number":0,"row":{"id":1},"run":9}`, `{"number":1,"row":"x","run":9}`} {
		at := core.Elements(list)[i]
		if got, err := children.Input(i, list[at[0]:at[1]]); err != nil || string(got) != want {
			t.Errorf("element %d: %s, %v", i, got, err)
		}
	}
	if _, _, err := p.Elements(taskOf(`{"rows":[1,2,3,4]}`), 3); err == nil || err.Error() != "step d: elements: it gives 4 elements, elements_max is 3" {
		t.Errorf("%v", err)
	}
	if list, n, err := p.Elements(taskOf(`{"rows":null}`), 3); err != nil || n != 0 || string(list) != "[]" {
		t.Errorf("of null: %s, %d, %v", list, n, err)
	}
	if _, _, err := p.Elements(taskOf(`{"rows":{}}`), 3); err == nil || err.Error() != "step d: elements: it gives a map, want a list" {
		t.Errorf("%v", err)
	}
	if _, err := p.Children(taskOf(`{}`), 3).Input(7, []byte(`1`)); err == nil || !strings.HasPrefix(err.Error(), `step d: with: at column 47 of {"row": element, "number": index, "run": input.run}: there is no "run"; has() tells whether there is one (element 7)`) || !strings.HasSuffix(err.Error(), "(element 7)") {
		t.Errorf("%v", err)
	}
	plain := compile(t, order(func(p *core.Plan) {
		p.Steps[3] = core.Step{Name: "d", Kind: core.EachStep, Child: "q", Elements: `input`}
	}))
	if got, err := plain.Children(taskOf(`[]`), 3).Input(0, []byte(`{"a":1}`)); err != nil || string(got) != `{"a":1}` {
		t.Errorf("without with: %s, %v", got, err)
	}
}

// An encrypted payload is no riddle: the failure says what it is, and what is not looked at does not matter.
func TestEncrypted(t *testing.T) {
	const sealed = `{"duly.enc":"A256GCM-1","key":"k1","data":"AAAA"}`
	p := compile(t, order(func(p *core.Plan) {
		p.Steps[2].When, p.Steps[2].Input = `input.total > 5`, `results.b`
	}))
	task := taskOf(`{"total":6}`, sealed, `7`)
	if yes, err := p.When(task, 2); err != nil || !yes {
		t.Errorf("%v, %v", yes, err)
	}
	if got, err := p.Input(task, 2); err != nil || string(got) != "7" {
		t.Errorf("%s, %v", got, err)
	}
	task.Steps[1].Result, task.Input = []byte(sealed), []byte(sealed)
	if _, err := p.When(task, 2); err == nil || err.Error() != "step c: when: the input is encrypted: an expression cannot read it" {
		t.Errorf("%v", err)
	}
	if _, err := p.Input(task, 2); err == nil || err.Error() != "step c: with: the result of step b is encrypted: an expression cannot read it" {
		t.Errorf("%v", err)
	}
}

// After an edit a step that is at work or done keeps the input that it had, and its evidence is of that; one that begins anew
// sees the new one.
func TestEditedInput(t *testing.T) {
	p := compile(t, order(func(p *core.Plan) { p.Steps[2].When = `input.total > 5` }))
	task := taskOf(`{"total":1}`, `1`, `1`)
	task.Earlier = [][]byte{[]byte(`{"total":6}`)}
	if yes, err := p.When(task, 2); err != nil || yes {
		t.Errorf("%v, %v", yes, err)
	}
	task.Steps[2].Input = 1
	if yes, err := p.When(task, 2); err != nil || yes {
		t.Errorf("it begins again: %v, %v", yes, err)
	}
	task.Steps[2].Status = core.StepRunning
	if e, ok := p.Evidence(task, 2); !ok || !e.Holds {
		t.Errorf("%+v", e)
	}
}

// The evidence of a condition is the value of each of its terms, also of those behind one that decides alone.
func TestEvidence(t *testing.T) {
	p := compile(t, order(func(p *core.Plan) {
		p.Steps[2].When = `(input.total > 100 || input.vip) && has(results.b) && results.b.score > 5 && !(input.rows.exists(r, r.bad)) && size(input.name) < 9`
	}))
	e, ok := p.Evidence(taskOf(`{"total":120,"rows":[{"bad":false}],"name":"a"}`, `1`, `-`), 2)
	var got []string
	for _, term := range e.Terms {
		got = append(got, term.Text+" = "+term.Value+term.Failed)
	}
	want := []string{
		`input.total = 120`, `input.total > 100 = true`, `input.vip = there is no "vip"`, `has(results.b) = false`,
		`results.b.score = there is no "b"`, `results.b.score > 5 = there is no "b"`, `input.rows = [{"bad":false}]`, `input.rows.exists(r, r.bad) = false`,
		`input.name = "a"`, `size(input.name) = 1`, `size(input.name) < 9 = true`,
	}
	if !ok || e.Holds || e.Failed != "" || e.Step != "c" || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%+v\n%s\nwant\n%s", e, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if e, _ := p.Evidence(taskOf(`{}`, `1`, `-`), 2); e.Failed != "" || e.Holds {
		t.Errorf("%+v", e) // has(results.b) is false, whatever else fails
	}
	if _, ok := p.Evidence(taskOf(`{}`), 1); ok {
		t.Error("evidence of a step without a condition")
	}
}

// A cache compiles a version once, whoever asks, and is bounded; a plan without expressions has nothing to ask.
func TestCache(t *testing.T) {
	var c Cache
	if c.Bind(order(func(*core.Plan) {}), taskOf(`{}`)) != nil {
		t.Error("a plan without expressions is bound")
	}
	plan := order(func(p *core.Plan) { p.Steps[2].When = `input.n > 5` })
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 50 {
				yes, err := c.Bind(plan, taskOf(`{"n":`+strconv.Itoa(n)+`}`, `1`, `1`)).When(2)
				if err != nil || yes != (n > 5) {
					t.Errorf("worker %d: %d: %v, %v", i, n, yes, err)
				}
			}
		})
	}
	wg.Wait()
	a, err := c.Program(plan)
	b, err2 := c.Program(plan)
	if a != b || err != nil || err2 != nil {
		t.Error("compiled twice")
	}
	for v := range programsMax + 10 {
		bad := order(func(p *core.Plan) { p.Version, p.Steps[2].When = int64(v+2), `nonsense` })
		asker := c.Bind(bad, taskOf(`{}`))
		if _, err := asker.When(2); err == nil || !strings.Contains(err.Error(), "there is no \"nonsense\"") {
			t.Fatalf("a plan that cannot be compiled: %v", err)
		}
	}
	if n := len(c.programs); n > programsMax {
		t.Errorf("%d programs", n)
	}
}

// TestNoCallIsWithoutEnd: CEL counts what a call costs when it has returned, so that one call that compares each with each, or
// walks a list that was joined to itself, would hold up all that its scheduler has.
func TestNoCallIsWithoutEnd(t *testing.T) {
	doubled := "[1, 2]"
	for range 30 {
		doubled = "cel.bind(x, " + doubled + ", x + x)"
	}
	sevens, eights := strings.Repeat("7,", 20_000), strings.Repeat(",8", 20_000)
	task := taskOf(`{"p":[`+sevens+`7],"q":[8`+eights+`],"r":[`+sevens+`8]}`, `1`, `1`)
	nested, deep := "[1, 2]", "[1, 2]" // of 2^31 and 2^15 parts
	for i := range 30 {
		if nested = "cel.bind(x, " + nested + ", [x, x])"; i < 14 {
			deep = nested
		}
	}
	for _, when := range []string{
		`sets.intersects(input.p, input.q)`, `sets.contains(input.r, input.q)`, `sets.equivalent(input.r, input.q)`, `3 in ` + doubled,
		`cel.bind(y, ` + nested + `, y == y)`, `cel.bind(y, ` + nested + `, {"a": y} != {"a": y})`, `cel.bind(y, ` + nested + `, [y] in [[y]])`,
		`cel.bind(y, ` + nested + `, sets.contains([y], [y]))`, `cel.bind(y, ` + deep + `, input.p.all(p, y == y))`, `cel.bind(y, [` + deep + `], input.p.all(p, y[0] in y))`,
	} {
		p := compile(t, order(func(p *core.Plan) { p.Steps[2].When = when }))
		began := time.Now()
		if _, err := p.When(task, 2); err == nil || !strings.Contains(err.Error(), "it costs more than 1000000, the limit of one evaluation") {
			t.Errorf("%.40s: %v", when, err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%.40s: %v", when, took)
		}
	}
}

// TestElementIsReadOnce: however often an expression names it.
func TestElementIsReadOnce(t *testing.T) {
	p := compile(t, order(func(p *core.Plan) {
		p.Steps[3] = core.Step{Name: "d", Kind: core.EachStep, Child: "q", Elements: "input.list", Input: "element.rows.map(r, [r, element.id])"}
	}))
	children := p.Children(taskOf(`{}`), 3)
	began := time.Now()
	for i, id := range []string{"1", "2"} {
		got, err := children.Input(i, []byte(`{"id":`+id+`,"rows":[0`+strings.Repeat(`,0`, 9_999)+`]}`))
		if err != nil || !strings.HasPrefix(string(got), "[[0,"+id+"],[0,"+id+"],") {
			t.Errorf("%.40s, %v", got, err)
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("two elements of 10,000 rows took %v", took)
	}
}
