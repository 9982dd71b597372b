// Package config reads the settings of scenarios into the configuration of the engine and of the lifecycle.
package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/admission"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// Config has the settings of a scenario: the engine's configuration, and how long pods may take to be ready.
type Config struct {
	admission.Config
	WaitForPodsReady configapi.WaitForPodsReady
}

// Set sets fields of the configuration by their names: StageAdmission is stage-admission, and a field of a struct in it comes after a
// dot. So a scenario can set every field.
func Set(c *Config, list []scenario.Field) error {
	known := settings(reflect.TypeFor[Config](), "", func() reflect.Value { return reflect.ValueOf(c).Elem() })
	for _, setting := range list {
		field, ok := known[setting.Key]
		if !ok {
			return fmt.Errorf("config: %q is no setting of this engine: write one of %s", setting.Key, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if err := assign(field(), setting.Value); err != nil {
			return fmt.Errorf("config: %s: %w", setting.Key, err)
		}
	}
	return nil
}

// Complete sets the defaults. A scenario that sets a field about pods that are not ready enables the timeouts, unless it sets that, too.
func (c *Config) Complete() error {
	if c.WaitForPodsReady != (configapi.WaitForPodsReady{}) && c.WaitForPodsReady.Enable == nil {
		c.WaitForPodsReady.Enable = new(true)
	}
	file := configapi.Configuration{WaitForPodsReady: c.WaitForPodsReady}
	file.SetDefaults()
	if err := file.Validate().ToAggregate(); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	c.WaitForPodsReady = file.WaitForPodsReady
	c.BlockAdmission = c.BlockAdmission || *c.WaitForPodsReady.BlockAdmission
	c.KeepPlaceAfterEviction = c.KeepPlaceAfterEviction || c.WaitForPodsReady.RequeuingStrategy.Timestamp == configapi.RequeuingTimestampCreation
	return nil
}

// Settings returns the names of all settings.
func Settings() []string {
	return slices.Sorted(maps.Keys(settings(reflect.TypeFor[Config](), "", nil)))
}

// settings returns the fields of a struct that can be written as one word, and a function that reaches each. A nil pointer to a struct on
// the path is allocated only when one of its fields is set.
func settings(t reflect.Type, prefix string, get func() reflect.Value) map[string]func() reflect.Value {
	known := map[string]func() reflect.Value{}
	for i := range t.NumField() {
		field := t.Field(i)
		if !field.IsExported() {
			continue
		}
		key := prefix + dashed(field.Name)
		value := func() reflect.Value { return get().Field(i) }
		switch inner := field.Type; {
		case field.Anonymous:
			maps.Copy(known, settings(inner, prefix, value))
		case inner == reflect.TypeFor[*metav1.Duration]():
			known[key] = value
		case inner.Kind() == reflect.Struct:
			maps.Copy(known, settings(inner, key+".", value))
		case inner.Kind() == reflect.Pointer && inner.Elem().Kind() == reflect.Struct:
			maps.Copy(known, settings(inner.Elem(), key+".", func() reflect.Value {
				if value().IsNil() {
					value().Set(reflect.New(inner.Elem()))
				}
				return value().Elem()
			}))
		default:
			known[key] = value
		}
	}
	return known
}

// dashed turns StageAdmission into stage-admission.
func dashed(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func assign(field reflect.Value, text string) error {
	switch {
	case field.Type() == reflect.TypeFor[metav1.Duration]():
		return assign(field.Field(0), text)
	case field.Type() == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is no time: write one such as 90s, 5m or 1h30m", text)
		}
		field.SetInt(int64(d))
	case field.Kind() == reflect.String:
		field.SetString(text)
	case field.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q must be true or false", text)
		}
		field.SetBool(text == "true")
	case field.CanInt():
		n, err := strconv.ParseInt(text, 10, field.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is no whole number of %d bits", text, field.Type().Bits())
		}
		field.SetInt(n)
	case field.CanFloat():
		x, err := strconv.ParseFloat(text, field.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is no number", text)
		}
		field.SetFloat(x)
	case field.Kind() == reflect.Pointer, field.Kind() == reflect.Slice:
		return assignBehind(field, text)
	case field.Kind() == reflect.Map && field.Type().Elem().Kind() == reflect.String:
		return assignPairs(field, text)
	default:
		return fmt.Errorf("a setting of type %s cannot be written in a scenario", field.Type())
	}
	return nil
}

// assignPairs makes a map of KEY:VALUE, several with commas.
func assignPairs(field reflect.Value, text string) error {
	field.Set(reflect.MakeMap(field.Type()))
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, ":")
		if !ok {
			return fmt.Errorf("%q must be KEY:VALUE", pair)
		}
		field.SetMapIndex(reflect.ValueOf(key).Convert(field.Type().Key()), reflect.ValueOf(value).Convert(field.Type().Elem()))
	}
	return nil
}

// assignBehind sets the value that a pointer points to, or a list of words with commas between them.
func assignBehind(field reflect.Value, text string) error {
	if field.Kind() == reflect.Pointer {
		value := reflect.New(field.Type().Elem())
		field.Set(value)
		return assign(value.Elem(), text)
	}
	words := strings.Split(text, ",")
	field.Set(reflect.MakeSlice(field.Type(), len(words), len(words)))
	for i, word := range words {
		if err := assign(field.Index(i), word); err != nil {
			return err
		}
	}
	return nil
}
