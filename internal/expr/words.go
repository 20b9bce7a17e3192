package expr

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/near"
)

// CEL's own texts speak of grammar tokens and overloads. These rules say the same to the author of a plan: what is wrong,
// and what would be right. A text without a rule is shown as CEL has it.
var rules = []struct {
	of    *regexp.Regexp
	words func(m []string, at spot) string
}{
	{regexp.MustCompile(`^undeclared reference to '([^']*)'`), undeclared},
	{regexp.MustCompile(`^Syntax error: (?:mismatched|extraneous) input '(.*)' expecting (.*)$`), unexpected},
	{regexp.MustCompile(`^Syntax error: missing '(.*)' at '(.*)'$`), func(m []string, _ spot) string {
		if m[2] == "<EOF>" {
			return fmt.Sprintf("it ends too early, want %s", m[1])
		}
		return fmt.Sprintf("want %s before %s", m[1], core.ShortText(m[2], 64))
	}},
	{regexp.MustCompile(`^Syntax error: no viable alternative at input '(.*)'$`), func(m []string, _ spot) string {
		return fmt.Sprintf("%s cannot stand here, want a value, such as input.total, 5 or 'text'", core.ShortText(m[1], 64))
	}},
	{regexp.MustCompile(`^Syntax error: token recognition error at: '(.*)'$`), unreadable},
	{regexp.MustCompile(`^reserved identifier: (.*)$`), func(m []string, _ spot) string {
		return fmt.Sprintf("%s is a word of CEL's own and cannot be a name", m[1])
	}},
	{regexp.MustCompile(`^found no matching overload for '([^']*)' applied to '(?:\((.*)\)|(.*)\.\((.*)\))'`), unfit},
	{regexp.MustCompile(`^expected type '(.*)' but found '(.*)'`), func(m []string, _ spot) string {
		return fmt.Sprintf("it gives %s, want %s", typeWords(m[2]), typeWords(m[1]))
	}},
	{regexp.MustCompile(`^type '(.*)' does not support field selection`), func(m []string, _ spot) string {
		return fmt.Sprintf("%s has no members, want a map before the dot", typeWords(m[1]))
	}},
	{regexp.MustCompile(`^invalid argument to has\(\) macro`), func([]string, spot) string {
		return "has() takes a member, such as has(input.total)"
	}},
	{regexp.MustCompile(`^argument is not an identifier`), func([]string, spot) string {
		return "want a name of your own for the element here, such as x in input.rows.exists(x, x.ok)"
	}},
	{regexp.MustCompile(`^invalid int literal`), func([]string, spot) string {
		return "the number is too large, want -9223372036854775808 to 9223372036854775807, or one with a decimal point"
	}},
	{regexp.MustCompile(`^(?:error parsing regexp: |invalid matches argument: error parsing regexp: )(.*)$`), func(m []string, _ spot) string {
		return "matches() takes a regular expression (RE2), and this is none: " + m[1]
	}},
	{regexp.MustCompile(`^invalid RFC 3339 timestamp (".*")$`), func(m []string, _ spot) string {
		return core.ShortText(m[1], 64) + " is no instant, want one such as timestamp('2027-01-31T09:00:00Z')"
	}},
	{regexp.MustCompile(`^timestamp overflow$`), func([]string, spot) string {
		return "the instant is out of range, want one of the years 1 to 9999"
	}},
	{regexp.MustCompile(`^(?:unsigned )?integer overflow$`), func([]string, spot) string {
		return "the number is too large or too small for an int; double() makes it one that is not"
	}},
	{regexp.MustCompile(`^type conversion error from '?(\S+?)'? to '?(\S+?)'?$`), func(m []string, _ spot) string {
		if typeWords(m[2]) == "a duration" {
			return "the text is no duration, want one such as duration('90m')"
		}
		return fmt.Sprintf("%s cannot be made %s", typeWords(m[1]), typeWords(m[2]))
	}},
	{regexp.MustCompile(`^expression recursion limit exceeded: (\d+)`), func(m []string, _ spot) string {
		return fmt.Sprintf("it nests deeper than %s", m[1])
	}},
	{regexp.MustCompile(`^no such key: (.*)$`), func(m []string, at spot) string {
		return fmt.Sprintf("there is no %s%s", core.QuoteShort(m[1]), at.guard())
	}},
	{regexp.MustCompile(`^no such overload(?:: ([^\s(]+)(?:\((.*)\)| \d+)?)?$`), noOverload},
	{regexp.MustCompile(`^index out of bounds: (-?\d+)$`), func(m []string, _ spot) string {
		return fmt.Sprintf("the list has no element %s; size() tells how many it has", m[1])
	}},
	{regexp.MustCompile(`^strconv\.Parse(Int|Uint|Float): parsing (".*"): .*$`), func(m []string, _ spot) string {
		return core.ShortText(m[2], 64) + " is no number"
	}},
}

