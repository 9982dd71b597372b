package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tranche-dev/tranche/apis"
)

// maxDuration keeps virtual time far from overflow.
const maxDuration = 10 * 365 * 24 * time.Hour

func duration(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > maxDuration {
		return 0, fmt.Errorf("%q is no time: write one such as 90s, 5m or 1h30m", value)
	}
	return d, nil
}

// span reads the value of an annotation with a duration.
func span(value string) (string, error) {
	if value == apis.Never {
		return value, nil
	}
	_, err := duration(value)
	return value, err
}

func quantity(value string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(value)
	if err != nil || q.Sign() < 0 {
		return resource.Quantity{}, fmt.Errorf("%q is no amount: write one such as 8, 500m or 64Gi", value)
	}
	return q, nil
}

func number(value string) (int32, error) {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is no whole number of 32 bits", value)
	}
	return int32(n), nil
}

func count(value string) (int32, error) {
	n, err := number(value)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no count: write a whole number from 0 on", value)
	}
	return n, nil
}

func truth(value string) (bool, error) {
	choice, err := oneOf[string](value, "true|false")
	return choice == "true", err
}

// oneOf reads one of the words, which have bars between them.
func oneOf[T ~string](value, words string) (T, error) {
	choices := strings.Split(words, "|")
	if slices.Contains(choices, value) {
		return T(value), nil
	}
	return "", fmt.Errorf("%q must be %s", value, strings.Join(choices, " or "))
}

// name reads the name of an object.
func name[T ~string](value string) (T, error) { return T(value), checkName(value) }

func checkName(value string) error {
	const most = 63
	if len(value) > most || len(validation.IsDNS1123Subdomain(value)) > 0 {
		return fmt.Errorf("%q is no name: use up to %d lower-case letters, digits and dashes", value, most)
	}
	return nil
}

// isResource distinguishes resources from misspelt fields: the short names are few, all others have a slash.
func isResource(key string) bool {
	return slices.Contains(resources(), key) || strings.Contains(strings.Trim(key, "/"), "/")
}

func resources() []string {
	return []string{"cpu", "memory", "ephemeral-storage", "pods", "gpu", "tpu"}
}

func resourceName(key string) (corev1.ResourceName, error) {
	if !isResource(key) {
		return "", fmt.Errorf("%q is no resource: write one of %s, or a full name such as nvidia.com/gpu", key, strings.Join(resources(), ", "))
	}
	return corev1.ResourceName(key), nil
}

// amounts reads gpu:2,cpu:500m, with the given sign between resource and amount.
func amounts(value, sign string) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	for part := range strings.SplitSeq(value, ",") {
		key, amount, ok := strings.Cut(part, sign)
		if !ok {
			return nil, fmt.Errorf("%q is no request: write a resource and an amount, such as gpu%s2", part, sign)
		}
		resource, err := resourceName(key)
		if err != nil {
			return nil, err
		}
		if _, twice := list[resource]; twice {
			return nil, fmt.Errorf("%q is there twice", key)
		}
		if list[resource], err = quantity(amount); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func amountsWithColon(value string) (corev1.ResourceList, error) { return amounts(value, ":") }

func labels(value string) (map[string]string, error) {
	all := map[string]string{}
	for part := range strings.SplitSeq(value, ",") {
		key, v, ok := strings.Cut(part, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is no label: write KEY=VALUE, and commas between labels", part)
		}
		if _, twice := all[key]; twice {
			return nil, fmt.Errorf("label %q is there twice", key)
		}
		all[key] = v
	}
	return all, nil
}

// affinity reads KEY=VALUE|VALUE,KEY=VALUE.
func affinity(value string) (*corev1.Affinity, error) {
	all, err := labels(value)
	if err != nil {
		return nil, err
	}
	var term corev1.NodeSelectorTerm
	for _, key := range keys(all) {
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
			Key: key, Operator: corev1.NodeSelectorOpIn, Values: strings.Split(all[key], "|"),
		})
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}},
	}}, nil
}

// list reads values with commas between them.
func list[T any](read func(string) (T, error)) func(string) ([]T, error) {
	return func(text string) ([]T, error) {
		var all []T
		for part := range strings.SplitSeq(text, ",") {
			value, err := read(part)
			if err != nil {
				return nil, err
			}
			all = append(all, value)
		}
		return all, nil
	}
}

func taint(text string) (corev1.Taint, error) {
	body, effect, ok := strings.Cut(text, ":")
	key, value, _ := strings.Cut(body, "=")
	if !ok || key == "" {
		return corev1.Taint{}, fmt.Errorf("%q is no taint: write KEY=VALUE:EFFECT, such as spot=true:NoSchedule", text)
	}
	known, err := taintEffect(effect)
	return corev1.Taint{Key: key, Value: value, Effect: known}, err
}

func taintEffect(value string) (corev1.TaintEffect, error) {
	return oneOf[corev1.TaintEffect](value, "NoSchedule|NoExecute|PreferNoSchedule")
}

// toleration reads KEY, KEY=VALUE or KEY=VALUE:EFFECT; an omitted value or effect tolerates all.
func toleration(text string) (corev1.Toleration, error) {
	body, effect, hasEffect := strings.Cut(text, ":")
	key, value, hasValue := strings.Cut(body, "=")
	if key == "" {
		return corev1.Toleration{}, fmt.Errorf("%q is no toleration: write KEY, KEY=VALUE or KEY=VALUE:EFFECT", text)
	}
	t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists}
	if hasValue {
		t.Operator, t.Value = corev1.TolerationOpEqual, value
	}
	var err error
	if hasEffect {
		t.Effect, err = taintEffect(effect)
	}
	return t, err
}
