package lint

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/config/policies"
	"github.com/tranche-dev/tranche/lint/internal/jobsetwebhook"
	"github.com/tranche-dev/tranche/lint/internal/policy"
	"github.com/tranche-dev/tranche/manifest"
	"github.com/tranche-dev/tranche/snapshot"
)

// Options say what to check against.
type Options struct {
	// Nodes are those of the cluster. Without any, flavors are not compared with nodes.
	Nodes []*corev1.Node
	// Cluster has the objects that exist beside the manifests: those that manifests refer to are not missing. Its nodes count if Nodes is empty. It may
	// be nil.
	Cluster *snapshot.Snapshot
	// Engine is the configuration of the engine. Its zero value has the defaults.
	Engine admission.Config
}

// A Result has what Run found.
type Result struct {
	Findings []Finding
	// Checked is the number of objects that were checked.
	Checked int
	// Skipped names the objects of kinds that are not checked.
	Skipped []string
}

// Run checks objects. Errors of the reader become findings. The error is a defect of this package, not of the objects.
func Run(objects []*manifest.Object, unreadable []*manifest.Error, options Options) (*Result, error) {
	l := &linter{options: options, schemas: map[schema.GroupVersionKind]*customSchema{}, sources: map[objectKey]*source{}}
	l.objects.namespaces = map[string]*corev1.Namespace{}
	for _, err := range unreadable {
		l.addUnreadable(err)
	}
	var valid []*source
	for _, o := range objects {
		s, err := l.validate(o)
		if err != nil {
			return nil, err
		}
		if s != nil {
			valid = append(valid, s)
		}
	}
	l.addCluster()
	if err := l.checkPolicies(valid); err != nil {
		return nil, err
	}
	for _, s := range valid {
		if err := l.objects.add(s); err != nil {
			return nil, err
		}
	}
	l.checkJobSetWebhook()
	if err := l.checkEngine(); err != nil {
		return nil, err
	}
	l.checkEffects()
	l.result.Findings = l.sorted()
	return &l.result, nil
}

// A linter collects the valid objects, and findings.
type linter struct {
	findings
	options Options
	result  Result
	schemas map[schema.GroupVersionKind]*customSchema
	// sources has the objects by their names, also those that are invalid.
	sources map[objectKey]*source
	objects objects
}

// A source is an object, and where it is written.
type source struct {
	*manifest.Object
	// kind is nil for a kind that is not checked.
	kind *kind
	// content is the object as it is written, and then with defaults and with what the mutating policies add.
	content map[string]any
	// under is the path of the Job in a CronJob, or of the pod template in another object, and empty otherwise: the content is that of the Job or the pod.
	under string
	// isValid is true if the API server accepts the object.
	isValid bool
	// isOfCluster is true if the object is not in a manifest. It has no place, and there are no findings about it.
	isOfCluster bool
}

type objectKey struct{ kind, namespace, name string }

func (s *source) key() objectKey {
	return objectKey{s.GVK.GroupKind().String(), s.namespace(), s.Name}
}

// namespace returns the namespace of the object. Without one, kubectl creates it in the namespace default.
func (s *source) namespace() string {
	switch {
	case s.kind != nil && !s.kind.isNamespaced:
		return "" // as the API server stores it
	case s.Namespace == "" && s.kind != nil:
		return metav1.NamespaceDefault
	}
	return s.Namespace
}

// String returns the kind and the name of the object.
func (s *source) String() string {
	named := *s.Object
	named.Namespace = s.namespace()
	return named.String()
}

// isInvalid reports whether an object of Kueue is given, but the API server rejects it. What names it is not checked.
func (l *linter) isInvalid(kind, namespace, name string) bool {
	s := l.sources[objectKey{kueue.SchemeGroupVersion.WithKind(kind).GroupKind().String(), namespace, name}]
	return s != nil && !s.isValid
}

// hasInvalid reports whether the API server rejects an object of one of these kinds of Kueue.
func (l *linter) hasInvalid(kinds ...string) bool {
	for key := range l.sources {
		for _, kind := range kinds {
			if l.isInvalid(kind, key.namespace, key.name) {
				return true
			}
		}
	}
	return false
}

// validate checks an object as the API server does before it asks the policies. It returns nil if the object has errors or is not checked.
func (l *linter) validate(o *manifest.Object) (*source, error) {
	s := &source{Object: o, kind: kindOf(o.GVK)}
	if s.kind == nil && !isOurs(o.GVK.Group) || isOfController(o) {
		l.result.Skipped = append(l.result.Skipped, fmt.Sprintf("%s (%s)", o, o.File))
		l.checkUnqueued(s)
		return nil, nil //nolint:nilnil // there is nothing to check, which is no error
	}
	l.result.Checked++
	if first := l.sources[s.key()]; first != nil && o.Name != "" {
		l.add(s, problem{
			rule: ruleDuplicate(), field: "metadata.name", message: fmt.Sprintf("%s is already in %s", s, first.At()), cure: "remove one of the two",
		})
		return nil, nil //nolint:nilnil // the object is not checked twice
	}
	l.sources[s.key()] = s
	if s.kind == nil {
		l.add(s, unknownKind(s))
		return nil, nil //nolint:nilnil // the object has no schema
	}
	var err error
	if s.content, err = o.Content(); err != nil {
		return nil, err
	}
	if o.GVK.Group == batchv1.GroupName {
		setJobDefaults(s)
	}
	if o.GVK.Kind == "ReplicationController" {
		setLabelsOfPods(s)
	}
	if o.GVK == jobset.GroupVersion.WithKind("JobSet") {
		jobsetwebhook.SetDefaults(s.content)
	}
	before := len(l.all)
	for _, d := range o.Duplicates() {
		l.addAt(s, d.Line, d.Column, problem{rule: ruleDuplicateField(), field: d.Field, message: "the field is written twice", cure: "remove one of the two"})
	}
	if err := l.checkSchema(s); err != nil {
		return nil, err
	}
	s.isValid = len(l.all) == before
	if !s.isValid {
		return nil, nil //nolint:nilnil // the findings have the errors
	}
	return s, nil
}

