// Package policy evaluates admission policies on objects that are created, without an API server.
//
// Read reads ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings. A Set first mutates an object and then validates it, as the
// API server does. The expressions are compiled and evaluated by the library of the API server.
package policy

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/tranche-dev/tranche/manifest"
)

// A Set has policies, their bindings, and the ConfigMaps that are their parameters.
type Set struct {
	policies map[string]*policy
	// bindings are in the order of the names of their policies: tranche-default-queue comes before tranche-hold-jobsets.
	bindings   []binding
	configMaps []*unstructured.Unstructured
	env        *environment.EnvSet
}

// A policy is a mutating or a validating policy.
type policy struct {
	name        string
	constraints *admissionv1.MatchResources
	paramKind   *admissionv1.ParamKind
	onFailure   *admissionv1.FailurePolicyType
	variables   []admissionv1.Variable
	conditions  []admissionv1.MatchCondition
	validations []admissionv1.Validation
	mutations   []admissionv1.Mutation

	// program is compiled when the first object matches.
	program *program
}

// A binding applies a policy.
type binding struct {
	name, policy string
	params       *admissionv1.ParamRef
	within       *admissionv1.MatchResources
}

// A Creation is an object that is created, and what the policies read besides.
type Creation struct {
	Object   *unstructured.Unstructured
	Resource schema.GroupVersionResource
	// Namespace is that of the object. It is nil if the object is in none.
	Namespace *corev1.Namespace
	// LocalQueues are those of the namespace.
	LocalQueues []*unstructured.Unstructured
}

// An Objection is the reason why a policy rejects an object.
type Objection struct{ Policy, Message string }

// Read reads the policies of a directory.
func Read(files fs.FS) (*Set, error) {
	set := &Set{policies: map[string]*policy{}, env: environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())}
	names, err := manifest.Files(files)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		objects, errs := manifest.Read(name, text)
		if len(errs) > 0 {
			return nil, errs[0]
		}
		for _, object := range objects {
			if err := set.add(object); err != nil {
				return nil, fmt.Errorf("%s: %w", object.At(), err)
			}
		}
	}
	slices.SortStableFunc(set.bindings, func(a, b binding) int { return strings.Compare(a.policy, b.policy) })
	return set, nil
}

func (s *Set) add(o *manifest.Object) error {
	switch o.GVK.Kind {
	case "ValidatingAdmissionPolicy":
		var p admissionv1.ValidatingAdmissionPolicy
		err := o.DecodeStrict(&p)
		s.policies[p.Name] = &policy{
			name: p.Name, constraints: p.Spec.MatchConstraints, paramKind: p.Spec.ParamKind, onFailure: p.Spec.FailurePolicy,
			variables: p.Spec.Variables, conditions: p.Spec.MatchConditions, validations: p.Spec.Validations,
		}
		return err
	case "MutatingAdmissionPolicy":
		var p admissionv1.MutatingAdmissionPolicy
		err := o.DecodeStrict(&p)
		s.policies[p.Name] = &policy{
			name: p.Name, constraints: p.Spec.MatchConstraints, paramKind: p.Spec.ParamKind, onFailure: p.Spec.FailurePolicy,
			variables: p.Spec.Variables, conditions: p.Spec.MatchConditions, mutations: p.Spec.Mutations,
		}
		return err
	case "ValidatingAdmissionPolicyBinding":
		var b admissionv1.ValidatingAdmissionPolicyBinding
		err := o.DecodeStrict(&b)
		if slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
			s.bindings = append(s.bindings, binding{b.Name, b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources})
		}
		return err
	case "MutatingAdmissionPolicyBinding":
		var b admissionv1.MutatingAdmissionPolicyBinding
		err := o.DecodeStrict(&b)
		s.bindings = append(s.bindings, binding{b.Name, b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources})
		return err
	case "ConfigMap":
		content, err := o.Content()
		s.configMaps = append(s.configMaps, &unstructured.Unstructured{Object: content})
		return err
	}
	return nil
}

// Admit returns the object as the mutating policies leave it, and the objections of all policies.
func (s *Set) Admit(c *Creation) (*unstructured.Unstructured, []Objection) {
	c = &Creation{c.Object.DeepCopy(), c.Resource, c.Namespace, c.LocalQueues}
	var objections []Objection
	for _, isMutating := range []bool{true, false} {
		for _, b := range s.bindings {
			p := s.policies[b.policy]
			if p == nil || (len(p.mutations) > 0) != isMutating || !c.matches(p.constraints) || !c.matches(b.within) {
				continue
			}
			for _, message := range s.apply(p, b, c) {
				objections = append(objections, Objection{p.name, message})
			}
		}
	}
	return c.Object, objections
}

// matches reports whether constraints apply to the object. Constraints without rules apply to all resources.
func (c *Creation) matches(m *admissionv1.MatchResources) bool {
	if m == nil {
		return true
	}
	isNamed := func(r admissionv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.APIGroups, c.Resource.Group) && slices.Contains(r.APIVersions, c.Resource.Version) && slices.Contains(r.Resources, c.Resource.Resource) &&
			slices.Contains(r.Operations, admissionv1.Create)
	}
	if len(m.ResourceRules) > 0 && !slices.ContainsFunc(m.ResourceRules, isNamed) || slices.ContainsFunc(m.ExcludeResourceRules, isNamed) {
		return false
	}
	return selects(m.ObjectSelector, c.Object.GetLabels()) && (c.Namespace == nil || selects(m.NamespaceSelector, c.Namespace.Labels))
}

func selects(selector *metav1.LabelSelector, of map[string]string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(of))
}

// apply applies a policy with each of its parameters, and returns its objections.
func (s *Set) apply(p *policy, b binding, c *Creation) []string {
	params := s.paramsOf(p, b, c)
	if len(params) == 0 {
		if action := b.params.ParameterNotFoundAction; action != nil && *action == admissionv1.DenyAction {
			return []string{strings.ReplaceAll(b.name, "-", " ")}
		}
		return nil
	}
	if p.program == nil {
		p.program = compile(p, s.env)
	}
	var messages []string
	for _, param := range params {
		more, err := p.program.apply(p, c, param)
		if err != nil && (p.onFailure == nil || *p.onFailure == admissionv1.Fail) {
			more = append(more, "the policy cannot be evaluated: "+causeOf(err))
		}
		messages = append(messages, more...)
	}
	return messages
}

// causeOf returns the error of an expression without its text, which has many lines.
func causeOf(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "resulted in error: "); i >= 0 {
		text = strings.TrimPrefix(text[i:], "resulted in error: ")
	}
	return strings.Join(strings.Fields(text), " ")
}

// paramsOf returns the parameters of a policy. A policy without parameters has one that is nil.
func (s *Set) paramsOf(p *policy, b binding, c *Creation) []runtime.Object {
	if p.paramKind == nil || b.params == nil {
		return []runtime.Object{nil}
	}
	candidates := s.configMaps
	if p.paramKind.Kind == "LocalQueue" {
		candidates = c.LocalQueues
	}
	namespace := b.params.Namespace
	if namespace == "" {
		namespace = c.Object.GetNamespace()
	}
	var found []runtime.Object
	for _, o := range candidates {
		if o.GetNamespace() == namespace && (b.params.Name == "" || o.GetName() == b.params.Name) && selects(b.params.Selector, o.GetLabels()) {
			found = append(found, o)
		}
	}
	return found
}
