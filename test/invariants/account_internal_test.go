package invariants

import (
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/apis"
)

const gpu corev1.ResourceName = "nvidia.com/gpu"

// quotaOf makes the auditor observe a quota Workload that holds 8 GPUs for each of two pods of a JobSet or Job, after a change.
func (s *story) quotaOf(name, owner, podSet string, change func(*kueue.Workload)) {
	s.seeWorkload(quotaOf(name, owner, podSet, change), s.now(), watch.Modified)
}

func quotaOf(name, owner, podSet string, change func(*kueue.Workload)) *kueue.Workload {
	w := workload(name, "a", "2")
	w.Labels = map[string]string{apis.JobUIDLabel: owner}
	w.Spec.PodSets[0].Name = kueue.PodSetReference(podSet)
	assignment := &w.Status.Admission.PodSetAssignments[0]
	assignment.Name, assignment.Flavors[gpu], assignment.ResourceUsage[gpu] = kueue.PodSetReference(podSet), "spot", resource.MustParse("16")
	admit(w)
	change(w)
	return w
}

// grows makes the auditor list the quota Workload with quota for some pods, after three pods were created while it did not watch quota Workloads.
func (s *story) grows(pods int32) {
	earliest := s.now().earliest
	for _, name := range []string{"x", "y", "z"} {
		s.pod(name, ofQueuedJob("8"))
	}
	grown := quotaOf("w", "job", "main", func(w *kueue.Workload) {
		assignment := &w.Status.Admission.PodSetAssignments[0]
		assignment.Count, assignment.ResourceUsage[gpu] = &pods, *resource.NewQuantity(int64(8*pods), resource.DecimalSI)
	})
	s.seeAll(&kueue.WorkloadList{}, []client.Object{grown}, moment{earliest, s.now().latest})
}

// ofQueuedJob creates a pod of a queued Job with some GPUs.
func ofQueuedJob(gpus string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels[batchv1.ControllerUidLabel] = "job"
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", UID: "job", Controller: new(true)}}
		asks(gpus)(pod)
	}
}

func asks(gpus string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		amounts := corev1.ResourceList{gpu: resource.MustParse(gpus)}
		pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts}}}
	}
}

func terminates(pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.Now()) }

