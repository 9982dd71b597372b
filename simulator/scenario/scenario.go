// Package scenario reads and writes scenarios: short texts that describe queues, submitted JobSets and events, and, below a line of four
// dashes, the expected result. docs/reference/scenario.md describes the language; it is generated from the tables of this package, which
// the reader also uses.
package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// separator is the line between the script and the expected result.
const separator = "----"

// A Scenario is a parsed file.
type Scenario struct {
	Lines []Line
	// Config has what the config lines set.
	Config Config
	// Golden is the text after the separator, unchanged.
	Golden string
	// HasGolden is true if the file has a separator.
	HasGolden bool
}

// A Line is one line of a scenario.
type Line struct {
	// Number is that of the line in its file, from 1.
	Number int
	// Words are those of the line, without the comment. A comment line has none.
	Words []string
	// Comment is the comment with its #, or empty.
	Comment string
	// At is the time of the line: its own, or the time up to which the earlier lines have been run.
	At time.Duration
	// Statement is the meaning of the words, or nil if there are none, or if they set fields of the configuration.
	Statement Statement
}

// An Error describes a mistake in a line, and what to write instead.
type Error struct {
	Line int
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns the mistake.
func (e *Error) Unwrap() error { return e.Err }

// Parse reads a scenario. The error joins one of type *Error for each wrong line.
func Parse(text string) (*Scenario, error) {
	script, golden, hasGolden := split(text)
	s := &Scenario{Config: defaultConfig(), Golden: golden, HasGolden: hasGolden}
	r := reader{config: &s.Config, submissions: map[string]*Submission{}, declared: map[string]int{}}
	if first, _, _ := strings.Cut(script, "\n"); !strings.HasPrefix(strings.TrimSpace(first), "#") {
		r.complain(1, errors.New("a scenario begins with its story, as a comment: write # and what the reader should learn"))
	}
	for i, text := range strings.Split(strings.TrimSuffix(script, "\n"), "\n") {
		line := lex(i+1, text)
		if len(line.Words) > 0 {
			if err := r.read(&line); err != nil {
				r.complain(line.Number, err)
			}
		}
		s.Lines = append(s.Lines, line)
	}
	if len(r.problems) > 0 {
		return nil, errors.Join(r.problems...)
	}
	return s, nil
}

func split(text string) (script, golden string, found bool) {
	if rest, ok := strings.CutPrefix(text, separator+"\n"); ok {
		return "", rest, true
	}
	if script, golden, found = strings.Cut(text, "\n"+separator+"\n"); found {
		return script + "\n", golden, true
	}
	if script, found = strings.CutSuffix(text, "\n"+separator); found {
		return script + "\n", "", true
	}
	return text, "", false
}

// lex splits a line into words and a comment, which begins at a word that begins with #.
func lex(number int, text string) Line {
	line := Line{Number: number}
	rest := strings.TrimSpace(text)
	for rest != "" {
		if strings.HasPrefix(rest, "#") {
			line.Comment = rest
			break
		}
		end := strings.IndexAny(rest, " \t\r\v\f")
		if end < 0 {
			end = len(rest)
		}
		line.Words = append(line.Words, rest[:end])
		rest = strings.TrimSpace(rest[end:])
	}
	return line
}

// Script is the part above the separator, with single spaces between words.
func (s *Scenario) Script() string {
	var b strings.Builder
	for i := range s.Lines {
		b.WriteString(s.Lines[i].String() + "\n")
	}
	return b.String()
}

// String is the whole file. Parsing it gives the same scenario again.
func (s *Scenario) String() string {
	if !s.HasGolden {
		return s.Script()
	}
	return s.Script() + separator + "\n" + s.Golden
}

// String is the line as it is written.
func (l *Line) String() string {
	words := l.Words
	if l.Comment != "" {
		words = append(slices.Clip(words), l.Comment)
	}
	return strings.Join(words, " ")
}
