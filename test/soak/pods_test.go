package soak_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
)

const (
	// podsLabel names the gangs of pods that belong together, on Jobs and PodGroups.
	podsLabel = "soak.example.com/pods"

	mostGangPods = 3
)

// pods are one or two gangs of pods, with the Jobs that make them and their PodGroups.
type pods struct {
	namespace, name string
	isUrgent        bool
	objects         []client.Object
}

// newPods makes gangs of pods in one of the ways in which pods name their gang, or returns what was made for this number before.
func (s *soak) newPods(i int) *pods {
	if begun := s.begun[i]; begun != nil {
		return begun
	}
	p := &pods{namespace: tenantName(tenantOf(i)), name: fmt.Sprintf("pods-%03d", i)}
	s.begun[i] = p
	n := 2 + s.random.IntN(mostGangPods-1)
	p.isUrgent = s.random.IntN(5) == 0
	settings := map[string]string{apis.KoordinatorPrefix + "waiting-time": "20s"}
	switch s.random.IntN(5) {
	case 0:
		s.addGang(p, p.name, n, map[string]string{apis.PodGroupNameLabel: p.name}, map[string]string{apis.PodGroupTotalCountAnnotation: strconv.Itoa(n)})
	case 1:
		s.addPodGroup(p, n)
		s.addGang(p, p.name, n, map[string]string{apis.CoschedulingLabel: p.name}, nil)
	case 2:
		s.addKoordinator(p, p.name, n, settings)
	case 3:
		settings[apis.KoordinatorPrefix+"mode"] = "NonStrict"
		s.addKoordinator(p, p.name, n, settings)
	default:
		first, second := p.name+"-a", p.name+"-b"
		settings[apis.KoordinatorPrefix+"groups"] = fmt.Sprintf("[%q, %q]", p.namespace+"/"+first, p.namespace+"/"+second)
		s.addKoordinator(p, first, n, settings)
		s.addKoordinator(p, second, 2, settings)
	}
	return p
}

// addKoordinator adds a gang that Koordinator's annotations describe.
func (s *soak) addKoordinator(p *pods, gang string, n int, settings map[string]string) {
	annotations := map[string]string{apis.KoordinatorPrefix + "name": gang, apis.KoordinatorPrefix + "min-available": strconv.Itoa(n)}
	maps.Copy(annotations, settings)
	s.addGang(p, gang, n, nil, annotations)
}

// addPodGroup adds a PodGroup of Coscheduling.
func (s *soak) addPodGroup(p *pods, n int) {
	group := newPodGroup()
	group.SetNamespace(p.namespace)
	group.SetName(p.name)
	group.SetLabels(map[string]string{podsLabel: p.name})
	group.Object["spec"] = map[string]any{"minMember": int64(n)}
	p.objects = append(p.objects, group)
}

func newPodGroup() *unstructured.Unstructured {
	group := &unstructured.Unstructured{Object: map[string]any{}}
	group.SetAPIVersion("scheduling.x-k8s.io/v1alpha1")
	group.SetKind("PodGroup")
	return group
}

// addGang adds the Jobs that make the pods of a gang: one, or two whose pods ask for different resources.
func (s *soak) addGang(p *pods, gang string, n int, labels, annotations map[string]string) {
	shares := []int{n}
	if s.random.IntN(2) == 0 {
		shares = []int{1, n - 1}
	}
	for j, share := range shares {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: gang + "-" + strconv.Itoa(j), Labels: map[string]string{podsLabel: p.name}}}
		job.Spec = s.newPodsOf(gang, int32(share))
		job.Spec.CompletionMode, job.Spec.BackoffLimit = nil, new(int32(1000))
		job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
		}}}
		template := &job.Spec.Template
		template.Labels = map[string]string{apis.QueueLabel: "queue"}
		if p.isUrgent {
			template.Labels[apis.PriorityClassLabel] = "urgent"
		}
		template.Annotations = map[string]string{controlplane.FakeGangRunTime: fmt.Sprintf("%dms", 500+s.random.IntN(3000))}
		maps.Copy(template.Labels, labels)
		maps.Copy(template.Annotations, annotations)
		p.objects = append(p.objects, job)
	}
}

