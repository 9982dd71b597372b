// Package exitcode gives errors the exit codes of the program.
package exitcode

import "errors"

// Exit codes of all verbs.
const (
	// Failure is the exit code of an error without a code of its own.
	Failure = 1
	// BadInput is the exit code after a mistake in the arguments, or in a file that they name.
	BadInput = 2
)

// An Error ends the program with its exit code.
type Error struct {
	Code int
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its exit code.
func (e *Error) Unwrap() error { return e.Err }

// AsBadInput gives an error the exit code BadInput. It returns nil for no error.
func AsBadInput(err error) error {
	if err == nil {
		return nil
	}
	return &Error{BadInput, err}
}

// Of returns the exit code of the program after an error.
func Of(err error) int {
	if own, ok := errors.AsType[*Error](err); ok {
		return own.Code
	}
	return Failure
}
