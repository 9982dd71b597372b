package leftover_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/leftover"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// newPod returns a pod with Kueue's finalizer that is gated, running, done or deleted.
func newPod(words string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: strings.ReplaceAll(words, " ", "-"), Labels: map[string]string{apis.KueueManagedKey: "true", apis.PodSetLabel: "main", apis.QueueLabel: "queue"}, Finalizers: []string{apis.KueueManagedKey},
	}}
	for word := range strings.FieldsSeq(words) {
		switch word {
		case "gated":
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: apis.PodAdmissionGate}}
		case "running":
			pod.Status.Phase = corev1.PodRunning
		case "done":
			pod.Status.Phase = corev1.PodSucceeded
		case "failed":
			pod.Status.Phase = corev1.PodFailed
		case "deleted":
			pod.DeletionTimestamp = new(metav1.Now())
		case "unpinned":
			pod.Finalizers = nil
		case "member":
			pod.Labels[apis.PodGroupMemberLabel] = apis.PodGroupMemberValue
		case "unqueued":
			delete(pod.Labels, apis.QueueLabel)
		case "other":
			pod.Labels[apis.PodSetLabel] = "other"
		case "coscheduling":
			pod.Labels[apis.CoschedulingLabel] = "gang"
		}
	}
	return pod
}

func newWorkload(words string) *kueue.Workload {
	w := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main"}}}}
	for word := range strings.FieldsSeq(words) {
		switch word {
		case "admitted":
			w.Status.Admission = &kueue.Admission{}
			w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}, {Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue}}
		case "marked":
			w.Annotations = map[string]string{apis.AdoptedAnnotation: "true"}
		case "leaving":
			w.DeletionTimestamp = new(metav1.Now())
		}
	}
	return w
}

func TestNext(t *testing.T) {
	for name, c := range map[string]struct {
		pods     []string
		workload string
		want     string
	}{
		"runs":                               {[]string{"running"}, "admitted", "unpin running, mark"},
		"runs, marked":                       {[]string{"running unpinned"}, "admitted marked", "adopt running-unpinned"},
		"runs, of a known group":             {[]string{"running unpinned", "running unpinned member"}, "admitted marked", "adopt running-unpinned"},
		"runs, adopted":                      {[]string{"running unpinned member", "done unpinned member"}, "admitted marked", "take"},
		"runs, taken":                        {[]string{"running unpinned member", "done unpinned member"}, "", "forget running-unpinned-member, forget done-unpinned-member"},
		"runs, taken, one waits":             {[]string{"running unpinned member", "gated"}, "", "forget running-unpinned-member, queue gated"},
		"runs, not admitted":                 {[]string{"running unpinned"}, "waiting", ""},
		"runs, its Workload is deleted":      {[]string{"running unpinned"}, "admitted leaving", ""},
		"runs without a Workload":            {[]string{"running"}, "", "unpin running"},
		"runs, of an unknown pod set":        {[]string{"running unpinned", "running unpinned other"}, "admitted marked", "stuck running-unpinned, stuck running-unpinned-other"},
		"runs, with a PodGroup":              {[]string{"running unpinned coscheduling"}, "admitted marked", "stuck running-unpinned-coscheduling"},
		"runs, with a pod of no queue":       {[]string{"running unpinned", "running unpinned unqueued"}, "admitted marked", "adopt running-unpinned"},
		"a pod of no queue":                  {[]string{"running unpinned unqueued"}, "", "is done"},
		"starts":                             {[]string{"ungated"}, "admitted", "unpin ungated, mark"},
		"runs, one waits":                    {[]string{"running unpinned", "gated"}, "admitted marked", "adopt running-unpinned"},
		"runs, one has ended":                {[]string{"running unpinned", "done"}, "admitted marked", "unpin done"},
		"runs, one has ended, unpinned":      {[]string{"running unpinned", "done unpinned"}, "admitted marked", "adopt running-unpinned, adopt done-unpinned"},
		"terminates":                         {[]string{"running deleted"}, "admitted marked", "unpin running-deleted"},
		"has ended after it was adopted":     {[]string{"done unpinned member"}, "admitted marked", "delete"},
		"has ended":                          {[]string{"done", "failed"}, "admitted marked", "unpin done, unpin failed, delete"},
		"is gone":                            {nil, "admitted leaving", "delete"},
		"has ended, nothing is left":         {[]string{"done unpinned"}, "", "is done"},
		"waits":                              {[]string{"gated"}, "waiting", "delete"},
		"waits, the Workload is gone":        {[]string{"gated"}, "", "queue gated"},
		"waits and is deleted":               {[]string{"gated deleted"}, "", "unpin gated-deleted, is done"},
		"waits, half queued":                 {[]string{"gated member"}, "", "queue gated-member"},
		"waits, one has failed before":       {[]string{"gated", "failed"}, "", "unpin failed, queue gated"},
		"waits, one was never scheduled":     {[]string{"gated failed"}, "", "unpin gated-failed, is done"},
		"a member of a group that waits too": {[]string{"gated", "gated"}, "", "queue gated, queue gated"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &leftover.Group{}
			for _, words := range c.pods {
				g.Pods = append(g.Pods, newPod(words))
			}
			if c.workload != "" {
				g.Workload = newWorkload(c.workload)
			}
			if diff := cmp.Diff(c.want, render(leftover.Next(g))); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
		})
	}
}

