// Package redact removes names from texts.
package redact

import (
	"slices"
	"strings"
)

// What a text has instead of names.
const (
	otherObject = "an object of another namespace"
	hidden      = "(hidden)"
)

// Text returns a text without the names of hidden namespaces and of the objects in them: all NAMESPACE/NAME and `namespace NAMESPACE` are replaced.
func Text(text string, isHidden func(namespace string) bool) string {
	if !strings.Contains(text, "/") && !strings.Contains(text, "amespace") {
		return text
	}
	var redacted strings.Builder
	before := ""
	for {
		start := strings.IndexFunc(text, isOfName)
		if start < 0 {
			redacted.WriteString(text)
			return redacted.String()
		}
		end := start + len(text[start:]) - len(strings.TrimLeftFunc(text[start:], isOfName))
		redacted.WriteString(text[:start])
		redacted.WriteString(word(before, text[start:end], isHidden))
		before, text = text[start:end], text[end:]
	}
}

// isOfName reports whether a rune may be in NAMESPACE/NAME.
func isOfName(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '.' || r == '/'
}

// word returns what stands for a word in a redacted text, given the word before it.
func word(before, word string, isHidden func(namespace string) bool) string {
	bare := strings.TrimRight(word, ".-/") // a name does not end so, but a sentence may
	parts := strings.Split(bare, "/")
	if slices.ContainsFunc(parts[:len(parts)-1], isHidden) {
		return otherObject + word[len(bare):]
	}
	if strings.EqualFold(before, "namespace") && isHidden(bare) {
		return hidden + word[len(bare):]
	}
	return word
}
