// Package output selects the format of the answers of verbs, prints them as JSON and YAML, and prints them again whenever they change.
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
	// Markdown is a comment for a pull request.
	Markdown Format = "markdown"
	// SARIF is the format of static analysis tools.
	SARIF Format = "sarif"
	// GitHub are the commands of GitHub workflows.
	GitHub Format = "github"
)

// textName is the name of Text.
const textName = "text"

// Add adds the flag that selects the format to a command. formats are those that the command has beside Text.
func (f *Format) Add(cmd *cobra.Command, formats ...Format) {
	names := []string{textName}
	for _, format := range formats {
		names = append(names, string(format))
	}
	cmd.Flags().VarP(&value{f, names}, "output", "o", "output format: "+strings.Join(names, ", ")+"; defaults to "+textName)
	// Only a flag that does not exist is refused.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

// IsText reports whether people read the output, and no program does.
func (f *Format) IsText() bool { return *f == Text || *f == Wide }

// Write prints an object as JSON or YAML.
func (f *Format) Write(out io.Writer, object any) error {
	if *f == YAML {
		text, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("print as %s: %w", *f, err)
		}
		_, err = out.Write(text)
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false) // messages have < and >
	encoder.SetIndent("", "  ")
	return encoder.Encode(object)
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
	if text == textName {
		*v.format = Text
	}
	return nil
}
