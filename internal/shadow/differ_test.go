package shadow

import (
	"strings"
	"testing"
)

func TestDiffer(t *testing.T) {
	for _, test := range []struct {
		real, shadow string
		ignore       []string
		want         string // pointers
	}{
		{`{"a":1,"b":[1,2]}`, `{ "b":[1,2], "a":1 }`, nil, ""},
		{`{"a":1.50}`, `{"a":1.5}`, nil, ""},
		{`9007199254740993`, `9007199254740992`, nil, "."},
		{`1e400`, `1e401`, nil, "."},
		{`null`, `{}`, nil, "."},
		{`{"a":null}`, `{}`, nil, "/a"},
		{`{}`, `{"a":null}`, nil, "/a"},
		{`{"a":{"b":1,"c":"x"},"d":[true]}`, `{"a":{"b":2,"c":"x"},"d":[false,1]}`, nil, "/a/b /d/0 /d/1"},
		{`{"a":{"b":1}}`, `{"a":[1]}`, nil, "/a"},
		{`{"a":[1]}`, `{"a":1}`, nil, "/a"},
		{`{"a":1}`, `{"a":[1]}`, nil, "/a"},
		{`{"a/b":1,"~":1}`, `{"a/b":2,"~":2}`, nil, "/a~1b /~0"},
		{`{"n":1,"lines":[{"at":1,"x":1},{"at":2,"x":2}]}`, `{"n":2,"lines":[{"at":3,"x":1},{"at":4,"x":3}]}`, []string{"/n", "/lines/*/at"}, "/lines/1/x"},
		{`{"n":1}`, `{"m":1}`, []string{"/*"}, ""},
		{`{"n":{"m":1}}`, `{"n":{"m":2}}`, []string{"/*/*/*"}, "/n/m"},
		{`1`, `2`, []string{""}, ""},
		{`[1,2,3,4,5,6,7,8,9]`, `[]`, nil, "/0 /1 /2 /3 /4 /5 /6 /7"},
	} {
		var all []string
		for _, p := range differ([]byte(test.real), []byte(test.shadow), &Options{Ignore: test.ignore}) {
			if p.Pointer == "" {
				p.Pointer = "."
			}
			all = append(all, p.Pointer)
		}
		if got := strings.Join(all, " "); got != test.want {
			t.Errorf("%s and %s without %q differ at %q, want %q", test.real, test.shadow, test.ignore, got, test.want)
		}
	}
	places := differ([]byte(`{"a":"`+strings.Repeat("é", 200)+`"}`), []byte(`{}`), &Options{Values: true})
	if len(places) != 1 || places[0].Shadow != nil || places[0].Real == nil || len(*places[0].Real) > valueMost+3 {
		t.Errorf("values: %+v", places)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Agent: "a", Shadow: "b"}
	if o, err := good.complete(); err != nil || o.For != forDefault || o.Percent != 100 || o.InFlight != inFlightDefault || o.Kept != keptDefault {
		t.Errorf("the defaults: %+v, %v", o, err)
	}
	for want, spoil := range map[string]func(*Options){
		"agent: ":                                 func(o *Options) { o.Agent = "a b" },
		"shadow: ":                                func(o *Options) { o.Shadow = "" },
		"shadow: is the agent itself":             func(o *Options) { o.Shadow = "a" },
		"count: -1, want 0 to":                    func(o *Options) { o.Count = -1 },
		"percent: 101, want 1 to 100":             func(o *Options) { o.Percent = 101 },
		"in-flight: 65537, want 1 to 65536":       func(o *Options) { o.InFlight = inFlightMost + 1 },
		"kept: 1001, want 1 to 1000":              func(o *Options) { o.Kept = keptMost + 1 },
		"ignore: 101, want 0 to 100":              func(o *Options) { o.Ignore = make([]string, ignoreMost+1) },
		"ignore: \"x\" is no JSON pointer":        func(o *Options) { o.Ignore = []string{"x"} },
		"for: 24h0m0.000000001s, want 1s to 24h0": func(o *Options) { o.For = forMost + 1 },
	} {
		o := good
		spoil(&o)
		if _, err := o.complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
