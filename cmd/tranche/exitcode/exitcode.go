// Package exitcode gives errors the exit codes of the program.
package exitcode

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

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

// usageCode is the annotation of a command with the exit code after a mistake in its arguments.
const usageCode = "tranche.dev/usage-exit-code"

// SetUsage sets the exit code after a mistake in the arguments of a command and of those below it. Otherwise it is BadInput.
func SetUsage(cmd *cobra.Command, code int) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[usageCode] = strconv.Itoa(code)
}

// AsUsage gives an error about the arguments of a command its exit code, and names the help.
func AsUsage(cmd *cobra.Command, err error) error {
	code := BadInput
	for at := cmd; at != nil; at = at.Parent() {
		if own, failure := strconv.Atoi(at.Annotations[usageCode]); failure == nil {
			code = own
			break
		}
	}
	separator := "; "
	if strings.HasSuffix(err.Error(), "\n") {
		separator = "" // behind a list of similar names
	}
	return &Error{code, fmt.Errorf("%w%ssee %s --help", err, separator, cmd.CommandPath())}
}

// Of returns the exit code of the program after an error.
func Of(err error) int {
	if own, ok := errors.AsType[*Error](err); ok {
		return own.Code
	}
	return Failure
}
