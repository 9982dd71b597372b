package detail_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/detail"
)

// A cluster has one JobSet, and lists in parts.
type cluster struct {
	detail.Fixed
	pods   int
	jobs   []batchv1.Job
	events []corev1.Event
	// denied are the kinds that may not be listed.
	denied []string
	asked  []string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, jobsetapi.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "js", UID: "uid"}}
	js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{ReplicatedJob: jobset.ReplicatedJob{Name: "train", Replicas: 1}}}
	js.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	return &cluster{Fixed: detail.Fixed{Scheme: scheme, Objects: []client.Object{js}}}
}

func (c *cluster) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var all client.ListOptions
	all.ApplyOptions(options)
	kind := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", list), "*v1."), "List")
	if slices.Contains(c.denied, kind) {
		return apierrors.NewForbidden(corev1.Resource(strings.ToLower(kind)+"s"), "", fmt.Errorf("user %q may not list it", "ada"))
	}
	c.asked = append(c.asked, fmt.Sprintf("%s %s %s", kind, all.Namespace, all.FieldSelector))
	switch list := list.(type) {
	case *corev1.PodList:
		first := 0
		_, _ = fmt.Sscan(all.Continue, &first)
		last := min(c.pods, first+int(all.Limit))
		for i := range last - first {
			list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: fmt.Sprintf("js-train-%05d", first+i), Labels: map[string]string{jobset.ReplicatedJobNameKey: "train"},
			}})
		}
		if last < c.pods {
			list.Continue = fmt.Sprint(last)
		}
	case *batchv1.JobList:
		list.Items = c.jobs
	case *corev1.EventList:
		for i := range c.events {
			if e := &c.events[i]; all.FieldSelector.Matches(fieldsOf(e)) {
				list.Items = append(list.Items, *e)
			}
		}
	}
	return nil
}

// fieldsOf returns the fields of an Event that a selector may name.
func fieldsOf(e *corev1.Event) fields.Set {
	return fields.Set{"involvedObject.kind": e.InvolvedObject.Kind, "involvedObject.uid": string(e.InvolvedObject.UID), "type": e.Type, "reason": e.Reason}
}

var key = types.NamespacedName{Namespace: "team", Name: "js"}

// All pods are counted, up to a bound, and a page of them is returned.
func TestPods(t *testing.T) {
	for count, want := range map[int]string{0: "", 1300: "", 10_000: "", 10_001: "Not all is shown: there are more than the 10000 that were read"} {
		c := newCluster(t)
		c.pods = count
		a, err := detail.Pods(t.Context(), c, key, "train", dashboard.Window{Limit: 3})
		if err != nil {
			t.Fatal(err)
		}
		if a.Total != min(count, 10_000) || len(a.Items) != min(count, 3) || strings.Join(a.Gaps, " ") != want {
			t.Errorf("%d of %d pods, gaps %q, want %d and %q", len(a.Items), a.Total, a.Gaps, count, want)
		}
	}
	if _, err := detail.Pods(t.Context(), newCluster(t), key, "none", dashboard.Window{}); err == nil || !strings.Contains(err.Error(), `stage "none"`) {
		t.Errorf("a stage that does not exist: %v", err)
	}
}