// spot is where an expression is wrong, as a rule sees it.
type spot struct {
	source string
	line   string // of the source
	column int    // from 1, in characters; 0: not known
	env    *cel.Env
}

// split is what stands in the line before the place, and what from it on.
func (s spot) split() (before, after string) {
	runes := []rune(s.line)
	at := min(max(s.column-1, 0), len(runes))
	return string(runes[:at]), string(runes[at:])
}

// guard advises has() where the expression does not use it.
func (s spot) guard() string {
	if strings.Contains(s.source, "has(") {
		return ""
	}
	return "; has() tells whether there is one"
}

// reword says CEL's text at a place of an expression in the words of this package.
func reword(env *cel.Env, source string, line, column int, text string) string {
	text = plainText(text)
	at := spot{source: source, column: column, env: env}
	if lines := strings.Split(source, "\n"); line >= 1 && line <= len(lines) {
		at.line = lines[line-1]
	}
	for _, rule := range rules {
		if m := rule.of.FindStringSubmatch(text); m != nil {
			return core.ShortText(rule.words(m, at), 500)
		}
	}
	return text
}

// words that authors of plans use for operators of CEL.
var operatorWords = map[string]string{"and": "&&", "or": "||", "not": "!", "AND": "&&", "OR": "||", "NOT": "!", "=": "==", "&": "&&", "|": "||", "<>": "!=", "~": "matches()"}

func undeclared(m []string, at spot) string {
	name := m[1]
	before, after := at.split()
	if strings.HasPrefix(after, "(") {
		what := "function"
		if strings.HasSuffix(strings.TrimSuffix(before, name), ".") {
			what = "method"
		}
		if name == "now" {
			return "CEL has no function now: an expression sees no clock; a wait until an instant is a step of kind wait"
		}
		return fmt.Sprintf("CEL has no %s %s, or not with so many arguments", what, core.ShortText(name, 64))
	}
	known := []string{varInput, varResults, "true", "false", "null"}
	have := "input and results"
	if at.env == elementEnv {
		known, have = append(known, varElement, varIndex), "input, results, element and index"
	} else if at.env != plainEnv {
		names := variablesOf(at.env)
		known, have = append(names, "true", "false", "null"), strings.Join(names, ", ")
	}
	if meant := near.Nearest(name, known); meant != "" {
		return fmt.Sprintf("there is no %q: is %s meant?", core.ShortText(name, 64), meant)
	}
	return fmt.Sprintf("there is no %q: an expression sees %s, and text stands in quotes", core.ShortText(name, 64), have)
}

func unexpected(m []string, at spot) string {
	got, want := m[1], m[2]
	before, _ := at.split()
	last := ""
	if words := strings.Fields(before); len(words) > 0 {
		last = words[len(words)-1]
	}
	switch {
	case operatorWords[got] != "":
		return fmt.Sprintf("%q is no operator, want %s", got, operatorWords[got])
	case operatorWords[last] != "":
		return fmt.Sprintf("%q is no operator, want %s", last, operatorWords[last])
	case got == "<EOF>" && strings.Contains(want, "IDENTIFIER"):
		return "it ends too early, want a value here, such as input.total, 5 or 'text'"
	case got == "<EOF>":
		return "it ends too early, want " + want
	case strings.Contains(want, "IDENTIFIER"):
		return fmt.Sprintf("%s cannot stand here, want a value, such as input.total, 5 or 'text'", core.ShortText(got, 64))
	case want == "<EOF>" && strings.ContainsAny(got, ")]}"):
		return fmt.Sprintf("%s closes nothing", got)
	case want == "<EOF>":
		return fmt.Sprintf("%s cannot stand here, want an operator before it, such as == or &&, or the end", core.ShortText(got, 64))
	}
	return fmt.Sprintf("%s cannot stand here, want %s", core.ShortText(got, 64), strings.Trim(want, "{}"))
}