func TestPodsNeverAskForMoreThanIsCharged(t *testing.T) {
	tests := map[string]struct {
		happens func(*story)
		want    int
	}{
		"as many as are charged": {happens: func(s *story) {
			s.pod("x", ofQueuedJob("8"))
			s.pod("y", ofQueuedJob("8"))
		}},
		"one more while another one terminates": {want: 1, happens: func(s *story) {
			s.pod("x", ofQueuedJob("8"))
			s.pod("y", ofQueuedJob("8"))
			s.pod("x", terminates)
			s.pod("z", ofQueuedJob("8"))
		}},
		"one more after another one has terminated": {happens: func(s *story) {
			s.pod("x", ofQueuedJob("8"))
			s.pod("y", ofQueuedJob("8"))
			s.pod("x", terminates)
			s.pod("x", phase(corev1.PodFailed))
			s.pod("z", ofQueuedJob("8"))
		}},
		"one that is larger": {want: 1, happens: func(s *story) {
			s.pod("x", ofQueuedJob("17"))
		}},
		"one more that is gated": {happens: func(s *story) {
			s.pod("x", ofQueuedJob("8"))
			s.pod("y", ofQueuedJob("8"))
			s.pod("z", func(pod *corev1.Pod) {
				ofQueuedJob("8")(pod)
				pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
			})
		}},
		"transformed": {want: 1, happens: func(s *story) {
			s.pod("x", func(pod *corev1.Pod) {
				ofQueuedJob("1")(pod)
				amounts := pod.Spec.Containers[0].Resources.Requests
				amounts["example.com/half"] = resource.MustParse("31")
			})
		}},
		"for a pod that was reclaimed": {want: 1, happens: func(s *story) {
			s.pod("x", ofQueuedJob("8"))
			s.quotaOf("w", "job", "main", func(w *kueue.Workload) { w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}} })
			s.pod("y", ofQueuedJob("8"))
		}},
		"charged in two parts": {happens: func(s *story) {
			s.quotaOf("growth", "job", "main", asAdmitted)
			for _, name := range []string{"x", "y", "z"} {
				s.pod(name, ofQueuedJob("8"))
			}
		}},
		"charged while that was not watched":            {happens: func(s *story) { s.grows(3) }},
		"charged for one less while it was not watched": {want: 1, happens: func(s *story) { s.grows(2) }},
		"of a held Job that nothing was ever charged for": {want: 1, happens: func(s *story) {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "other", Labels: map[string]string{apis.HoldLabel: apis.HoldQueued}}}
			s.see(job, s.now(), watch.Added)
			s.pod("x", func(pod *corev1.Pod) {
				ofQueuedJob("1")(pod)
				pod.Labels[batchv1.ControllerUidLabel], pod.OwnerReferences[0].UID = "other", "other"
			})
		}},
		"of a Job that was never held": {happens: func(s *story) {
			s.see(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "other"}}, s.now(), watch.Added)
			s.pod("x", func(pod *corev1.Pod) {
				ofQueuedJob("1")(pod)
				pod.Labels[batchv1.ControllerUidLabel], pod.OwnerReferences[0].UID = "other", "other"
			})
		}},
		"of a queued Job, by an admission that is applied": {want: 1, happens: func(s *story) {
			s.quotaOf("applied", "applied", "main", func(w *kueue.Workload) {
				w.Labels[apis.JobLabel], w.OwnerReferences = "applied", []metav1.OwnerReference{{Kind: "Job", Controller: new(true)}}
				applied(w)
			})
			for _, name := range []string{"x", "y", "z"} {
				s.pod(name, func(pod *corev1.Pod) {
					ofQueuedJob("8")(pod)
					pod.Labels[batchv1.ControllerUidLabel], pod.OwnerReferences[0].UID = "applied", "applied"
				})
			}
		}},
		"of a stage, one more": {want: 1, happens: func(s *story) {
			s.quotaOf("stage", "js", "a", asAdmitted)
			s.create("a", 0, 3)
		}},
		"of two stages": {happens: func(s *story) {
			s.quotaOf("stage", "js", "a", asAdmitted)
			s.quotaOf("next", "js", "b", asAdmitted)
			s.create("a", 0, 2)
			s.create("b", 0, 2)
		}},
		"of a gang, and each is larger": {want: 1, happens: func(s *story) {
			s.workload("gang", asAdmitted)
			s.pod("x", gated)
			s.pod("y", gated)
			s.pod("x", func(pod *corev1.Pod) {
				ungate("gang")(pod)
				asks("1")(pod)
			})
		}},
		"more devices than were charged": {want: 1, happens: func(s *story) { s.pod("x", claims(s, 17)) }},
		"as many devices":                {happens: func(s *story) { s.pod("x", claims(s, 16)) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			s.rules.Charges = charge.Rules{Transformations: map[corev1.ResourceName]charge.Transformation{
				"example.com/half": {Replace: true, Outputs: corev1.ResourceList{gpu: resource.MustParse("0.5")}},
			}}
			s.rules.Devices = device.Mapping{"gpu.example.com": gpu}
			s.quotaOf("w", "job", "main", asAdmitted)
			test.happens(s)
			if found := slices.Concat(s.strays(), s.overdrawn()); len(found) != test.want {
				t.Errorf("found %q, want %d", found, test.want)
			}
		})
	}
}

// claims creates a pod of a queued Job for which there is a ResourceClaim.
func claims(s *story, devices int64) func(*corev1.Pod) {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "claim", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", UID: types.UID("x"), Controller: new(true)}},
	}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "all", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu.example.com", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: devices,
	}}}
	s.see(claim, s.now(), watch.Added)
	return func(pod *corev1.Pod) {
		ofQueuedJob("0")(pod)
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: new("template")}}
		pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "devices", ResourceClaimName: new("claim")}}
	}
}
