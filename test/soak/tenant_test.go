package soak_test

import (
	"context"
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

const (
	tenants = 4
	// nominal is the quota of each tenant of each kind of accelerator.
	nominal = 8
	cpus    = 24

	gpu = corev1.ResourceName("nvidia.com/gpu")
	tpu = corev1.ResourceName("google.com/tpu")
)

// An accelerator is a pool of fake nodes and the flavor of the same name.
type accelerator struct {
	flavor   string
	resource corev1.ResourceName
}

func accelerators() []accelerator {
	return []accelerator{{"a100", gpu}, {"h100", gpu}, {"tpu-v5e", tpu}}
}

func nodePools() []controlplane.NodePool {
	pools := []controlplane.NodePool{{Name: "cpu", Count: 4, Allocatable: sample.Amounts("cpu", "64", "memory", "1Ti")}}
	for _, a := range accelerators() {
		pools = append(pools, controlplane.NodePool{
			Name: a.flavor, Count: 8, Labels: map[string]string{"accelerator": a.flavor},
			Taints:      []corev1.Taint{{Key: string(a.resource), Value: "present", Effect: corev1.TaintEffectNoSchedule}},
			Allocatable: sample.Amounts("cpu", "64", "memory", "1Ti", string(a.resource), "8"),
		})
	}
	return pools
}

func tenantName(i int) string { return "tenant-" + strconv.Itoa(i) }

// createTenants makes the namespaces and queues of all tenants, which lend each other what is idle: two Cohorts in one, of different weights.
func (s *soak) createTenants(ctx context.Context) {
	s.t.Helper()
	objects := []client.Object{
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}},
		&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 100},
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: checkName}, Spec: kueue.AdmissionCheckSpec{ControllerName: checkController}},
		&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: cohort(0)}, Spec: kueue.CohortSpec{ParentName: "soak", FairSharing: weight("2")}},
		&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: cohort(1)}, Spec: kueue.CohortSpec{ParentName: "soak", FairSharing: weight("1")}},
	}
	for _, a := range accelerators() {
		objects = append(objects, &kueue.ResourceFlavor{
			ObjectMeta: metav1.ObjectMeta{Name: a.flavor},
			Spec: kueue.ResourceFlavorSpec{
				NodeLabels:  map[string]string{"accelerator": a.flavor},
				Tolerations: []corev1.Toleration{{Key: string(a.resource), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
			},
		})
	}
	for i := range tenants {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenantName(i)}}, clusterQueue(i), &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenantName(i), Name: "queue"},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(tenantName(i))},
		})
	}
	for _, object := range objects {
		if err := s.admin.Create(ctx, object); err != nil {
			s.t.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
	}
}

func weight(amount string) *kueue.FairSharing {
	return &kueue.FairSharing{Weight: new(resource.MustParse(amount))}
}

// cohort returns the Cohort of a tenant.
func cohort(tenant int) string { return "soak-" + strconv.Itoa(tenant%2) }

// clusterQueue makes the ClusterQueue of a tenant. That of the last tenant has an AdmissionCheck.
func clusterQueue(tenant int) *kueue.ClusterQueue {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: tenantName(tenant)}}
	q.Spec.CohortName = kueue.CohortReference(cohort(tenant))
	q.Spec.FairSharing = weight([]string{"1", "500m", "2", "1"}[tenant])
	if tenant == tenants-1 {
		q.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: checkName}}}
	}
	q.Spec.NamespaceSelector = &metav1.LabelSelector{}
	q.Spec.Preemption = &kueue.ClusterQueuePreemption{
		WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyAny,
	}
	q.Spec.ResourceGroups = resourceGroups()
	if tenant%2 == 1 {
		// These borrow at most half of what they have.
		for i := range q.Spec.ResourceGroups {
			for j := range q.Spec.ResourceGroups[i].Flavors {
				quota := &q.Spec.ResourceGroups[i].Flavors[j].Resources[0]
				quota.BorrowingLimit = new(*resource.NewQuantity(quota.NominalQuota.Value()/2, resource.DecimalSI))
			}
		}
	}
	return q
}

// resourceGroups is the quota that every tenant has at the beginning and in the end.
func resourceGroups() []kueue.ResourceGroup {
	flavor := func(name string, resourceName corev1.ResourceName, amount int64) kueue.FlavorQuotas {
		return kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(name), Resources: []kueue.ResourceQuota{
			{Name: resourceName, NominalQuota: *resource.NewQuantity(amount, resource.DecimalSI)},
		}}
	}
	groups := []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
		Flavors:          []kueue.FlavorQuotas{flavor("cpu", corev1.ResourceCPU, cpus)},
	}}
	for _, a := range accelerators() {
		last := &groups[len(groups)-1]
		if last.CoveredResources[0] != a.resource {
			groups = append(groups, kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{a.resource}})
			last = &groups[len(groups)-1]
		}
		last.Flavors = append(last.Flavors, flavor(a.flavor, a.resource, nominal))
	}
	return groups
}

