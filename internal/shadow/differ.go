package shadow

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"duly.dev/duly/internal/decimal"
)

const (
	placesMost = 8   // of one difference
	valueMost  = 200 // bytes shown of a value
)

// differ says where two results differ; nil: nowhere but where they may.
func differ(theirs, shadow []byte, o *Options) []Place {
	if bytes.Equal(theirs, shadow) {
		return nil
	}
	x, err1 := decoded(theirs)
	y, err2 := decoded(shadow)
	if err1 != nil || err2 != nil {
		return []Place{{}} // neither comes from a reply that was read
	}
	c := &comparison{o: o}
	c.values("", x, y)
	return c.found
}

func decoded(data []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

type comparison struct {
	o     *Options
	found []Place
}

// absent is a member or element that is not there.
type absent struct{}

func (c *comparison) values(at string, x, y any) {
	if len(c.found) == placesMost || c.ignored(at) {
		return
	}
	switch x := x.(type) {
	case map[string]any:
		if y, ok := y.(map[string]any); ok {
			c.members(at, x, y)
			return
		}
	case []any:
		if y, ok := y.([]any); ok {
			for i := range max(len(x), len(y)) {
				c.values(at+"/"+strconv.Itoa(i), element(x, i), element(y, i))
			}
			return
		}
	case json.Number:
		if y, ok := y.(json.Number); ok && decimal.Same(string(x), string(y)) {
			return
		}
	default:
		if !compound(y) && x == y {
			return
		}
	}
	place := Place{Pointer: at}
	if c.o.Values {
		place.Real, place.Shadow = shown(x), shown(y)
	}
	c.found = append(c.found, place)
}

// escape is a member's name in a pointer.
var escape = strings.NewReplacer("~", "~0", "/", "~1")

func (c *comparison) members(at string, x, y map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(x)) {
		other, ok := y[name]
		if !ok {
			other = absent{}
		}
		c.values(at+"/"+escape.Replace(name), x[name], other)
	}
	for _, name := range slices.Sorted(maps.Keys(y)) {
		if _, ok := x[name]; !ok {
			c.values(at+"/"+escape.Replace(name), absent{}, y[name])
		}
	}
}

func element(of []any, i int) any {
	if i < len(of) {
		return of[i]
	}
	return absent{}
}

// compound reports whether a value cannot be compared by ==.
func compound(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// ignored reports whether a place is one that may differ.
func (c *comparison) ignored(at string) bool {
	for _, pattern := range c.o.Ignore {
		if matches(strings.Split(pattern, "/"), strings.Split(at, "/")) {
			return true
		}
	}
	return false
}

func matches(pattern, at []string) bool {
	return slices.EqualFunc(pattern, at, func(p, a string) bool { return p == a || p == "*" && a != "" })
}

func shown(v any) *string {
	if _, none := v.(absent); none {
		return nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil // it came from JSON
	}
	if len(data) > valueMost {
		data = append(data[:valueMost:valueMost], "…"...)
	}
	s := strings.ToValidUTF8(string(data), "")
	return &s
}