func unreadable(m []string, _ spot) string {
	got := strings.TrimSpace(m[1])
	switch {
	case operatorWords[got] != "":
		return fmt.Sprintf("%q is no operator, want %s", got, operatorWords[got])
	case strings.HasPrefix(got, "'") || strings.HasPrefix(got, `"`):
		return fmt.Sprintf("the text that begins here has no end, or a \\ that means nothing in it: want a %s behind it", got[:1])
	}
	return fmt.Sprintf("%s means nothing in CEL", core.ShortText(got, 64))
}

// unfit is an operator or function applied to types that it does not take.
func unfit(m []string, _ spot) string {
	name, args := m[1], m[2]
	if m[4] != "" || m[3] != "" {
		args = m[3] + ", " + m[4]
	}
	var all []string
	for _, t := range strings.Split(args, ", ") {
		if t != "" {
			all = append(all, typeWords(t))
		}
	}
	if name == operators.Conditional && len(all) == 3 {
		if all[0] != typeWords("bool") && all[0] != typeWords("dyn") {
			return fmt.Sprintf("what stands before ? is %s, want true or false", all[0])
		}
		return fmt.Sprintf("it gives %s or %s, want the same type on both sides of :", all[1], all[2])
	}
	if sign, ok := operators.FindReverse(name); ok && sign != "" && len(all) > 0 {
		if len(all) == 1 {
			return fmt.Sprintf("%s does not go with %s", sign, all[0])
		}
		advice := "; int(), double() and string() convert"
		if name == operators.In {
			advice = ", want a list or a map behind it"
		}
		return fmt.Sprintf("%s does not go with %s%s", sign, strings.Join(all, " and "), advice)
	}
	if len(all) == 0 {
		return fmt.Sprintf("%s() wants an argument", name)
	}
	return fmt.Sprintf("%s does not take %s", name, strings.Join(all, " and "))
}

// writtenAs are functions that macros stand for.
var writtenAs = strings.NewReplacer("math.@max", "math.greatest", "math.@min", "math.least")

// noOverload is unfit at run time, where CEL does not always tell the operation and the types.
func noOverload(m []string, _ spot) string {
	const advice = "; int(), double() and string() convert"
	name, values := m[1], "values of such types"
	if m[2] != "" {
		types := strings.Split(m[2], ", ")
		for i := range types {
			types[i] = typeWords(types[i])
		}
		values = strings.Join(types, " and ")
	}
	switch sign, ok := operators.FindReverse(name); {
	case name == "" || ok && sign == "":
		return values + " have no such operation" + advice
	case ok:
		return sign + " does not go with " + values + advice
	}
	return writtenAs.Replace(name) + "() does not take " + values + advice
}

// typeWords names a type of CEL as a reader of JSON would.
func typeWords(name string) string {
	switch kind, _, _ := strings.Cut(name, "("); kind {
	case "bool":
		return "true or false"
	case "int":
		return "an int"
	case "null", "null_type":
		return "null"
	case "dyn", "any":
		return "any value"
	case "list", "map":
		return "a " + kind
	case "google.protobuf.Timestamp", "timestamp":
		return "a timestamp"
	case "google.protobuf.Duration", "duration":
		return "a duration"
	}
	return "a " + name
}

// spotOf is the line and column of what failed at run time, where CEL tells it.
func spotOf(x *expression, err error) (line, column int, ok bool) {
	failed, is := errors.AsType[*types.Err](err)
	if !is || failed.NodeID() == 0 || sharedErrs[failed] {
		return 0, 0, false
	}
	at := x.ast.NativeRep().SourceInfo().GetStartLocation(failed.NodeID())
	if at.Line() < 1 || at.Column() < 0 {
		return 0, 0, false
	}
	return at.Line(), at.Column() + 1, true
}