// newStaged makes a JobSet of two to five stages. What all its stages together ask for fits into the quota of its
// tenant, or else each of them does, and ends before the next one starts.
func (s *soak) newStaged(i int) *jobsetapi.JobSet {
	js := s.newJobSet(i)
	stages := 2 + s.random.IntN(4)
	most := nominal / stages
	isSequence := s.random.IntN(2) == 0
	if isSequence {
		most = nominal
	}
	s.most[client.ObjectKeyFromObject(js)] = most
	for stage := range stages {
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, s.newReplicatedJob("stage-"+strconv.Itoa(stage), most))
	}
	if isSequence {
		oneByOne(js)
	} else {
		s.order(js)
	}
	if s.random.IntN(6) == 0 {
		first := &js.Spec.ReplicatedJobs[s.random.IntN(stages)].Template.Spec
		first.BackoffLimit = new(int32(0))
		first.Template.Annotations[controlplane.FakeExit] = controlplane.FakeExitFailFirst
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1000}
	}
	return js
}

// oneByOne lets each stage end before the next one starts.
func oneByOne(js *jobsetapi.JobSet) {
	js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	for i := range js.Spec.ReplicatedJobs[1:] {
		js.Spec.StartupPolicy.Rules = append(js.Spec.StartupPolicy.Rules, jobsetapi.StartupPolicyRule{
			TargetReplicatedJobs: []string{js.Spec.ReplicatedJobs[i].Name}, WaitForReplicatedJobsStatus: jobsetapi.SucceededStatus,
		})
	}
}

// order sets the order of the stages, in one of the possible ways.
func (s *soak) order(js *jobsetapi.JobSet) {
	jobs := js.Spec.ReplicatedJobs
	switch s.random.IntN(3) {
	case 0:
		js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	case 1:
		js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
		for i := range jobs[:len(jobs)-1] {
			status := jobsetapi.SucceededStatus
			if s.random.IntN(3) == 0 {
				status = jobsetapi.ReadyStatus
			}
			js.Spec.StartupPolicy.Rules = append(js.Spec.StartupPolicy.Rules, jobsetapi.StartupPolicyRule{
				TargetReplicatedJobs: []string{jobs[i].Name}, WaitForReplicatedJobsStatus: status,
			})
		}
	default:
		for i := range jobs[1:] {
			status := jobset.DependencyComplete
			if s.random.IntN(3) == 0 {
				status = jobset.DependencyReady
			}
			jobs[i+1].DependsOn = []jobset.DependsOn{{Name: jobs[s.random.IntN(i+1)].Name, Status: status}}
		}
	}
}

// newReplicatedJob makes one of up to so many pods with an accelerator each. It may be elastic.
func (s *soak) newReplicatedJob(name string, most int) jobsetapi.ReplicatedJob {
	requests := sample.Amounts("cpu", "1")
	selector := map[string]string{}
	if kind := s.random.IntN(5); kind < 3 {
		a := accelerators()[kind]
		requests[a.resource] = resource.MustParse("1")
		selector["accelerator"] = a.flavor
	} else if kind == 3 {
		requests[gpu] = resource.MustParse("1") // of any flavor
	}
	replicas := 1 + s.random.IntN(min(most, 2))
	pods := int32(1 + s.random.IntN(most/replicas))
	fate := map[string]string{controlplane.FakeRunTime: fmt.Sprintf("%dms", 500+s.random.IntN(4000))}
	if s.random.IntN(4) == 0 {
		fate[controlplane.FakeStopAfter] = "700ms"
	}
	mode := batchv1.NonIndexedCompletion
	if s.random.IntN(2) == 0 {
		mode = batchv1.IndexedCompletion
	}
	r := sample.ReplicatedJob(name, pods, requests, fate)
	r.Replicas = int32(replicas)
	r.Template.Spec.CompletionMode, r.Template.Spec.BackoffLimit = &mode, new(int32(1000))
	r.Template.Spec.Template.Spec.NodeSelector = selector
	return r
}

// isElastic reports whether the Jobs of a ReplicatedJob may become larger and smaller.
func isElastic(r jobsetapi.ReplicatedJob) bool {
	return ptr.Deref(r.Template.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}
