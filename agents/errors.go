package agents

import (
	"errors"
	"fmt"
	"strings"

	"duly.dev/duly/internal/core"
)

// Error is a failure with the code its reply shall carry.
type Error struct {
	Code int // as HTTP's, 400 to 599, any other counts as 500; see core.FinalCode for which are final
	Err  error
}

// Error is the text the reply carries.
func (e *Error) Error() string {
	if e == nil || e.Err == nil {
		return noText
	}
	return e.Err.Error()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

const noText = "error without a text"

// What a handler or a [Ledger] says about a key that it cannot work on.
var (
	// ErrGone: the key was undone, or is being undone; a do of it comes too
	// late. Code 410, final.
	ErrGone error = &Error{Code: core.CodeGone, Err: errors.New("gone: this key was undone")}
	// ErrInProgress: a do or undo of the key is at work elsewhere. Code 425,
	// tried again.
	ErrInProgress error = &Error{Code: core.CodeTooEarly, Err: errors.New("in progress: this key is at work elsewhere")}
	// ErrLedgerFull: the ledger can take no further key without forgetting one
	// too early. Code 429, tried again.
	ErrLedgerFull error = &Error{Code: core.CodeTooMany, Err: errors.New("ledger full")}
)

// Refuse marks err as final with a code of 400 to 499; any other code counts as
// 422. Codes 408, 425 and 429 are not final by the rule of the wire: they are
// tried again. A nil err is refused all the same.
func Refuse(code int, err error) error {
	if code < 400 || code > 499 {
		code = core.CodeRefused
	}
	if err == nil {
		err = errors.New("refused")
	}
	return &Error{Code: code, Err: err}
}

// Fail marks err as one that the same call would have again, with or without an effect: the step is not tried again, and is
// undone. Code 512. A nil err fails all the same.
func Fail(err error) error {
	if err == nil {
		err = errors.New("failed")
	}
	return &Error{Code: core.CodeFailed, Err: err}
}

// panicError is what a handler's panic becomes.
type panicError struct {
	value any
	stack []byte
}

// Error is the first line of the value: the log has the stack.
func (e *panicError) Error() string {
	first, _, _ := strings.Cut(fmt.Sprint(e.value), "\n")
	return "panic: " + first
}

// codeOf is the reply code of a handler's error. It is never 0, by which a reply says that all went well.
func codeOf(err error) int {
	if coded, ok := errors.AsType[*Error](err); ok && coded != nil && coded.Code >= 400 && coded.Code < 600 {
		return coded.Code
	}
	if _, ok := errors.AsType[*panicError](err); ok {
		return core.CodeFailed
	}
	return core.CodeAgentError
}

// again reports whether one more try inside the same command can help.
func again(err error) bool { return !core.LastCode(codeOf(err)) }

// textOf is an error's text as a reply may carry it: valid UTF-8 on one line,
// because it travels in a header, and no longer than core.ErrorBytesMax.
func textOf(err error) string {
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(err.Error(), "?"))
	text = core.CutText(text, core.ErrorBytesMax)
	if strings.TrimSpace(text) == "" {
		return noText
	}
	return text
}
