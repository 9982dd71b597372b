package output

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
)

// Confirm asks the user whether to continue, and returns an error unless the answer is yes.
func Confirm(in io.Reader, out io.Writer) error {
	if _, err := fmt.Fprint(out, "\nContinue? [y/N] "); err != nil {
		return err
	}
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return exitcode.AsBadInput(errors.New("not confirmed, nothing has changed: answer y, or use --yes"))
	}
	return nil
}