// Why pods are not ready comes with the last Event about one of them, and why pods are missing from that about their Job.
func TestWhy(t *testing.T) {
	event := func(kind, uid, reason, message string, seconds int) corev1.Event {
		return corev1.Event{
			Type: corev1.EventTypeWarning, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(time.Unix(int64(seconds), 0)),
			InvolvedObject: corev1.ObjectReference{Kind: kind, UID: types.UID(uid)},
		}
	}
	c := newCluster(t)
	c.pods = 2
	c.jobs = []batchv1.Job{{ObjectMeta: metav1.ObjectMeta{Name: "js-train-0", UID: "job", Labels: map[string]string{jobset.ReplicatedJobNameKey: "train"}}}}
	c.events = []corev1.Event{
		event("Pod", "", "FailedMount", "no\n volume", 2), event("Pod", "", "FailedAttachVolume", "earlier", 1),
		event("Job", "job", "FailedCreate", "exceeded quota", 1), event("Job", "job", "Other", "nothing", 2),
	}
	a, err := detail.Pods(t.Context(), c, key, "", dashboard.Window{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"2 pods, such as js-train-00000: no node yet: FailedMount: no volume", "Job js-train-0 lacks pods: FailedCreate: exceeded quota"}; !slices.Equal(a.Why, want) {
		t.Errorf("%q, want %q", a.Why, want)
	}
}

// What the user may not read is named, with what to do about it, and the rest is shown.
func TestGaps(t *testing.T) {
	const cure = ": user \"ada\" may not list it; the ClusterRole tranche-dashboard-viewer allows it"
	for denied, want := range map[string][]string{
		"":          nil,
		"Pod":       {"Pods are not shown" + cure},
		"Job":       {"Jobs without all their pods are not shown" + cure},
		"Event":     {"What Events report about pods is not shown" + cure},
		"Job Event": {"Jobs without all their pods are not shown" + cure, "What Events report about pods is not shown" + cure},
	} {
		c := newCluster(t)
		c.pods, c.denied = 1, strings.Fields(denied)
		a, err := detail.Pods(t.Context(), c, key, "", dashboard.Window{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a.Gaps, want) {
			t.Errorf("without %s: %q, want %q", denied, a.Gaps, want)
		}
	}
	c := newCluster(t)
	c.denied = []string{"Event"}
	events, err := detail.Events(t.Context(), c, key, func(types.UID) []types.NamespacedName { return nil }, detail.EventFilter{})
	if err != nil || !slices.Equal(events.Gaps, []string{"Events about a JobSet are not shown" + cure}) {
		t.Errorf("Events: %v, %v", events, err)
	}
	// A snapshot has neither pods nor Events.
	pods, err := detail.Pods(t.Context(), &newCluster(t).Fixed, key, "", dashboard.Window{})
	if err != nil || !slices.Equal(pods.Gaps, []string{"Pods are not shown: a snapshot has none"}) {
		t.Errorf("pods of a snapshot: %v, %v", pods, err)
	}
}

// Events are read by kind in the namespace of the JobSet.
func TestEvents(t *testing.T) {
	c := newCluster(t)
	c.events = []corev1.Event{{InvolvedObject: corev1.ObjectReference{Kind: "JobSet", UID: "uid"}}, {InvolvedObject: corev1.ObjectReference{Kind: "Workload", Namespace: "team", Name: "w"}}}
	workloads := func(uid types.UID) []types.NamespacedName {
		return []types.NamespacedName{{Namespace: "team", Name: map[types.UID]string{"uid": "w"}[uid]}}
	}
	a, err := detail.Events(t.Context(), c, key, workloads, detail.EventFilter{})
	if err != nil || a.Total != 2 {
		t.Errorf("%v, %v", a, err)
	}
	if want := []string{"Event team involvedObject.kind=JobSet", "Event team involvedObject.kind=Workload", "Event team involvedObject.kind=Job"}; !slices.Equal(c.asked, want) {
		t.Errorf("asked for %q, want %q", c.asked, want)
	}
}

// The YAML of an object has all of it but managedFields.
func TestObject(t *testing.T) {
	kind := jobset.GroupVersion.WithKind("JobSet")
	var js jobsetapi.JobSet
	a, err := detail.Object(t.Context(), newCluster(t), kind, key, &js)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(a.YAML, "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n") || !strings.Contains(a.YAML, "name: train") || strings.Contains(a.YAML, "managedFields") || js.UID != "uid" {
		t.Errorf("%s", a.YAML)
	}
	if _, err := detail.Object(t.Context(), newCluster(t), kind, types.NamespacedName{Namespace: "other", Name: "js"}, nil); !apierrors.IsNotFound(err) {
		t.Errorf("one that does not exist: %v", err)
	}
}
