package expr

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestScope: expressions of no plan see their own variables, give what is wanted, and fail in the words of plans.
func TestScope(t *testing.T) {
	s, err := NewScope(Variable{"status", IntType}, Variable{"headers", TextsType}, Variable{"key", TextType}, Variable{"known", BoolType}, Variable{"body", AnyType})
	if err != nil {
		t.Fatal(err)
	}
	lost := errors.New("the body is lost")
	values := func(name string) (any, error) {
		switch name {
		case "status":
			return int64(201), nil
		case "headers":
			return map[string]string{"made": "1f"}, nil
		case "key":
			return "a/b/0", nil
		case "known":
			return true, nil
		case "input":
			return Payload("the input", []byte(`{"n":5,"f":1.5,"l":[1,"x"],"z":null}`))
		case "body":
			return nil, lost
		}
		return nil, nil
	}
	for source, want := range map[string]string{
		"status": "201", "headers.made + '!'": `"1f!"`, "known ? key : ''": `"a/b/0"`, "int(input.n) + 1": "6", "input.l": `[1,"x"]`, "{'b': input.z, 'a': 1}": `{"a":1,"b":null}`, "results": "null",
	} {
		x, wrong := s.Compile(source, AnyType)
		if len(wrong) > 0 {
			t.Errorf("%s: %v", source, wrong)
			continue
		}
		v, err := x.Eval(values)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := v.JSON(100); err != nil || string(got) != want {
			t.Errorf("%s: %s %v, want %s", source, got, err, want)
		}
	}
	x, _ := s.Compile("[[[[[[input]]]]]]", AnyType)
	deep := func(name string) (any, error) {
		if name != "input" {
			return values(name)
		}
		return Payload("the input", []byte(strings.Repeat("[", 195)+strings.Repeat("]", 195)))
	}
	if v, err := x.Eval(deep); err != nil {
		t.Error(err)
	} else if _, err := v.JSON(1000); err == nil || !strings.Contains(err.Error(), "nests deeper than 200") {
		t.Errorf("201 deep: %v", err)
	}
	for source, want := range map[string]string{
		"stauts": `1:1 there is no "stauts": is status meant?`, "key +": "1:6 it ends too early", "status ? 1 : 2": "what stands before ? is an int", "headers.made > 5": "1:14", "'a'": "1:1 it gives a string, want an int",
		"input.n / 2": "1:1 what type input.n has depends on the data: say int(input.n) or double(input.n)",
		"foo":         "an expression sees input, results, status, headers, key, known, body",
	} {
		_, wrong := s.Compile(source, IntType)
		if len(wrong) == 0 || !strings.Contains(placeOf(wrong[0])+" "+wrong[0].Text, want) {
			t.Errorf("%s: %v, want %s", source, wrong, want)
		}
	}
	for source, want := range map[string]string{"body.a": lost.Error(), "input.m": `at column 6 of input.m: there is no "m"`, "'a' + input.l": "at column 5 of 'a' + input.l: values of such types have no such operation"} {
		x, wrong := s.Compile(source, AnyType)
		if len(wrong) > 0 {
			t.Errorf("%s: %v", source, wrong)
			continue
		}
		if _, err := x.Eval(values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
	if _, err := Payload("the input", []byte(`{`)); err == nil {
		t.Error("half an object is a payload")
	}
}

func placeOf(f Fault) string { return fmt.Sprintf("%d:%d", f.Line, f.Column) }

// Values that a path or a header can have.
func TestPlain(t *testing.T) {
	s, err := NewScope()
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{"'a'": "a", "5": "5", "1.5": "1.5", "true": "true", "timestamp('2027-01-31T09:00:00Z')": "2027-01-31T09:00:00Z", "null": "-", "[1]": "-", "{}": "-", "duration('1s')": "-"} {
		x, wrong := s.Compile(source, AnyType)
		if len(wrong) > 0 {
			t.Fatal(wrong)
		}
		v, err := x.Eval(func(string) (any, error) { return nil, nil })
		if err != nil {
			t.Fatal(err)
		}
		got, ok := v.Plain()
		if !ok {
			got = "-"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}
