package planfile

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/planform"
	"duly.dev/duly/internal/quickjson"
)

var rewrite = flag.Bool("rewrite", false, "write what the tests print into their golden files")

const payloadMax = 1 << 20

// TestWrongFiles: what is wrong with a file is told with its line and column. The golden text is beside each file.
func TestWrongFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/wrong/*.*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range files {
		if filepath.Ext(name) == ".txt" {
			continue
		}
		n++
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Read(filepath.Base(name), data, payloadMax)
		all, ok := err.(errorList)
		if !ok || len(all) == 0 {
			t.Errorf("%s: %v, want what is wrong with it", name, err)
			continue
		}
		golden := strings.TrimSuffix(name, filepath.Ext(name)) + ".txt"
		got := err.Error() + "\n"
		if *rewrite {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || got != string(want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
	if n < 25 {
		t.Errorf("%d files", n)
	}
}

// TestRoundTrip: a plan that is written as a file and read again is the same plan, and its file the same file.
func TestRoundTrip(t *testing.T) {
	files, err := filepath.Glob("testdata/right/*")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Read(name, data, payloadMax)
		if err != nil {
			t.Fatal(err)
		}
		full := planform.Normal(&p)
		for _, from := range []*core.Plan{&p, &full} {
			text, err := Write(from)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Read("written.yaml", text, payloadMax)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			a, err := planform.Canonical(&p)
			b, err2 := planform.Canonical(&again)
			if err != nil || err2 != nil || string(a) != string(b) {
				t.Errorf("%s: %v %v\n%s\n%s\n%s", name, err, err2, text, a, b)
			}
			second, err := Write(&again)
			if err != nil || string(second) != string(text) {
				t.Errorf("%s: written again: %v\n%s\n%s", name, err, text, second)
			}
			for _, silent := range []string{"_ms", "undoable: true", "grace", "attempts_max", "kind: call", "admission: off"} {
				if strings.Contains(string(text), silent) {
					t.Errorf("%s: %q in\n%s", name, silent, text)
				}
			}
		}
	}
}

// TestTextsRoundTrip: names that a reader of YAML takes for something else, and expressions with any white space, are the same
// when the file is read again: otherwise a plan that was shown could not be applied under its version.
func TestTextsRoundTrip(t *testing.T) {
	for _, text := range []string{"1e5", "-", "---", "-1", "0x10", "007", "1_000", "null", "yes", "123456789012345678901234567890", "2026-01-01"} {
		roundTrip(t, &core.Plan{Name: text, Version: 1, Steps: []core.Step{{Name: text, Agent: "a"}, {Name: "b", Agent: text}, {Name: "c", Agent: "a", After: []int{0, 1}, Narrow: true, Uses: []int{0}}}})
	}
	for _, text := range []string{
		"input.a\n&& input.b", "input.a\n&& input.b\n", "  input.a\n&& input.b", "\n      input.a &&\n      input.b\n    ", "\n\t\tinput.a &&\n\t\tinput.b\n\t",
		"input.a\n\n\n&& input.b\n\n", "\tinput.a", "input.a ", "input.a\n  ", "input.a\n   \n&& input.b", "input.a\n\t&& input.b", "input.a\n  && input.b // end",
		"'''\n  a\n''' == input.a", "input.a == 'x: y' // #", "# input.a", "input.a\r\n&& input.b", "input.a &&  \ninput.b",
	} {
		roundTrip(t, &core.Plan{Name: "order", Version: 1, Steps: []core.Step{{Name: "a", Agent: "a", When: text}}, Result: text})
	}
}

// roundTrip writes a plan, and reads what is written, whether it can work or not.
func roundTrip(t *testing.T, p *core.Plan) {
	t.Helper()
	text, err := Write(p)
	if err != nil {
		t.Fatal(err)
	}
	f := &file{name: "written.yaml"}
	root := f.parse(text)
	if root == nil {
		t.Errorf("%v\n%s", f.err(), text)
		return
	}
	again := (&reader{file: f, root: root}).plan(payloadMax)
	a, err := planform.Canonical(p)
	b, err2 := planform.Canonical(&again)
	if err != nil || err2 != nil || string(a) != string(b) {
		t.Errorf("%v %v %v\n%s\n%s\n%s", err, err2, f.err(), text, a, b)
	}
}

// TestNumbersOfSchemas: a number of a schema is the same number in the file, in the plan, and in the file that is written of
// it; text stays text.
//
// covers: W3
func TestNumbersOfSchemas(t *testing.T) {
	const text = "name: order\nversion: 1\ninput_schema:\n  maximum: 100000000000000000001\n  minimum: -9223372036854775809\n  multipleOf: 0.1000000000000000055511151231257827\n" +
		"  exclusiveMaximum: 1e5\n  maxLength: 0x10\n  maxItems: 1_000\n  const: '100000000000000000001'\n  examples: [9007199254740993.0, .5, '1e5']\nsteps:\n  - name: a\n    agent: a\n"
	const want = `{"const":"100000000000000000001","examples":[9007199254740993,0.5,"1e5"],"exclusiveMaximum":100000,"maxItems":1000,"maxLength":16,"maximum":100000000000000000001,` +
		`"minimum":-9223372036854775809,"multipleOf":0.1000000000000000055511151231257827}`
	for n := range 3 { // read, written and read, written again
		file := []byte(text)
		for range n {
			p, err := Read("plan.yaml", file, payloadMax)
			if err != nil {
				t.Fatal(err)
			}
			if file, err = Write(&p); err != nil {
				t.Fatal(err)
			}
		}
		p, err := Read("plan.yaml", file, payloadMax)
		if err != nil || p.InputSchema != want {
			t.Errorf("%s\n%v\n%s, want\n%s", file, err, p.InputSchema, want)
		}
	}
	if _, err := Read("plan.yaml", []byte(strings.Replace(text, "1e5", "1e999", 1)), payloadMax); err == nil || !strings.Contains(err.Error(), "plan.yaml:7:21: number 1e999 is out of range") {
		t.Error(err)
	}
}

// TestTwoReadings: what readers of YAML take for different things is refused, wherever it stands: it is not for us to choose
// how many cents the author meant.
//
// covers: W1, W3
func TestTwoReadings(t *testing.T) {
	const file = "name: order\nversion: 1\ninput_schema: {type: object, properties: {cents: {type: integer, maximum: 8}}}\nsteps:\n  - name: a\n    agent: a\n    attempts_max: 8\n"
	if _, err := Read("plan.yaml", []byte(file), payloadMax); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ old, new, want string }{
		{"attempts_max: 8", "attempts_max: 010", "7:19: 010 begins with a zero"},
		{"attempts_max: 8", "attempts_max: 08", "attempts_max: want a whole number, got text"},
		{"attempts_max: 8", "attempts_max: 0_10", "0_10 begins with a zero"},
		{"maximum: 8", "maximum: 010", "010 begins with a zero"},
		{"maximum: 8", "maximum: -010", "-010 begins with a zero"},
		{"maximum: 8", "maximum: 08", "maximum"},
		{"maximum: 8", "maximum: 010.5", "010.5 begins with a zero"},
		{"maximum: 8", "<<: {maximum: 8}", "<< is no name"},
		{"cents: {", "&c cents: {", "is no name"},
		{"maximum: 8", "!!str maximum: 8", "is no name"},
		{"maximum: 8", "maximum: 8, maximum: 9", `mapping key "maximum" already defined`},
		{"maximum: 8", "maximum: .inf", "is not taken here"},
		{"maximum: 8", "maximum: yes", "maximum"},
		{"attempts_max: 8", "attempts_max: 1e3", "want a whole number, got 1e3"},
		{"attempts_max: 8", "attempts_max: 8.0", "want a whole number, got 8.0"},
		{"attempts_max: 8", "attempts_max: -0", "attempts_max is 0"},
		{"attempts_max: 8", "attempts_max: ", "attempts_max: want a whole number, got nothing"},
		{"attempts_max: 8", "undoable: no", "undoable: want true or false, got text"},
		{"attempts_max: 8", "undoable: on", "undoable: want true or false, got text"},
		{"attempts_max: 8", "undoable: ~", "undoable: want true or false, got nothing"},
		{"attempts_max: 8", "after: ~", "after: want a list"},
		{"attempts_max: 8", "when: ''", "when is empty"},
		{"attempts_max: 8", "when: ~", "when: want an expression"},
		{"attempts_max: 8", "complete_by: 10", "want a duration with its unit"},
		{"attempts_max: 8", "complete_by: -1s", "complete_by"},
		{"attempts_max: 8", "complete_by: 0s", "complete_by is 0s"},
		{"attempts_max: 8", "complete_by: 1d", "want a duration, such as 30s or 1h30m"},
		{"attempts_max: 8", "complete_by: 1:30", "want a duration"},
		{"attempts_max: 8", "probe: yes", "probe: want true or false"},
		{"maximum: 8", "maximum: 8, enum: &e [1]", "anchors and aliases are not taken"},
	} {
		_, err := Read("plan.yaml", []byte(strings.Replace(file, x.old, x.new, 1)), payloadMax)
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.new, err, x.want)
		}
	}
}

// TestEveryFieldIsRead: whatever the form of a step or a plan has is read from a file; one that is not would be passed over.
func TestEveryFieldIsRead(t *testing.T) {
	for what, form := range map[string]reflect.Type{"steps:\n  - name: a\n    agent: b\n    ": reflect.TypeFor[planform.Step](), "": reflect.TypeFor[planform.Plan]()} {
		for f := range form.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "steps" || name == "v" {
				continue
			}
			_, err := Read("file.yaml", []byte(what+name+": true\n"), payloadMax) // it panics where it has no way to
			if f.Type == reflect.TypeFor[bool]() && err != nil && strings.Contains(err.Error(), name+": want") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	data, err := os.ReadFile("testdata/right/trip.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Read("trip.yaml", data, payloadMax)
	if err != nil || !p.Steps[p.StepIndex("car")].Probe {
		t.Errorf("probe of step car: %+v, %v", p.Steps[p.StepIndex("car")], err)
	}
}

// Steps may stand in any order: each is sorted behind those that it comes after.
func TestOrder(t *testing.T) {
	data, err := os.ReadFile("testdata/right/trip.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Read("trip.yaml", data, payloadMax)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range p.Steps {
		names = append(names, p.Steps[i].Name)
		for _, a := range p.Steps[i].After {
			if a >= i {
				t.Errorf("step %s stands before what it comes after", p.Steps[i].Name)
			}
		}
	}
	if want := []string{"price", "approve", "cool", "hotel", "flights", "car", "tell"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// A place in a text is one in its file, however the text is written.
func TestPlaceInText(t *testing.T) {
	for _, c := range []struct {
		when         string
		line, column int // of "wrong"
	}{
		{`when: wrong > 5`, 6, 11},
		{`when: input.a == 1 && wrong`, 6, 27},
		{`when: "input.a == \"é\" && wrong"`, 6, 32},
		{`when: 'input.a == ''é'' && wrong'`, 6, 32},
		{`when: "input.a == '\u00e9' && wrong"`, 6, 35},
		{"when: |\n      input.a == 1\n        && wrong", 8, 12},
		{"when: |-\n\n      wrong", 8, 7},
		{"when: >\n      input.a == 1\n      && wrong", 6, 11}, // lines are joined: where it begins
	} {
		data := "name: order\nversion: 1\nsteps:\n  - name: a\n    agent: x\n    " + c.when + "\n"
		_, err := Read("f.yaml", []byte(data), payloadMax)
		all, ok := err.(errorList)
		if !ok || len(all) != 1 || all[0].Line != c.line || all[0].Column != c.column {
			t.Errorf("%s: want %d:%d\n%v", c.when, c.line, c.column, err)
		}
	}
}

// Nothing that a file can hold stops the reader, and what it takes, core takes.
func FuzzRead(f *testing.F) {
	for _, folder := range []string{"wrong", "right"} {
		files, err := filepath.Glob("testdata/" + folder + "/*.*")
		if err != nil {
			f.Fatal(err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Read("f", data, payloadMax)
		if err != nil {
			return
		}
		full := p.WithDefaults()
		if err := full.Validate(payloadMax); err != nil {
			t.Errorf("taken, and refused later: %v", err)
		}
		if _, err := Write(&p); err != nil {
			t.Errorf("taken, and not written: %v", err)
		}
	})
}

// TestYAMLIsBounded: what nests deep is not many times as long as YAML, and is the same document.
//
// covers: P2
func TestYAMLIsBounded(t *testing.T) {
	for _, depth := range []int{quickjson.DepthMax, 1_000} {
		doc := strings.Repeat("[", depth) + strings.TrimSuffix(strings.Repeat("1,", 10_000), ",") + strings.Repeat("]", depth)
		text, err := YAML([]byte(doc))
		if err != nil || len(text) > 10*len(doc) {
			t.Errorf("of %d bytes, %d deep, %d: %v", len(doc), depth, len(text), err)
		}
		if string(text) != doc && depth <= quickjson.DepthMax {
			var back any
			if err := yaml.Unmarshal(text, &back); err != nil {
				t.Errorf("%d deep: %v", depth, err)
			}
		}
	}
	if text, err := YAML([]byte(`{"a":[1,{"b":2}]}`)); err != nil || string(text) != "a:\n- 1\n- b: 2\n" {
		t.Errorf("%q, %v", text, err)
	}
}
