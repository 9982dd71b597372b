package bench_test

import (
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// BenchmarkStalled has JobSets of which the download hangs, and measures one more that begins its download in the same ClusterQueue, and is deleted.
func BenchmarkStalled(b *testing.B) {
	for _, stalled := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("stalled=%d", stalled), func(b *testing.B) {
			c := newClusterOf(b, 1<<40, admission.Config{
				Accelerators: []corev1.ResourceName{"tpu"}, LookAhead: admission.LookAhead{IsEnabled: true, MaxAhead: 1},
			})
			c.engine.Apply(admission.ClusterQueueObserved{ClusterQueue: withAccelerators()})
			for i := range stalled {
				c.addDownload(b, fmt.Sprintf("js-%d", i))
				if c.decide() != 1 {
					b.Fatal("not admitted")
				}
			}
			for i := stalled; b.Loop(); i++ {
				name := fmt.Sprintf("js-%d", i)
				c.addDownload(b, name)
				if c.decide() != 1 {
					b.Fatal("not admitted")
				}
				last := len(c.running) - 1
				c.running[0], c.running[last] = c.running[last], c.running[0]
				c.finishOldest()
				c.engine.Apply(admission.PlanGone{UID: types.UID(name)})
			}
			record(b)
		})
	}
}

// withAccelerators returns the ClusterQueue of a cluster with an accelerator that is in use.
func withAccelerators() *kueue.ClusterQueue {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"gpu", "tpu"}, Flavors: []kueue.FlavorQuotas{{Name: "a100", Resources: []kueue.ResourceQuota{
		{Name: "gpu", NominalQuota: *resource.NewQuantity(1<<40, resource.DecimalSI)}, {Name: "tpu", NominalQuota: *resource.NewQuantity(1, resource.DecimalSI)},
	}}}}
	q.Spec = kueue.ClusterQueueSpec{NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: []kueue.ResourceGroup{group}}
	return q
}

// addDownload submits a JobSet that needs an accelerator after its download.
func (c *cluster) addDownload(b *testing.B, name string) {
	b.Helper()
	download, train := jobsetapi.ReplicatedJob{}, jobsetapi.ReplicatedJob{}
	download.Name, download.Replicas, download.Template = "download", 1, batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pod(1)}}
	onTPU := pod(0)
	onTPU.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"tpu": *resource.NewQuantity(1, resource.DecimalSI)}
	train.Name, train.Replicas, train.Template = "train", 1, batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: onTPU}}
	train.DependsOn = []jobset.DependsOn{{Name: "download", Status: jobset.DependencyComplete}}
	c.addFirst(b, name, download, train)
}

// addFirst submits a JobSet with the quota Workload of its first stage.
func (c *cluster) addFirst(b *testing.B, name string, jobs ...jobsetapi.ReplicatedJob) {
	b.Helper()
	plan, err := stageplan.New(&jobsetapi.JobSetSpec{ReplicatedJobs: jobs})
	if err != nil {
		b.Fatal(err)
	}
	c.engine.Apply(admission.PlanObserved{
		Owner: admission.Owner{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: "ns", Name: name}}, UID: types.UID(name), Submitted: metav1.Unix(int64(c.names), 0).Time, Plan: plan,
	})
	wl := c.submit(name+"-first", 1)
	wl.Labels = map[string]string{apis.StageIndexLabel: "0"}
	wl.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Name: name, UID: types.UID(name), Controller: new(true)}}
	c.observe(wl)
}
