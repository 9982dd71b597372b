// Package output prints the answers of verbs: as text, as JSON or as YAML, once or whenever they change.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
)

// A Format is how an answer is printed.
type Format string

const (
	// Text is a table or sentences. It is the default.
	Text Format = ""
	// Wide is Text with more columns.
	Wide Format = "wide"
	// JSON is one JSON document.
	JSON Format = "json"
	// YAML is one YAML document.
	YAML Format = "yaml"
)

// Add adds the flag that selects the format to a command. formats are those that the command has beside Text.
func (f *Format) Add(cmd *cobra.Command, formats ...Format) {
	names := make([]string, len(formats))
	for i := range formats {
		names[i] = string(formats[i])
	}
	cmd.Flags().VarP(&value{f, names}, "output", "o", "output format: "+strings.Join(names, ", ")+"; defaults to text")
	// Only a flag that does not exist is refused.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

// IsText reports whether people read the output, and no program does.
func (f *Format) IsText() bool { return *f == Text || *f == Wide }

// Write prints an object as JSON or YAML.
func (f *Format) Write(out io.Writer, object any) error {
	var text []byte
	var err error
	if *f == YAML {
		text, err = yaml.Marshal(object)
	} else if text, err = json.MarshalIndent(object, "", "    "); err == nil {
		text = append(text, '\n')
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", *f, err)
	}
	_, err = out.Write(text)
	return err
}

// A value is the flag of a Format.
type value struct {
	format *Format
	names  []string
}

// String implements pflag.Value.
func (v *value) String() string { return string(*v.format) }

// Type implements pflag.Value.
func (v *value) Type() string { return "format" }

// Set implements pflag.Value.
func (v *value) Set(text string) error {
	if !slices.Contains(v.names, text) {
		return exitcode.AsBadInput(fmt.Errorf("must be one of %s", strings.Join(v.names, ", ")))
	}
	*v.format = Format(text)
	return nil
}
