package output

import (
	"strings"
	"unicode/utf8"
)

const (
	// maxColumns is how many columns a line of sentences has at most, unless a single word is longer.
	maxColumns = 120
	// hanging is how much further the lines after the first one of a sentence are indented.
	hanging = "    "
)

// Wrap breaks the lines of a text that are too long to be read on a terminal.
func Wrap(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		column := 0
		for i, word := range strings.Split(strings.TrimSuffix(line[len(indent):], "\n"), " ") {
			width := utf8.RuneCountInString(word)
			switch {
			case i == 0:
				out.WriteString(indent)
				column = len(indent)
			case column+1+width > maxColumns:
				out.WriteString("\n" + indent + hanging)
				column = len(indent) + len(hanging)
			default:
				out.WriteString(" ")
				column++
			}
			out.WriteString(word)
			column += width
		}
		if strings.HasSuffix(line, "\n") {
			out.WriteString("\n")
		}
	}
	return out.String()
}
