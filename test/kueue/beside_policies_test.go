package kueue_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
)

var _ = Describe("A tenant beside Kueue", Ordered, ContinueOnFailure, func() {
	var editor client.Client

	BeforeAll(func(ctx SpecContext) {
		startBeside(ctx)
		tenant(ctx, "edited", 0) // nothing is admitted
		Expect(env.Admin.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "edited", Name: "tenant"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}},
		})).To(Succeed())
		var err error
		editor, err = env.As("tenant")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error { // the role is aggregated by a controller
			return editor.Create(ctx, stagedJobSet("edited", map[string]string{apis.QueueLabel: "queue"}, "1"), client.DryRunAll)
		}).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(2*patience))

	It("cannot queue a Job of a JobSet a second time", func(ctx SpecContext) {
		js := ownStaged("edited", "children")
		Expect(editor.Create(ctx, js)).To(Succeed())
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "edited", Name: "children-first-0"}}
		Eventually(func() error { return env.Admin.Get(ctx, client.ObjectKeyFromObject(job), job) }).WithContext(ctx).Should(Succeed())
		masters, err := env.As("master", "system:masters") // may do everything that no policy refuses
		Expect(err).NotTo(HaveOccurred())
		ours, err := env.As(controlplane.KueueUser)
		Expect(err).NotTo(HaveOccurred())
		label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"queue"}}}`))
		refused := MatchError(ContainSubstring("cannot get kueue.x-k8s.io/queue-name"))
		for name, c := range map[string]client.Client{"tenant": editor, "master": masters, "Kueue": ours} {
			Expect(c.Patch(ctx, job.DeepCopy(), label)).To(refused, name)
		}
		changed := job.DeepCopy()
		changed.ResourceVersion, changed.Labels[apis.QueueLabel] = "", "queue"
		Expect(editor.Update(ctx, changed)).To(refused)
		Expect(masters.Status().Patch(ctx, job.DeepCopy(), label)).To(refused, "a write to the status")
		Expect(read(ctx, job)(NewGomega(Fail)).Labels).NotTo(HaveKey(apis.QueueLabel))
		other := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"example.com/mine":"yes"}}}`))
		Expect(editor.Patch(ctx, job.DeepCopy(), other)).To(Succeed())
	}, NodeTimeout(patience))

	It("may name the queue of a JobSet in both labels: that of Tranche stays", func(ctx SpecContext) {
		js := ownStaged("edited", "both")
		js.Labels[apis.QueueLabel] = "queue"
		Expect(editor.Create(ctx, js.DeepCopy())).To(Succeed())
		Expect(read(ctx, js)(NewGomega(Fail)).Labels).To(And(HaveKeyWithValue(apis.OwnQueueLabel, "queue"), Not(HaveKey(apis.QueueLabel))))
		again := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"queue"}}}`))
		Expect(editor.Patch(ctx, js.DeepCopy(), again)).To(Succeed())
		Expect(read(ctx, js)(NewGomega(Fail)).Labels).NotTo(HaveKey(apis.QueueLabel), "as when it was created")
		different := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`))
		Expect(editor.Patch(ctx, js.DeepCopy(), different)).To(MatchError(ContainSubstring("must be equal to kueue.x-k8s.io/queue-name")))
	}, NodeTimeout(patience))

	It("cannot write what the managers write", func(ctx SpecContext) {
		js := ownStaged("edited", "guarded")
		Expect(editor.Create(ctx, js)).To(Succeed())
		created := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "edited", Name: "guarded-first-0"}}
		Eventually(func() error { return env.Admin.Get(ctx, client.ObjectKeyFromObject(created), created) }).WithContext(ctx).Should(Succeed())
		first := stageOf(ctx, js, "first")
		for _, patch := range []string{
			`{"metadata":{"annotations":{"kueue.x-k8s.io/admission-gated-by":null}}}`, `{"metadata":{"finalizers":null}}`, `{"spec":{"active":false}}`,
		} {
			err := editor.Patch(ctx, first.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)))
			Expect(err).To(MatchError(ContainSubstring("cannot patch resource")), patch)
		}
		for patch, message := range map[string]string{
			`{"metadata":{"annotations":{"tranche.dev/started":"true"}}}`: "only Tranche's manager adds, changes or removes annotations",
			`{"metadata":{"labels":{"tranche.dev/queue-name":null}}}`:     "cannot be removed",
		} {
			err := editor.Patch(ctx, js.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)))
			Expect(err).To(MatchError(ContainSubstring(message)), patch)
		}
		// The policies hold what a user resumes too early.
		resume := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":false}}`))
		Expect(editor.Patch(ctx, js, resume)).To(Succeed())
		Expect(js.Spec.Suspend).To(HaveValue(BeTrue()))
		Expect(editor.Patch(ctx, created, resume)).To(Or(Succeed(), MatchError(ContainSubstring("spec.suspend"))))
		Expect(read(ctx, created)(NewGomega(Fail)).Spec.Suspend).To(HaveValue(BeTrue()))
	}, NodeTimeout(patience))
})
