// Package option refuses options of what a command runs, so that the command can say which flag is wrong.
package option

// Error is an option that cannot be, or what was run does not take what the options say.
type Error struct {
	Option string // its name, as in --call-time without dashes
	Err    error
}

// Refuse is an [Error].
func Refuse(option string, err error) error { return &Error{Option: option, Err: err} }

// Error names the option.
func (e *Error) Error() string { return e.Option + ": " + e.Err.Error() }

// Unwrap is what is wrong.
func (e *Error) Unwrap() error { return e.Err }
