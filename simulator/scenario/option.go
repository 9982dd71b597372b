package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// An Option describes a field that a line can have. As with the standard package flag, a table of options is made for one object, and
// each option sets a part of that object.
type Option struct {
	// Key and Value make the word KEY=VALUE.
	Key, Value string
	// Text says what the field means.
	Text string

	// set reads a value and changes the object.
	set func(value string) error
}

// set sets the options that the fields name.
func (f Fields) set(options []Option) error {
	for _, field := range f {
		i := slices.IndexFunc(options, func(o Option) bool { return o.Key == field.Key })
		if i < 0 {
			return unknownField(field.Key, options)
		}
		if err := options[i].set(field.Value); err != nil {
			return fmt.Errorf("%s: %w", field.Key, err)
		}
	}
	return nil
}

func unknownField(key string, options []Option) error {
	known := keysOf(options)
	if key != "at" {
		known = append(known, "at")
	}
	return fmt.Errorf("%q is no field here: write %s", key, strings.Join(known, " or "))
}

func keysOf(options []Option) []string {
	names := make([]string, len(options))
	for i := range options {
		names[i] = options[i].Key
	}
	return names
}

// then reads a value and calls a function with it.
func then[V any](read func(string) (V, error), put func(V)) func(string) error {
	return func(text string) error {
		value, err := read(text)
		if err == nil {
			put(value)
		}
		return err
	}
}

// into reads a value into a variable.
func into[V any](target *V, read func(string) (V, error)) func(string) error {
	return then(read, func(value V) { *target = value })
}

// intoPointer reads a value into a variable that is nil without one.
func intoPointer[V any](target **V, read func(string) (V, error)) func(string) error {
	return then(read, func(value V) { *target = &value })
}

// choice is an option that takes one of the words, which have bars between them.
func choice[T ~string](key, words, text string, put func(T)) Option {
	return Option{key, words, text, then(func(value string) (T, error) { return oneOf[T](value, words) }, put)}
}

// anyText reads any text.
func anyText[T ~string](text string) (T, error) { return T(text), nil }
