package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// An Option describes a field that a line can have.
type Option struct {
	// Key and Value make the word KEY=VALUE.
	Key, Value string
	// Text says what the field means.
	Text string
}

// option is an Option and the function that applies it to a T.
type option[T any] struct {
	Option
	set func(*T, string) error
}

func described[T any](options []option[T]) []Option {
	all := make([]Option, len(options))
	for i := range options {
		all[i] = options[i].Option
	}
	return all
}

// apply applies the fields to an object.
func apply[T any](object *T, fields Fields, options []option[T]) error {
	for _, f := range fields {
		i := slices.IndexFunc(options, func(o option[T]) bool { return o.Key == f.Key })
		if i < 0 {
			return unknownField(f.Key, described(options))
		}
		if err := options[i].set(object, f.Value); err != nil {
			return fmt.Errorf("%s: %w", f.Key, err)
		}
	}
	return nil
}

func unknownField(key string, options []Option) error {
	var known []string
	for i := range options {
		known = append(known, options[i].Key)
	}
	if key != "at" {
		known = append(known, "at")
	}
	return fmt.Errorf("%q is no field here: write %s", key, strings.Join(known, " or "))
}

// into makes the setter of an option from a reader of values and what to do with the value.
func into[T, V any](read func(string) (V, error), put func(*T, V)) func(*T, string) error {
	return func(object *T, text string) error {
		value, err := read(text)
		if err == nil {
			put(object, value)
		}
		return err
	}
}

// among reads one of a few words.
func among[T ~string](choices ...T) func(string) (T, error) {
	return func(text string) (T, error) { return oneOf(text, choices...) }
}
