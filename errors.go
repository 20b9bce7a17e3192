package duly

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// What the client's errors are, by errors.Is.
var (
	// ErrRefused is what a final [SubmitError] is: nothing was begun, and the
	// same again would be refused again.
	ErrRefused = errors.New("refused")
	// ErrTaken is what a refused submission is whose id is a task already, with another
	// input or of another type, or was cancelled before. It is an [ErrRefused], too.
	ErrTaken = errors.New("the id is taken")
	// ErrTimeout says that the context ended before there was a positive answer, or that a try
	// came too late after one that was not answered. It is
	// not known whether the task was taken; submitting it again under the same
	// id is safe. The errors of the context and of the last try are wrapped too.
	ErrTimeout = errors.New("no answer in time")
)

// SubmitError is why a submission, a plan or a cancellation was not taken.
type SubmitError struct {
	Type        string // the plan's name
	Task        string // the task's id; empty for a plan
	Code        int    // as HTTP's: 400, 404, 409, 413, 429, 503 …
	Description string
	RetryAfter  time.Duration // how long the server asks to wait; 0: it did not say

	taken bool // see ErrTaken
	late  bool // it is for when it came: the server would say the same of what it took before
	open  bool // it leaves open whether it was taken
}

// Error names the type, the task and the reason.
func (e *SubmitError) Error() string {
	switch {
	case e.Task == "" && strings.Contains(e.Description, "plan "+e.Type+":"), e.Task == "" && strings.Contains(e.Description, "plan "+e.Type+" "):
		return fmt.Sprintf("%s (%d)", e.Description, e.Code) // the server names the plan
	case e.Task == "":
		return fmt.Sprintf("plan %s: %s (%d)", e.Type, e.Description, e.Code)
	}
	return fmt.Sprintf("task %s of type %s: %s (%d)", e.Task, e.Type, e.Description, e.Code)
}

// Retryable reports whether the same may be taken later: codes 408, 425, 429
// and everything that is not 400 to 499.
func (e *SubmitError) Retryable() bool { return !core.FinalCode(e.Code) }

// Is makes a final refusal an [ErrRefused], and that of an id that is taken an [ErrTaken].
func (e *SubmitError) Is(target error) bool {
	return target == ErrRefused && !e.Retryable() || target == ErrTaken && e.taken
}

// What a handler or a [Ledger] answers about a key it cannot work on.
var (
	// ErrGone: the key was undone, so a do comes too late. Final, code 410.
	ErrGone = agents.ErrGone
	// ErrInProgress: the key is at work elsewhere. Tried again, code 425.
	ErrInProgress = agents.ErrInProgress
)

// Refuse makes an error of a handler final, code 422: it had no effect, the step is not tried
// again and the task is undone. Any other error is tried again, but [Fail]'s.
func Refuse(err error) error { return agents.Refuse(core.CodeRefused, err) }

// Fail makes an error of a do final that may have had an effect, code 512: the step is not tried again, and is undone with
// the task. A panic is one.
func Fail(err error) error { return agents.Fail(err) }

// RefuseCode is [Refuse] with another code of 400 to 499; a code outside counts
// as 422. Codes 408, 425 and 429 are not final: they are tried again.
func RefuseCode(code int, err error) error { return agents.Refuse(code, err) }
