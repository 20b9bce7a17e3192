package httpagent

import (
	"net/http"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
)

// Variables of expressions, besides input and results.
const (
	varKey     = "key"
	varRef     = "ref" // the key with dots for slashes, which many servers do not take in a path, however they are written
	varTask    = "task"
	varType    = "task_type"
	varStep    = "step"
	varAttempt = "attempt"
	varKnown   = "known"  // of an undo: whether the do has answered
	varResult  = "result" // of an undo: what it answered
	varStatus  = "status" // of an answer, as the next two
	varHeaders = "headers"
	varBody    = "body"
)

// scopes are what expressions see: of a request and of its answer.
type scopes struct{ request, answer *expr.Scope }

func newScopes(more ...expr.Variable) (s scopes, err error) {
	call := append([]expr.Variable{{Name: varKey, Of: expr.TextType}, {Name: varRef, Of: expr.TextType}, {Name: varTask, Of: expr.TextType}, {Name: varType, Of: expr.TextType},
		{Name: varStep, Of: expr.TextType}, {Name: varAttempt, Of: expr.IntType}}, more...)
	if s.request, err = expr.NewScope(call...); err != nil {
		return s, err
	}
	s.answer, err = expr.NewScope(append(call, expr.Variable{Name: varStatus, Of: expr.IntType},
		expr.Variable{Name: varHeaders, Of: expr.TextsType}, expr.Variable{Name: varBody})...)
	return s, err
}

// answer is what a service answered.
type answer struct {
	status int
	header http.Header
	body   []byte
	text   bool // the body is text, not JSON
	means  verdict
}

// values are what the expressions of one command see. They are for one goroutine.
type values struct {
	cmd    *core.Command
	answer *answer
	read   map[string]any // payloads that were looked at
}

// with are the values with an answer.
func (v *values) with(a *answer) *values {
	delete(v.read, varBody)
	delete(v.read, varHeaders)
	v.answer = a
	return v
}

// get implements expr.Values.
func (v *values) get(name string) (any, error) {
	switch name {
	case varKey:
		return v.cmd.Key(), nil
	case varRef:
		return strings.ReplaceAll(v.cmd.Key(), "/", "."), nil
	case varTask:
		return v.cmd.Task, nil
	case varType:
		return v.cmd.Type, nil
	case varStep:
		return v.cmd.Step, nil
	case varAttempt:
		return int64(v.cmd.Attempt), nil
	case varKnown:
		return v.cmd.Result != nil, nil
	case varStatus:
		return int64(v.answer.status), nil
	}
	if have, ok := v.read[name]; ok {
		return have, nil
	}
	got, err := v.look(name)
	if err != nil {
		return nil, err
	}
	if v.read == nil {
		v.read = map[string]any{}
	}
	v.read[name] = got
	return got, nil
}

// look reads what is not at hand.
func (v *values) look(name string) (any, error) {
	switch name {
	case "input":
		return expr.Payload("the input", v.cmd.Input)
	case "results":
		all := make(map[string]any, len(v.cmd.Results))
		for _, r := range v.cmd.Results {
			one, err := expr.Payload("the result of step "+r.Step, r.Result)
			if err != nil {
				return nil, err
			}
			all[r.Step] = one
		}
		return all, nil
	case varResult:
		return expr.Payload("the result", v.cmd.Result)
	case varHeaders:
		all := make(map[string]string, len(v.answer.header))
		for name, values := range v.answer.header {
			all[strings.ToLower(name)] = strings.ToValidUTF8(strings.Join(values, ", "), "?")
		}
		return all, nil
	}
	if v.answer.text {
		return strings.ToValidUTF8(string(v.answer.body), "?"), nil
	}
	return expr.Payload("the answer", v.answer.body)
}
