// Package charge computes what quota is charged for the requests of a pod: resources may be left out, or turned into others.
package charge

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Rules determine what is charged for requests. The zero Rules charge what is requested.
type Rules struct {
	// ExcludedPrefixes begin the names of resources that are not charged, whether pods request them or transformations put them out.
	ExcludedPrefixes []string
	// Transformations by the resource that they start from.
	Transformations map[corev1.ResourceName]Transformation
}

// A Transformation turns an amount of one resource into amounts of others.
type Transformation struct {
	// Replace is true if the resource itself is not charged.
	Replace bool
	// MultiplyBy is a resource whose amount multiplies the outputs, if the pod requests it.
	MultiplyBy corev1.ResourceName
	// Outputs for one unit of the resource.
	Outputs corev1.ResourceList
}

// Apply returns what is charged for requests, which are not changed. Resources are left out after the transformations: one that is not charged may still
// be the input of a transformation, or multiply its outputs.
func (r *Rules) Apply(requests corev1.ResourceList) corev1.ResourceList {
	if len(r.ExcludedPrefixes) == 0 && len(r.Transformations) == 0 {
		return requests
	}
	charged, outputs := corev1.ResourceList{}, corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		rule, isTransformed := r.Transformations[name]
		if !isTransformed || !rule.Replace {
			charged[name] = requests[name]
		}
		amount := requests[name]
		if factor, ok := requests[rule.MultiplyBy]; ok {
			amount = times(amount, factor)
		}
		for _, output := range slices.Sorted(maps.Keys(rule.Outputs)) {
			add(outputs, output, times(amount, rule.Outputs[output]))
		}
	}
	// Negative outputs reduce other outputs, but not requested amounts.
	for name, amount := range outputs {
		if amount.Sign() > 0 {
			add(charged, name, amount)
		}
	}
	maps.DeleteFunc(charged, func(name corev1.ResourceName, _ resource.Quantity) bool { return r.excludes(name) })
	return charged
}

func (r *Rules) excludes(name corev1.ResourceName) bool {
	return slices.ContainsFunc(r.ExcludedPrefixes, func(prefix string) bool { return strings.HasPrefix(string(name), prefix) })
}

func add(to corev1.ResourceList, name corev1.ResourceName, amount resource.Quantity) {
	sum := to[name].DeepCopy()
	sum.Add(amount)
	to[name] = sum
}

func times(a, b resource.Quantity) resource.Quantity {
	product, factor := a.DeepCopy(), b.DeepCopy()
	d := product.AsDec()
	return *resource.NewDecimalQuantity(*d.Mul(d, factor.AsDec()), a.Format)
}