func (l *linter) checkSchema(s *source) error {
	if s.kind.crd == "" {
		validateBuiltIn(&l.findings, s)
		return nil
	}
	known, isRead := l.schemas[s.GVK]
	if !isRead {
		var err error
		if known, err = newCustomSchema(s.kind); err != nil {
			return err
		}
		l.schemas[s.GVK] = known
	}
	known.validate(&l.findings, s)
	return nil
}

func isOurs(group string) bool {
	return group == kueue.SchemeGroupVersion.Group || group == jobset.GroupVersion.Group
}

// unknownKind returns the problem of an object whose kind or version no CRD has.
func unknownKind(s *source) problem {
	all := kinds()
	var names []string
	for i := range all {
		if all[i].gvk.Group != s.GVK.Group {
			continue
		}
		names = append(names, all[i].gvk.Kind)
		if all[i].gvk.Kind == s.GVK.Kind {
			return oldVersion(s, &all[i])
		}
	}
	p := problem{rule: ruleUnknownKind(), field: "kind", message: fmt.Sprintf("Tranche has no kind %s in %s", s.GVK.Kind, s.GVK.Group), cure: "remove the object"}
	if other := nearest(s.GVK.Kind, names); other != "" {
		p.cure = "write " + other
	}
	return p
}

// checkPolicies lets the policies mutate and validate each object that is created. Objects that they reject become invalid.
func (l *linter) checkPolicies(valid []*source) error {
	set, err := policy.Read(policies.Files)
	if err != nil {
		return fmt.Errorf("read the admission policies: %w", err)
	}
	localQueues, err := l.clusterLocalQueues()
	if err != nil {
		return err
	}
	for _, s := range valid {
		if s.GVK.Kind == "CronJob" {
			s.content, s.under = jobTemplate(s.content), "spec.jobTemplate."
		}
		s.content = withNamespace(s)
		switch s.GVK.Kind {
		case "Namespace":
			l.objects.addNamespace(s)
		case "LocalQueue":
			localQueues[s.namespace()] = append(localQueues[s.namespace()], &unstructured.Unstructured{Object: s.content})
		}
	}
	for _, s := range valid {
		l.admit(set, s, resourceOf(s), localQueues[s.namespace()], rulePolicy())
		if !s.isValid || ownerOfPods(s.GVK) == "" {
			continue
		}
		pods := podsOf(s)
		if l.admit(set, pods, corev1.SchemeGroupVersion.WithResource("pods"), localQueues[s.namespace()], rulePodPolicy()); !pods.isValid {
			continue
		}
		if err := l.objects.addPods(pods); err != nil {
			return err
		}
	}
	return nil
}

// admit lets the policies mutate and validate an object that is created. It becomes invalid if they reject it.
func (l *linter) admit(set *policy.Set, s *source, resource schema.GroupVersionResource, localQueues []*unstructured.Unstructured, rule rule) {
	creation := &policy.Creation{Object: &unstructured.Unstructured{Object: s.content}, Resource: resource, LocalQueues: localQueues}
	if s.kind.isNamespaced {
		creation.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace(), Labels: l.labelsOf(s.namespace())}}
	}
	admitted, objections := set.Admit(creation)
	s.content, s.isValid = admitted.Object, len(objections) == 0
	for _, objection := range objections {
		p := objectionOf(objection)
		p.rule = rule
		l.add(s, p)
	}
}

// checkJobSetWebhook reports what the webhook of the JobSet controller rejects. A rejected JobSet is not checked further.
func (l *linter) checkJobSetWebhook() {
	l.objects.jobSets = slices.DeleteFunc(l.objects.jobSets, func(js origin[jobsetapi.JobSet]) bool {
		problems := jobsetwebhook.Check(js.object)
		for _, p := range problems {
			l.add(js.source, problem{rule: ruleJobSetWebhook(), field: p.Field, message: p.Message, cure: p.Cure})
		}
		js.isValid = len(problems) == 0
		return !js.isValid
	})
}

// withNamespace returns the content of an object with the namespace in which it is created.
func withNamespace(s *source) map[string]any {
	object := (&unstructured.Unstructured{Object: s.content}).DeepCopy()
	object.SetNamespace(s.namespace())
	return object.Object
}
