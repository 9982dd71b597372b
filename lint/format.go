package lint

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// WriteText writes a line for each finding and one with the totals.
func WriteText(w io.Writer, result *Result) error {
	var b strings.Builder
	for i := range result.Findings {
		f := &result.Findings[i]
		fmt.Fprintf(&b, "%s:%d:%d: %s: %s [%s]\n", f.File, f.Line, f.Column, f.Severity, f.text(), f.Rule)
	}
	fmt.Fprintf(&b, "%s checked: %s, %s\n", Plural(result.Checked, "object"), Plural(Count(result.Findings, Error), "error"),
		Plural(Count(result.Findings, Warning), "warning"))
	_, err := io.WriteString(w, b.String())
	return err
}

// text returns the object, the field, the message and the cure.
func (f *Finding) text() string {
	text := f.Message
	if f.Field != "" && !strings.HasPrefix(text, f.Field) {
		text = f.Field + ": " + text
	}
	if f.Object != "" {
		text = f.Object + ": " + text
	}
	if f.Cure != "" {
		text += "; " + f.Cure
	}
	return text
}

// Plural returns a number with its noun.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// MarshalJSON implements json.Marshaler. It omits what was skipped.
func (r *Result) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"findings": append([]Finding{}, r.Findings...), "checked": r.Checked}) // a list, not null
}

// WriteGitHub writes workflow commands, which GitHub shows beside the lines of a pull request.
func WriteGitHub(w io.Writer, result *Result) error {
	message := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	var b strings.Builder
	for i := range result.Findings {
		f := &result.Findings[i]
		fmt.Fprintf(&b, "::%s file=%s,line=%d,col=%d,title=%s::%s\n", f.Severity, property.Replace(f.File), f.Line, f.Column,
			property.Replace("tranche lint: "+f.Rule), message.Replace(f.text()))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
