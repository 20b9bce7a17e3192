package expr

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/decimal"
)

// big are numbers that an int or a double of 64 bits would round, or could not hold.
var big = []string{"9223372036854775809", "18446744073709551616", "100000000000000000001", "-9223372036854775809", "9007199254740993.0", "0.1000000000000000055511151231257827",
	"1234567890123456.78", "1e400", "1e-400", "-0.0", "9007199254740993e0", "12345678901234567890e-5"}

// A number of a payload has the same value behind an expression, wherever one is, however large or fine it is.
//
// covers: W3
func TestNumbersPassUnchanged(t *testing.T) {
	p := compile(t, order(func(p *core.Plan) {
		p.Steps[2].Input, p.Result = `{"is": [input.n, results.b, {"deep": input.rows[0].n}]}`, `results.b`
		p.Steps[3] = core.Step{Name: "d", Kind: core.EachStep, Child: "q", Elements: `input.rows`, ElementsMax: 3, Input: `element.n`}
	}))
	key, err := NewKey("input.n")
	if err != nil {
		t.Fatal(err)
	}
	check := func(t interface{ Errorf(string, ...any) }, n string) {
		task := taskOf(fmt.Sprintf(`{"n":%s,"rows":[{"n":%s}]}`, n, n), `1`, n)
		with, err := p.Input(task, 2)
		out := strings.NewReplacer(`{"is":[`, "", `,{"deep":`, ",", `}]}`, "").Replace(string(with))
		result, err2 := p.Result(task)
		list, _, err3 := p.Elements(task, 3)
		child, err4 := p.Children(task, 3).Input(0, []byte(`{"n":`+n+`}`))
		of, err5 := key.Of(task)
		got := append(strings.Split(out, ","), string(result), strings.TrimSuffix(strings.TrimPrefix(string(list), `[{"n":`), `}]`), string(child), of)
		for i, one := range got {
			if !decimal.Same(one, n) || len(got) != 7 {
				t.Errorf("%s at %d: %s (%v %v %v %v %v)", n, i, got, err, err2, err3, err4, err5)
				return
			}
		}
	}
	for _, n := range big {
		check(t, n)
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.StringMatching(`-?(0|[1-9][0-9]{0,39})(\.[0-9]{1,39})?([eE][-+]?[0-9]{1,2})?`).Draw(t, "n"))
	})
}

// A number that an expression itself has is not rounded either.
//
// covers: W3
func TestLiteralsKeepTheirDigits(t *testing.T) {
	for source, want := range map[string]string{
		`{"é": 0.1, "n": [0.12345678901234567890]}`:                                     "column 18: 0.12345678901234567890 has more digits than a double: 64 bits make it 0.12345678901234568\n",
		`input.n == 9007199254740993.0`:                                                 "column 12: 9007199254740993.0 has more digits than a double: 64 bits make it 9.007199254740992e+15\n",
		`-1234567890123456.78 < 1.0`:                                                    "column 1: -1234567890123456.78 has",
		`[0.1, -2.5, 1e300, .5, 100.0, 9007199254740993, 9007199254740992.0].map(x, x)`: "",
	} {
		_, err := Compile(order(func(p *core.Plan) { p.Steps[2].Input = source }))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
}

// What 64 bits cannot hold compares with every number, on either side, and is text where text is asked for. What would
// calculate with it fails, and names its place.
//
// covers: W3
func TestExactNumbers(t *testing.T) {
	input := `{"n":9223372036854775809,"more":9223372036854775810,"tail":0.1000000000000000055511151231257827,"rows":[{"n":1},{"n":18446744073709551616}],"f":1e300,"huge":9223372036854775809}`
	for _, c := range []struct{ source, want string }{
		{`input.n > 5 && 5 < input.n && input.n >= 5.5 && -5 <= input.n && input.n > 5u`, `true`},
		{`input.n < input.more && input.more > input.n && input.n <= input.n && !(input.n < input.n) && input.n < input.f && input.f > input.n`, `true`},
		{`input.tail > 0.1 && 0.1 < input.tail && input.tail < 1 && input.tail < 1.0/0.0 && input.n > -1.0/0.0 && -1.0/0.0 < input.n`, `true`},
		{`input.n == input.n && input.n != input.more && input.n != 5 && 5.0 != input.n && input.n == 9223372036854775809u && input.n in [1, input.n]`, `true`},
		{`input.rows == input.rows && [input.n] != [input.more] && string(input.n) == "9223372036854775809"`, `true`},
		{`input.n < 0.0/0.0 || 0.0/0.0 < input.n`, `false`},
		{`duration("9007199254.740993s")`, `"9007199254.740993s"`},
		{`duration("-90.5s")`, `"-90.5s"`},
		{`input.n + 1`, `at column 9 of input.n + 1: n of the input is 9223372036854775809, which 64 bits cannot hold: it can be passed on and compared, not calculated with`},
		{`1 - input.n`, `n of the input is 9223372036854775809, which`},
		{`-input.n`, `n of the input is 9223372036854775809`},
		{`input.rows.map(r, r.n * 2)`, `rows[1].n of the input is 18446744073709551616`},
		{`double(input.n) / 2.0`, `n of the input is 9223372036854775809`},
		{`int(input.tail)`, `tail of the input is 0.1`},
		{`"n" + input.huge`, `huge of the input is 9223372036854775809`},
		{`input.n < "a"`, `have no such operation`},
		{`math.greatest(input.n, 1)`, `math.greatest() does not take a number that 64 bits cannot hold and an int`},
	} {
		p := compile(t, order(func(p *core.Plan) { p.Steps[2].Input = c.source }))
		got, err := p.Input(taskOf(input, `1`, `1`), 2)
		if err != nil && !strings.Contains(err.Error(), c.want) || err == nil && string(got) != c.want {
			t.Errorf("%s: %s, %v; want %s", c.source, got, err, c.want)
		}
	}
}