// newPodsOf makes the Job of a gang.
func (s *soak) newPodsOf(gang string, n int32) batchv1.JobSpec {
	r := s.newReplicatedJob(gang, mostGangPods)
	r.Template.Spec.Parallelism, r.Template.Spec.Completions = &n, &n
	return r.Template.Spec
}

// submitPods creates what makes up gangs of pods, and reports whether it could. If it could not, the rest is left for another time.
func (s *soak) submitPods(p *pods) bool {
	for ; len(p.objects) > 0; p.objects = p.objects[1:] {
		if err := s.admin.Create(s.t.Context(), p.objects[0]); err != nil && !apierrors.IsAlreadyExists(err) {
			s.log("%T %s is not accepted: %v", p.objects[0], p.objects[0].GetName(), err)
			return false
		}
	}
	s.pods = append(s.pods, client.ObjectKey{Namespace: p.namespace, Name: p.name})
	return true
}

// deletePods deletes gangs of pods with all that makes them, as their user.
func (s *soak) deletePods() (string, error) {
	key := pick(s, s.pods)
	if key == nil || s.deleted[*key] {
		return "", nil
	}
	for _, object := range []client.Object{&batchv1.Job{}, newPodGroup()} {
		err := s.admin.DeleteAllOf(s.t.Context(), object, client.InNamespace(key.Namespace), client.MatchingLabels{podsLabel: key.Name}, client.PropagationPolicy("Background"))
		if err != nil {
			return key.String(), err
		}
	}
	s.deleted[*key] = true
	return key.String(), nil
}

// unfinishedJobs returns the Jobs that are queued, or make gangs of pods, and have not completed.
func (s *soak) unfinishedJobs(ctx context.Context) (open []*batchv1.Job, completed int) {
	s.t.Helper()
	for _, which := range []client.ListOption{client.HasLabels{podsLabel}, ofQueuedJobs()} {
		var list batchv1.JobList
		if err := s.admin.List(ctx, &list, which); err != nil {
			s.t.Fatal(err)
		}
		for i := range list.Items {
			job := &list.Items[i]
			if isComplete(job) {
				completed++
			} else if job.DeletionTimestamp.IsZero() {
				open = append(open, job)
			}
		}
	}
	return open, completed
}

func isComplete(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// describeJob describes a Job with its pods, and all quota Workloads of gangs and queued Jobs in its namespace that have not finished.
func (s *soak) describeJob(ctx context.Context, job *batchv1.Job) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Job %s/%s suspend=%t active=%d terminating=%d succeeded=%d failed=%d of %d %v %v %v\n", job.Namespace, job.Name, ptr.Deref(job.Spec.Suspend, false), job.Status.Active, ptr.Deref(job.Status.Terminating, 0),
		job.Status.Succeeded, job.Status.Failed, ptr.Deref(job.Spec.Completions, 0), job.Status.Conditions, job.Annotations, job.Spec.Template.Annotations)
	var list corev1.PodList
	var workloads kueue.WorkloadList
	for _, err := range []error{
		s.admin.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}),
		s.admin.List(ctx, &workloads, client.InNamespace(job.Namespace)),
	} {
		if err != nil {
			fmt.Fprintln(&out, err)
		}
	}
	for i := range list.Items {
		p := &list.Items[i]
		fmt.Fprintf(&out, "  Pod %s %s on %q gates=%v deleted=%v %v %s\n", p.Name, p.Status.Phase, p.Spec.NodeName, p.Spec.SchedulingGates, p.DeletionTimestamp, p.Finalizers,
			p.Annotations[apis.AdmissionAnnotation])
	}
	for i := range workloads.Items {
		w := &workloads.Items[i]
		if isOfGang, isOfJob := w.Labels[apis.PodGroupKey] != "", w.Labels[apis.JobUIDLabel] == string(job.UID); (isOfGang || isOfJob) && !apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
			fmt.Fprintf(&out, "  Workload %s %s %v %v deleted=%v reclaimable=%v %s\n", w.Name, w.UID, w.Labels, w.Annotations, w.DeletionTimestamp, w.Status.ReclaimablePods, render(w.Status.Conditions))
		}
	}
	return out.String()
}
