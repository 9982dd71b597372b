package output

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
)

// minInterval limits how often a verb asks again.
const minInterval = time.Second

// A Watch says whether and how often to ask again.
type Watch struct {
	IsOn     bool
	Interval time.Duration
}

// Add adds the flags to a command.
func (w *Watch) Add(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&w.IsOn, "watch", "w", false, "print the answer again whenever it changes, until interrupted")
	cmd.Flags().DurationVar(&w.Interval, "interval", 5*time.Second, "with --watch: how often to ask, at least "+minInterval.String())
}

// Validate checks the interval.
func (w *Watch) Validate() error {
	if w.IsOn && w.Interval < minInterval {
		return fmt.Errorf("--interval is %s, must be at least %s", w.Interval, minInterval)
	}
	return nil
}

// Repeat asks and prints once, or with a Watch until the context ends: it prints an answer whose JSON differs from that of the last one. Only
// the first error ends it. A later one is printed to warnings, unless the last one was the same.
func Repeat[T any](ctx context.Context, w *Watch, warnings io.Writer, ask func(context.Context) (T, error), show func(T) error) error {
	if err := w.Validate(); err != nil {
		return exitcode.AsBadInput(err)
	}
	first, err := ask(ctx)
	if err != nil {
		return err
	}
	if err := show(first); err != nil || !w.IsOn {
		return err
	}
	last, err := json.Marshal(first)
	if err != nil {
		return fmt.Errorf("compare answers: %w", err)
	}
	ticker := time.NewTicker(w.Interval)
	defer ticker.Stop()
	for warned := ""; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		answer, err := ask(ctx)
		if err != nil {
			if text := err.Error(); text != warned && !errors.Is(err, context.Canceled) {
				warned = text
				_, _ = fmt.Fprintln(warnings, "tranche:", text) // there is no place left to report that warnings cannot be printed
			}
			continue
		}
		warned = ""
		content, err := json.Marshal(answer) // answers have times and quantities, whose fields do not compare
		if err != nil {
			return fmt.Errorf("compare answers: %w", err)
		}
		if bytes.Equal(last, content) {
			continue
		}
		last = content
		if err := show(answer); err != nil {
			return err
		}
	}
}