func render(s leftover.Step) string {
	var all []string
	for _, pod := range s.Unpin {
		all = append(all, "unpin "+pod.Name)
	}
	if s.Mark != nil {
		all = append(all, "mark")
	}
	for _, pod := range s.Adopt {
		all = append(all, "adopt "+pod.Name)
	}
	if s.Take != nil {
		all = append(all, "take")
	}
	if s.Delete != nil {
		all = append(all, "delete")
	}
	for _, pod := range s.Forget {
		all = append(all, "forget "+pod.Name)
	}
	for _, pod := range s.Stuck {
		all = append(all, "stuck "+pod.Name)
	}
	for _, pod := range s.Queue {
		all = append(all, "queue "+pod.Name)
	}
	if s.IsDone {
		all = append(all, "is done")
	}
	return strings.Join(all, ", ")
}

func TestQueued(t *testing.T) {
	single := leftover.Queued(newPod("gated"))
	if ref, ok := podgroup.RefOf(single); !ok || ref.String() != "pod.gated" || len(single.Annotations) > 0 {
		t.Errorf("it is of gang %q, annotations %v", ref, single.Annotations)
	}
	member := newPod("gated")
	member.Labels[apis.PodGroupNameLabel] = "gang"
	member.Spec.SchedulingGates = append(member.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.TopologySchedulingGate})
	member = leftover.Queued(member)
	want := map[string]string{apis.PodGroupNameLabel: "gang", apis.PodGroupMemberLabel: apis.PodGroupMemberValue, apis.PodSetLabel: "main", apis.QueueLabel: "queue"}
	if diff := cmp.Diff(want, member.Labels); diff != "" || len(member.Annotations)+len(member.Finalizers) > 0 {
		t.Errorf("annotations %v, finalizers %v, labels (-want +got):\n%s", member.Annotations, member.Finalizers, diff)
	}
	if gates := member.Spec.SchedulingGates; len(gates) != 1 || gates[0].Name != apis.PodAdmissionGate {
		t.Errorf("gates %v", gates)
	}
}

func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		apiVersion, kind, label string
		want                    leftover.Kind
	}{
		"a Job":                     {"batch/v1", "Job", "", leftover.Job},
		"a JobSet":                  {"jobset.x-k8s.io/v1alpha2", "JobSet", "", leftover.JobSet},
		"pods":                      {"v1", "Pod", "", leftover.Pod},
		"a Job that Tranche queues": {"batch/v1", "Job", apis.JobLabel, ""},
		"a JobSet that it stages":   {"jobset.x-k8s.io/v1alpha2", "JobSet", apis.JobSetLabel, ""},
		"a gang of pods":            {"v1", "Pod", apis.PodGroupKey, ""},
		"another kind":              {"ray.io/v1", "RayJob", "", ""},
		"another Job":               {"batch.volcano.sh/v1", "Job", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: c.apiVersion, Kind: c.kind, Name: "o", UID: "u"}}}}
			if c.label != "" {
				w.Labels = map[string]string{c.label: "o"}
			}
			if kind, ok := leftover.Of(w); kind != c.want || ok != (c.want != "") {
				t.Errorf("Of = %q, %t, want %q", kind, ok, c.want)
			}
		})
	}
}
