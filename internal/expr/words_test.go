package expr

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

var rewrite = flag.Bool("rewrite", false, "write what the tests print into their golden files")

// What CEL refuses is said in the words of plans: the whole text of each mistake that authors make, with its caret.
func TestWordsOfMistakes(t *testing.T) {
	var got strings.Builder
	for _, source := range []string{
		// names
		`inptu.total > 5`, `resluts.a`, `Result`, `nul == input.x`, `foo == 1`, `if`, `element.x == 1`,
		`foo(input)`, `input.x.foo()`, `now() > timestamp(0)`, `results.a.exists(x)`, `results.z.ok`,
		// what the parser refuses
		`input.total >`, `  `, `// c`, `input.total > 5 5`, `a && || b`, `input.x == 'abc`, `'\q' == 'q'`, `input..x`, `(input.x`, `input.x)`,
		`input[`, `{'a' 1}`, `input.x = 5`, `input.x and input.y`, `not input.x`, `@x`, `input.x > 5;`, "input.x\n\t&& &&", `99999999999999999999 > 1`,
		// types
		`1 + 'a' > 0`, `'a' && true`, `1 ? true : false`, `true ? 1 : 'a'`, `5.foo`, `'abc'.foo`, `input in 5`, `-'a' == 1`, `size(5) > 1`, `size() > 1`,
		`input + 1 == 2`, `-input.s == 1`, `cel.bind(x, input.s, x * 2) > 1`, `results.a.n / 2 > input.total * 1.5`, `input.x - duration('1h') > timestamp(0)`, `input.x + input['y'][0] == 1`,
		`'a'.startsWith(5)`, `has(input)`, `[1,2].map(1, x)`, `'yes'`, `{'a': 1}`,
		// constants
		`timestamp('bogus') > timestamp(0)`, `duration('5 minutes') > duration('1s')`, `input.x.matches('(')`,
	} {
		_, err := Compile(order(func(p *core.Plan) { p.Steps[2].When = source }))
		fmt.Fprintf(&got, "%v\n\n", err)
	}
	golden(t, "testdata/mistakes.txt", got.String())
}

// What fails at run time is one line, which says where and what, and what to do.
func TestWordsAtRunTime(t *testing.T) {
	var got strings.Builder
	for _, source := range []string{
		`input.total > 5`, `input.s`, `results.b.x > 5`, `true && input['a'].b == 5`, `has(input.a) || input.b.c`, `"a" + input.d1 == "b"`, `[1] + input.d1 == []`, `input.l[9] == 1`, `int(input.s) > 5`,
		`timestamp(input.s) > timestamp(0)`, `duration(input.s) > duration('1s')`, `input.s.matches(input.p)`, `1 / input.z > 0`, `1 % input.z > 0`,
		`9223372036854775807 + input.one > 0`, `input.s.foo == 1`, `size(input.one) > 5`, `input > 1`, `input.one[0] == 1`, `input.one in input.s`, `input.s ? true : false`, `!input.s`, `input.one < input.s`, `math.greatest(input.s, 1) > 0`,
		`input.one.startsWith('a')`, `sets.contains(input.l, input.s)`, `input.s.contains(input.one)`, `timestamp(input.one).getHours(input.one) > 1`, `input.one && true`, `input.l.exists(x, x.y > 5)`, "input.one == 1 &&\n input.nope.x", `double(input.s) > 4.0`,
		`timestamp("9999-12-31T23:59:59Z") + duration(input.d) > timestamp(0)`, `timestamp(input.one * 999999999999) > timestamp(0)`, `math.abs(input.one * -9223372036854775807 - 1) > 0`,
		`input.total > 5 && "a text that is so long that the whole expression is not shown in the error" != ""`,
	} {
		p := compile(t, order(func(p *core.Plan) { p.Steps[2].When = source }))
		_, err := p.When(taskOf(`{"s":"many","l":[1],"p":"(","z":0,"one":1,"d":"1h","d1":1}`, `1`, `{}`), 2)
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line", source, err)
		}
		fmt.Fprintf(&got, "%v\n", err)
	}
	golden(t, "testdata/runtime.txt", got.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil || string(want) != got {
		t.Errorf("%s: %v\n%s", name, err, got)
	}
	for _, raw := range []string{"Syntax error", "overload", "undeclared", "expecting", "EOF", "(in container"} {
		if strings.Contains(got, raw) {
			t.Errorf("%s: %q is CEL's own text", name, raw)
		}
	}
}
