package integration_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/lint"
	"github.com/tranche-dev/tranche/manifest"
)

// The objects are those of the tests of lint, in namespaces of this spec.
var _ = Describe("Lint", func() {
	It("rejects exactly what the API server rejects", func(ctx SpecContext) {
		files, err := filepath.Glob(filepath.Join(env.Root, "lint", "testdata", "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		rejected, accepted := 0, 0
		for _, file := range files {
			content, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			objects, unreadable := manifest.Read(filepath.Base(file), content)
			result, err := lint.Run(objects, unreadable, lint.Options{})
			Expect(err).NotTo(HaveOccurred())
			createNamespacesOf(ctx, objects)
			for _, o := range objects {
				answer := createAsWritten(ctx, o)
				switch why := errorsOf(result, o); {
				case meta.IsNoMatchError(answer) && slices.Contains(result.Skipped, fmt.Sprintf("%s (%s)", o, o.File)):
					// of another project
				case slices.ContainsFunc(why, isOfTheAPIServer):
					rejected++
					// The policies may not know yet the labels of the namespace, or a LocalQueue, which were written just now.
					Eventually(func() bool {
						answer = createAsWritten(ctx, o)
						return isRejection(answer)
					}).WithContext(ctx).Should(BeTrue(), func() string { return fmt.Sprintf("%s %s: the API server answers %v, lint %v", o.At(), o, answer, why) })
				default:
					accepted++
					Expect(answer).NotTo(HaveOccurred(), "%s %s: lint %v", o.At(), o, why)
				}
			}
		}
		Expect([]int{rejected, accepted}).To(HaveEach(BeNumerically(">", 25)))
	}, SpecTimeout(patience))
})

// errorsOf returns the rules that an object breaks.
func errorsOf(result *lint.Result, o *manifest.Object) []string {
	inNamespace := *o
	if isNamespaced(o) && o.Namespace == "" {
		inNamespace.Namespace = metav1.NamespaceDefault
	}
	var rules []string
	for i := range result.Findings {
		if f := &result.Findings[i]; f.Object == inNamespace.String() && f.Severity == lint.Error {
			rules = append(rules, f.Rule)
		}
	}
	return rules
}

// isOfTheAPIServer reports whether the API server enforces a rule. It never sees a key that is written twice, since clients decode YAML.
func isOfTheAPIServer(rule string) bool {
	return slices.Contains([]string{"unknown-kind", "old-version", "unknown-field", "schema", "policy", "pod-policy", "jobset-webhook"}, rule)
}

func isNamespaced(o *manifest.Object) bool {
	mapping, err := env.adminClient.RESTMapper().RESTMapping(o.GVK.GroupKind(), o.GVK.Version)
	return err == nil && mapping.Scope.Name() == meta.RESTScopeNameNamespace
}

// ownNamespace returns the namespace of this spec for one that a manifest names.
func ownNamespace(name string) string {
	if name == "" {
		name = metav1.NamespaceDefault
	}
	return "lint-" + name
}

// createAsWritten creates an object as a dry run. LocalQueues stay until the end, since policies depend on them.
func createAsWritten(ctx SpecContext, o *manifest.Object) error {
	GinkgoHelper()
	content, err := o.Content()
	Expect(err).NotTo(HaveOccurred())
	object := &unstructured.Unstructured{Object: content}
	if isNamespaced(o) {
		object.SetNamespace(ownNamespace(o.Namespace))
	}
	options := []client.CreateOption{client.FieldValidation(metav1.FieldValidationStrict)}
	isDryRun := o.GVK.Kind != "LocalQueue"
	if isDryRun {
		options = append(options, client.DryRunAll)
	}
	err = env.adminClient.Create(ctx, object, options...)
	if err == nil && o.GVK.Kind == "CronJob" {
		err = env.adminClient.Create(ctx, jobOf(object), options...)
	}
	if template, hasPods, _ := unstructured.NestedMap(object.Object, "spec", "template"); err == nil && hasPods && o.GVK.Kind != "Job" {
		err = env.adminClient.Create(ctx, podOf(object, template), options...)
	}
	if apierrors.IsAlreadyExists(err) {
		return nil // from another file, or another spec: only an object that would be accepted gets so far
	}
	if err == nil && !isDryRun {
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, object)).To(Succeed()) }, NodeTimeout(patience))
	}
	return err
}

// jobOf returns the Job that a CronJob creates: the admission policies judge that one.
func jobOf(cronJob *unstructured.Unstructured) *unstructured.Unstructured {
	GinkgoHelper()
	template, _, err := unstructured.NestedMap(cronJob.Object, "spec", "jobTemplate")
	Expect(err).NotTo(HaveOccurred())
	job := &unstructured.Unstructured{Object: template}
	job.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	job.SetNamespace(cronJob.GetNamespace())
	job.SetName(cronJob.GetName() + "-1")
	return job
}

// podOf returns a pod that the controller of a Deployment or the like creates.
func podOf(object *unstructured.Unstructured, template map[string]any) *unstructured.Unstructured {
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetNamespace(object.GetNamespace())
	pod.SetName(object.GetName() + "-1")
	return pod
}

// createNamespacesOf creates the namespaces of objects with the labels that the manifests give them.
func createNamespacesOf(ctx SpecContext, objects []*manifest.Object) {
	GinkgoHelper()
	namespaces := map[string]map[string]string{}
	for _, o := range objects {
		if _, isKnown := namespaces[ownNamespace(o.Namespace)]; !isKnown {
			namespaces[ownNamespace(o.Namespace)] = nil
		}
		if o.GVK.Kind == "Namespace" {
			content, err := o.Content()
			Expect(err).NotTo(HaveOccurred())
			namespaces[ownNamespace(o.Name)] = (&unstructured.Unstructured{Object: content}).GetLabels()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(namespaces)) {
		Expect(env.CreateNamespace(ctx, name, namespaces[name])).To(Succeed())
	}
}

// isRejection reports whether the API server rejected an object for its content, or does not know its kind.
func isRejection(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}
