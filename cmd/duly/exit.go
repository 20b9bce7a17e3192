package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/internal/option"
)

// The exit statuses of every command.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUse         = 2
	exitNotFound    = 3
	exitState       = 4
	exitUnreachable = 5
	exitForbidden   = 6
)

// exits says what each status means: for the help, the manual and their test.
var exits = []struct {
	code int
	what string
}{
	{exitDone, "done"},
	{exitFailed, "failed, or found something wrong: a watched task not processed, an operation with failures, a mistake that doctor found"},
	{exitUse, "wrong use: a flag, argument or input is refused (400, 413, 422), or there is no terminal to ask what is missing"},
	{exitNotFound, "not found (404)"},
	{exitState, "refused by state: not possible now, or not the number of tasks that was said (409, 412)"},
	{exitUnreachable, "not reachable, or not at present: try again (429, 5xx)"},
	{exitForbidden, "not allowed: no token, an unknown one, or one without the role (401, 403)"},
}

// useError is an error of who wrote the command.
type useError struct{ error }

// misuse is wrong use, in words.
func misuse(format string, a ...any) error { return useError{fmt.Errorf(format, a...)} }

// stateError is a refusal by state that this program makes itself.
type stateError struct{ error }

// awayError is about something that is not there at present, and is no node.
type awayError struct{ error }

// exitOf is the status for an error.
func exitOf(err error) int {
	var refused *client.Problem
	var away *client.UnreachableError
	var use useError
	var refusedOption *option.Error
	var state stateError
	var gone awayError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &use), errors.As(err, &refusedOption):
		return exitUse
	case errors.As(err, &state):
		return exitState
	case errors.Is(err, nats.ErrPermissionViolation):
		return exitForbidden
	case errors.As(err, &away), errors.As(err, &gone):
		return exitUnreachable
	case !errors.As(err, &refused):
		return exitFailed
	}
	switch code := refused.Status; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return exitForbidden
	case code == http.StatusNotFound, code == http.StatusGone:
		return exitNotFound
	case code == http.StatusConflict, code == http.StatusPreconditionFailed:
		return exitState
	case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return exitUnreachable
	}
	return exitUse
}

// exitHelp is the table as the help has it.
func exitHelp() string {
	var b strings.Builder
	b.WriteString("Tasks of several steps, done by their deadline or undone.\n\nExit status:")
	for _, e := range exits {
		short, _, _ := strings.Cut(e.what, ":")
		fmt.Fprintf(&b, " %d %s;", e.code, strings.TrimSpace(short))
	}
	return strings.TrimSuffix(b.String(), ";") + "."
}
