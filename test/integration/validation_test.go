package integration_test

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Each file of testdata/jobset-validation is a JobSet whose first line contains the expected answer of the API server: "# want: ok", or "#
// want: " and a part of the error. What follows a second "---" is an update of the same object, and the answer is to that.
var _ = Describe("The JobSet CRD", func() {
	files, err := filepath.Glob("testdata/jobset-validation/*.yaml")
	It("has cases", func() {
		Expect(err).NotTo(HaveOccurred())
		Expect(files).NotTo(BeEmpty())
		Expect(env.CreateNamespace(GinkgoT().Context(), "validation", nil)).To(Succeed())
	})
	for _, file := range files {
		It("judges "+strings.TrimSuffix(filepath.Base(file), ".yaml"), func(ctx SpecContext) {
			data, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			Expect(env.CreateNamespace(ctx, "validation", nil)).To(Succeed())
			first, _, _ := strings.Cut(string(data), "\n")
			want := strings.TrimPrefix(first, "# want: ")
			Expect(want).NotTo(Equal(first), "the first line must begin with # want:")
			documents := strings.Split(string(data), "\n---\n")
			object := parse(documents[0])
			DeferCleanup(func(ctx SpecContext) {
				Expect(client.IgnoreNotFound(env.adminClient.Delete(ctx, object))).To(Succeed())
			})
			var answer error
			if len(documents) == 1 {
				answer = env.adminClient.Create(ctx, object.DeepCopy())
			} else {
				Expect(apply(ctx, object)).To(Succeed())
				answer = apply(ctx, parse(documents[1]))
			}
			if want == "ok" {
				Expect(answer).NotTo(HaveOccurred())
			} else {
				Expect(answer).To(MatchError(ContainSubstring(want)))
			}
		}, SpecTimeout(patience))
	}
})

// apply writes an object as its only author, so that an update takes away what the document before had and this one has not, and
// keeps the defaults that the API server and the JobSet webhook have set.
func apply(ctx SpecContext, object *unstructured.Unstructured) error {
	return env.adminClient.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner("author"), client.ForceOwnership)
}

func parse(document string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
	object.SetNamespace("validation")
	return object
}
