package wire

import (
	"cmp"
	"errors"
	"fmt"

	"duly.dev/duly/internal/core"
)

// errAskKind: permissions are given by subject, so the payload must not ask for anything
// else.
var errAskKind = errors.New("another request than its subject's")

// DecodeAsk reads a request of duly.ask.<kind> or duly.ask.<kind>.<type> that changes a
// task. Fields that are not known here are refused. Errors wrap errSubject or
// ErrUndecodable, or say that the payload asks for something else than its subject.
func (n Names) DecodeAsk(subject string, data []byte) (core.Control, error) {
	kind, taskType, err := n.ParseAsk(subject)
	if err != nil {
		return core.Control{}, err
	}
	c, err := decodeControl(data, true)
	if err == nil && c.Kind != kind {
		err = fmt.Errorf("%w: %s carries a request to %s", errAskKind, subject, ControlWord(c.Kind))
	}
	if err == nil {
		c.Type, err = askedType(subject, taskType, c.Type)
	}
	return c, err
}

// askedType is the type that a request is about: that of the subject, if it has one.
func askedType(subject, of, says string) (string, error) {
	if of != "" && says != "" && says != of {
		return "", fmt.Errorf("%w: %s carries a request about type %s", errAskKind, subject, Short(says))
	}
	return cmp.Or(of, says), nil
}
