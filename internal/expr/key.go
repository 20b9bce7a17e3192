package expr

import (
	"fmt"
	"strings"
	"sync"

	"cel.dev/cel-go/common/types"

	"duly.dev/duly/internal/core"
)

// Variables of the expressions of keys, besides input.
const (
	varType   = "type"
	varLabels = "labels"
)

// keyScope is what they see: not the results of steps, so that a task has one key from its beginning to its end.
var keyScope = sync.OnceValues(func() (*Scope, error) {
	return newScope(bareEnv, Variable{varInput, AnyType}, Variable{varType, TextType}, Variable{varLabels, TextsType})
})

// Key is the expression of a limit's keys, compiled: see core.Limit. Any number of goroutines may use it.
type Key struct{ x *Expression }

// NewKey compiles the expression of a limit's keys. The error is one line, with the place of what is wrong.
func NewKey(source string) (*Key, error) {
	if len(source) > core.LimitKeyMax {
		return nil, fmt.Errorf("it has %d bytes, want at most %d", len(source), core.LimitKeyMax)
	}
	scope, err := keyScope()
	if err != nil {
		return nil, err
	}
	x, wrong := scope.Compile(source, AnyType)
	if len(wrong) > 0 {
		return nil, fmt.Errorf("line %d, column %d: %s", wrong[0].Line, wrong[0].Column, wrong[0].Text)
	}
	gives := x.x.ast.OutputType()
	switch gives.Kind() {
	case types.ListKind, types.MapKind, types.NullTypeKind, types.BytesKind, types.DurationKind, types.TypeKind:
		return nil, fmt.Errorf("line 1, column 1: it gives %s, want %s", typeWords(gives.String()), keyTypes)
	}
	return &Key{x}, nil
}

// keyTypes are what a key can be of.
const keyTypes = "text, a number, or true or false"

// Of is the key of a task. The error is one line that says where and why it has none: a member is missing, say, or the
// input is encrypted.
func (k *Key) Of(t *core.Task) (string, error) {
	var input any
	read := false
	v, err := k.x.Eval(func(name string) (any, error) {
		switch name {
		case varType:
			return t.Type, nil
		case varLabels:
			labels := make(map[string]string, len(t.Labels))
			for _, l := range t.Labels {
				labels[l.Key] = l.Value
			}
			return labels, nil
		}
		var err error
		if !read {
			input, err = Payload("the input", t.Input)
			read = err == nil
		}
		return input, err
	})
	if err != nil {
		return "", fmt.Errorf("key: %w", err)
	}
	text, ok := v.Plain()
	if !ok {
		return "", fmt.Errorf("key: it gives %s, want %s", v.Describe(), keyTypes)
	}
	// No database keeps the byte 0 in text, and JSON can have it.
	return core.KeyOf(strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")), nil
}
