package childjob_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
)

func newJob(change func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec: batchv1.JobSpec{Parallelism: new(int32(2)), Completions: new(int32(3)), Suspend: new(true), Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{
				NodeSelector: map[string]string{"zone": "a"},
				Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
				}}},
			},
		}},
	}
	change(job)
	return job
}

// suspended adds the condition by which the Job controller reports that the Job is held.
func suspended(job *batchv1.Job) {
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue})
}

func TestHasPods(t *testing.T) {
	done := []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	cases := map[string]struct {
		change func(*batchv1.Job)
		want   bool
	}{
		"held, and not reported yet": {func(*batchv1.Job) {}, true},
		"held":                       {suspended, false},
		"may make pods at any time":  {func(j *batchv1.Job) { j.Spec.Suspend = nil }, true},
		"suspended, pods still run":  {func(j *batchv1.Job) { suspended(j); j.Status.Active = 1 }, true},
		"suspended, pods terminate":  {func(j *batchv1.Job) { suspended(j); j.Status.Terminating = new(int32(1)) }, true},
		"deleted, pods still run":    {func(j *batchv1.Job) { j.Spec.Suspend = nil; j.DeletionTimestamp = &metav1.Time{}; j.Status.Active = 1 }, true},
		"over":                       {func(j *batchv1.Job) { j.Spec.Suspend = nil; j.Status.Conditions = done }, false},
		"over, counters not cleared": {func(j *batchv1.Job) { j.Status.Conditions = done; j.Status.Active = 1 }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := childjob.HasPods(newJob(c.change)); got != c.want {
				t.Errorf("HasPods = %t, want %t", got, c.want)
			}
		})
	}
}

func TestIsEnding(t *testing.T) {
	says := func(kind batchv1.JobConditionType) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue})
		}
	}
	cases := map[string]struct {
		changes []func(*batchv1.Job)
		want    bool
	}{
		"nothing is decided": {nil, false},
		"it will succeed":    {[]func(*batchv1.Job){says(batchv1.JobSuccessCriteriaMet)}, true},
		"it will fail":       {[]func(*batchv1.Job){says(batchv1.JobFailureTarget)}, true},
		"it has ended":       {[]func(*batchv1.Job){says(batchv1.JobSuccessCriteriaMet), says(batchv1.JobComplete)}, false},
		"it is being deleted, and may never say that it has ended": {[]func(*batchv1.Job){
			says(batchv1.JobFailureTarget), func(j *batchv1.Job) { j.DeletionTimestamp = new(metav1.Now()) },
		}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			job := newJob(func(j *batchv1.Job) {
				for _, change := range c.changes {
					change(j)
				}
			})
			if got := childjob.IsEnding(job); got != c.want {
				t.Errorf("IsEnding = %t, want %t", got, c.want)
			}
		})
	}
}

func TestHasProgress(t *testing.T) {
	cases := map[string]struct {
		change func(*batchv1.Job)
		want   bool
	}{
		"nothing has run":   {func(j *batchv1.Job) { j.Status.Active = 2 }, false},
		"one pod succeeded": {func(j *batchv1.Job) { j.Status.Succeeded = 1 }, true},
		"one pod failed":    {func(j *batchv1.Job) { j.Status.Failed = 1 }, true},
		"one is counted soon": {func(j *batchv1.Job) {
			j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Failed: []types.UID{"a"}}
		}, true},
		"all succeeded": {func(j *batchv1.Job) {
			j.Status.Succeeded = 3
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := childjob.HasProgress(newJob(c.change)); got != c.want {
				t.Errorf("HasProgress = %t, want %t", got, c.want)
			}
		})
	}
}

func TestIsNoticed(t *testing.T) {
	cases := map[string]struct {
		change func(*batchv1.Job)
		want   bool
	}{
		"held":                        {suspended, false},
		"released a moment ago":       {func(j *batchv1.Job) { suspended(j); j.Spec.Suspend = new(false) }, false},
		"released, and it makes pods": {func(j *batchv1.Job) { j.Spec.Suspend = new(false) }, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := childjob.IsNoticed(newJob(c.change)); got != c.want {
				t.Errorf("IsNoticed = %t, want %t", got, c.want)
			}
		})
	}
}

func TestIsReady(t *testing.T) {
	cases := map[string]struct {
		change func(*batchv1.Job)
		want   bool
	}{
		"held":                     {func(j *batchv1.Job) { j.Status.Ready = new(int32(2)) }, false},
		"one of two ready":         {func(j *batchv1.Job) { j.Spec.Suspend = nil; j.Status.Ready = new(int32(1)) }, false},
		"both ready":               {func(j *batchv1.Job) { j.Spec.Suspend = nil; j.Status.Ready = new(int32(2)) }, true},
		"one ready, one succeeded": {func(j *batchv1.Job) { j.Spec.Suspend = nil; j.Status.Ready = new(int32(1)); j.Status.Succeeded = 1 }, true},
		"fewer completions than slots": {func(j *batchv1.Job) {
			j.Spec.Suspend = nil
			j.Spec.Completions = new(int32(1))
			j.Status.Ready = new(int32(1))
		}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := childjob.IsReady(newJob(c.change)); got != c.want {
				t.Errorf("IsReady = %t, want %t", got, c.want)
			}
		})
	}
}

func TestReleased(t *testing.T) {
	template := childjob.Template{Pods: 2, Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	toleration := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}
	flavors := map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{
		"a100": {Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"gpu": "a100"}, Tolerations: []corev1.Toleration{toleration}}},
		"h100": {Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"gpu": "h100", "net": "ib"}}},
		"zone": {Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"zone": "a"}}},
	}
	on := func(names ...kueue.ResourceFlavorReference) *kueue.PodSetAssignment {
		a := &kueue.PodSetAssignment{Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{}}
		for _, name := range names {
			a.Flavors[corev1.ResourceName(name)] = name
		}
		return a
	}
	cases := map[string]struct {
		change          func(*batchv1.Job)
		assignment      *kueue.PodSetAssignment
		wantSelector    map[string]string
		wantTolerations []corev1.Toleration
		wantKeys        string
	}{
		"a flavor's labels and tolerations are added": {
			func(*batchv1.Job) {}, on("a100"), map[string]string{"zone": "a", "gpu": "a100"}, []corev1.Toleration{toleration}, "gpu",
		},
		"a toleration that is there is not doubled": {
			func(j *batchv1.Job) { j.Spec.Template.Spec.Tolerations = []corev1.Toleration{toleration} },
			on("a100"),
			map[string]string{"zone": "a", "gpu": "a100"},
			[]corev1.Toleration{toleration},
			"gpu",
		},
		"the user's own label stays his": {
			func(*batchv1.Job) {}, on("zone"), map[string]string{"zone": "a"}, nil, "",
		},
		"another flavor replaces the labels of the last": {
			func(j *batchv1.Job) {
				j.Annotations = map[string]string{apis.FlavorNodeLabelsAnnotation: "gpu,net"}
				j.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a", "gpu": "h100", "net": "ib"}
			}, on("a100"), map[string]string{"zone": "a", "gpu": "a100"}, []corev1.Toleration{toleration}, "gpu",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := newJob(c.change)
			after, err := childjob.Released(before, template, c.assignment, flavors)
			if err != nil {
				t.Fatal(err)
			}
			if *after.Spec.Suspend || !*before.Spec.Suspend {
				t.Error("the copy must run, and the original must stay held")
			}
			if childjob.ReplacesEarly(after) || !childjob.ReplacesEarly(before) {
				t.Error("the copy must replace pods when they have terminated")
			}
			if diff := cmp.Diff(c.wantSelector, after.Spec.Template.Spec.NodeSelector); diff != "" {
				t.Errorf("node selector (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.wantTolerations, after.Spec.Template.Spec.Tolerations); diff != "" {
				t.Errorf("tolerations (-want +got):\n%s", diff)
			}
			if got := after.Annotations[apis.FlavorNodeLabelsAnnotation]; got != c.wantKeys {
				t.Errorf("keys = %q, want %q", got, c.wantKeys)
			}
		})
	}
}

// TestRestored releases a Job with everything that an admission can add, and removes it again.
func TestRestored(t *testing.T) {
	template := childjob.Template{Pods: 2, Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	own := corev1.Toleration{Key: "own", Operator: corev1.TolerationOpExists}
	flavors := map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{"a100": {Spec: kueue.ResourceFlavorSpec{
		NodeLabels: map[string]string{"gpu": "a100"}, Tolerations: []corev1.Toleration{own, {Key: "gpu"}},
	}}}
	update := childjob.Update{By: childjob.CheckedBy("provision"), Update: kueue.PodSetUpdate{
		Labels: map[string]string{"team": "a", "batch": "7"}, Annotations: map[string]string{"consume": "request-1"},
		NodeSelector: map[string]string{"pool": "new", "gpu": "a100"}, Tolerations: []corev1.Toleration{{Key: "new"}, {Key: "gpu"}},
	}}
	assignment := &kueue.PodSetAssignment{Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "a100"}}
	before := newJob(func(j *batchv1.Job) {
		j.Spec.Template.Labels = map[string]string{"team": "a"}
		j.Spec.Template.Spec.Tolerations = []corev1.Toleration{own}
	})
	released, err := childjob.Released(before, template, assignment, flavors, update)
	if err != nil {
		t.Fatal(err)
	}
	want := before.DeepCopy().Spec.Template
	want.Labels["batch"] = "7"
	want.Annotations = map[string]string{"consume": "request-1"}
	want.Spec.NodeSelector = map[string]string{"zone": "a", "gpu": "a100", "pool": "new"}
	want.Spec.Tolerations = []corev1.Toleration{own, {Key: "gpu"}, {Key: "new"}}
	if diff := cmp.Diff(want, released.Spec.Template); diff != "" {
		t.Errorf("released (-want +got):\n%s", diff)
	}
	if childjob.IsRestored(released) {
		t.Error("the released Job must say what was added")
	}
	restored := childjob.Restored(released)
	if !childjob.IsRestored(restored) {
		t.Error("the restored Job must not say that something was added")
	}
	want = before.Spec.Template
	want.Annotations = map[string]string{}
	if diff := cmp.Diff(want, restored.Spec.Template); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
}

// The API server accepts no pod template without the labels that the Job selects its pods by.
func TestRestoredKeepsSelector(t *testing.T) {
	job := &batchv1.Job{Spec: batchv1.JobSpec{Selector: &metav1.LabelSelector{
		MatchLabels:      map[string]string{batchv1.ControllerUidLabel: "u1"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpExists}},
	}}}
	job.Annotations = map[string]string{apis.AdmissionAdditionsAnnotation: `{"labels":["` + batchv1.ControllerUidLabel + `","team","added"]}`}
	job.Spec.Template.Labels = map[string]string{batchv1.ControllerUidLabel: "u1", "team": "ml", "added": "x"}
	want := map[string]string{batchv1.ControllerUidLabel: "u1", "team": "ml"}
	if diff := cmp.Diff(want, childjob.Restored(job).Spec.Template.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestReleasedRefusesContradictions(t *testing.T) {
	flavors := map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{"a100": {Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"gpu": "a100"}}}}
	assignment := &kueue.PodSetAssignment{Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "a100"}}
	template := childjob.Template{Pods: 2, Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	cases := map[string]struct {
		updates []kueue.PodSetUpdate
		want    string
	}{
		"with the Job":       {[]kueue.PodSetUpdate{{NodeSelector: map[string]string{"zone": "b"}}}, `the podSetUpdates of AdmissionCheck "check-0" set nodeSelector["zone"] to "b", which is "a" already`},
		"with a flavor":      {[]kueue.PodSetUpdate{{NodeSelector: map[string]string{"gpu": "h100"}}}, `nodeSelector["gpu"] to "h100", which is "a100" already`},
		"with another check": {[]kueue.PodSetUpdate{{Labels: map[string]string{"l": "1"}}, {Labels: map[string]string{"l": "2"}}}, `the podSetUpdates of AdmissionCheck "check-1" set labels["l"] to "2"`},
		"in annotations":     {[]kueue.PodSetUpdate{{Annotations: map[string]string{"l": "1"}}, {Annotations: map[string]string{"l": "2"}}}, `annotations["l"]`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var updates []childjob.Update
			for i, update := range c.updates {
				updates = append(updates, childjob.Update{By: childjob.CheckedBy(kueue.AdmissionCheckReference(fmt.Sprintf("check-%d", i))), Update: update})
			}
			_, err := childjob.Released(newJob(func(*batchv1.Job) {}), template, assignment, flavors, updates...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %v, want %q", err, c.want)
			}
		})
	}
}

func TestReleasedRefuses(t *testing.T) {
	template := childjob.Template{Pods: 2, Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	cases := map[string]struct {
		change     func(*batchv1.Job)
		assignment *kueue.PodSetAssignment
		want       string
	}{
		"no assignment": {func(*batchv1.Job) {}, nil, "no assignment"},
		"a flavor that is gone": {func(*batchv1.Job) {}, &kueue.PodSetAssignment{
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "old"},
		}, `no ResourceFlavor "old"`},
		"more pods": {func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(3)) }, &kueue.PodSetAssignment{}, "3 pods at once, and quota is charged for 2"},
		"larger pods": {func(j *batchv1.Job) {
			j.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
		}, &kueue.PodSetAssignment{}, "request 2 cpu each, and quota is charged for 1"},
		"another resource": {func(j *batchv1.Job) {
			j.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
		}, &kueue.PodSetAssignment{}, "request 1 nvidia.com/gpu each, and quota is charged for 0"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := childjob.Released(newJob(c.change), template, c.assignment, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %v, want %q", err, c.want)
			}
		})
	}
}

// A Job that is larger than its quota begins with fewer pods.
func TestReleasedSmaller(t *testing.T) {
	template := childjob.Template{Pods: 4, First: 3, Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	for name, c := range map[string]struct{ pods, want int32 }{
		"larger":  {4, 3},
		"as much": {3, 3},
		"smaller": {2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob(func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = &c.pods, &c.pods })
			released, err := childjob.Released(job, template, &kueue.PodSetAssignment{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if *released.Spec.Parallelism != c.want || *released.Spec.Completions != c.want || *released.Spec.Suspend {
				t.Errorf("released with %d of %d pods, suspended %t; want %d", *released.Spec.Parallelism, *released.Spec.Completions, *released.Spec.Suspend, c.want)
			}
			if *job.Spec.Parallelism != c.pods {
				t.Error("the Job that was read has been changed")
			}
		})
	}
}

// Running pods cannot be changed.
func TestHonors(t *testing.T) {
	for name, c := range map[string]struct {
		update kueue.PodSetUpdate
		want   string
	}{
		"nothing":                  {kueue.PodSetUpdate{}, ""},
		"what they have":           {kueue.PodSetUpdate{NodeSelector: map[string]string{"zone": "a"}}, ""},
		"something else":           {kueue.PodSetUpdate{NodeSelector: map[string]string{"zone": "b"}}, "make them equal"},
		"more labels":              {kueue.PodSetUpdate{Labels: map[string]string{"booking": "7"}}, "what the pods that run do not have"},
		"a toleration they lack":   {kueue.PodSetUpdate{Tolerations: []corev1.Toleration{{Key: "spot"}}}, "what the pods that run do not have"},
		"an annotation they lack":  {kueue.PodSetUpdate{Annotations: map[string]string{"booking": "7"}}, "what the pods that run do not have"},
		"another node to run them": {kueue.PodSetUpdate{NodeSelector: map[string]string{"rack": "1"}}, "what the pods that run do not have"},
	} {
		t.Run(name, func(t *testing.T) {
			err := childjob.Honors(newJob(func(*batchv1.Job) {}), childjob.Update{By: childjob.CheckedBy("provision"), Update: c.update})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %v, want %q", err, c.want)
			}
		})
	}
}

// Each release of a Job in a group has its own number, and the number is not removed with the other additions.
func TestReleasedCounts(t *testing.T) {
	template := childjob.Template{Pods: 2, Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	cases := map[string]struct {
		group, before, want string
	}{
		"in no group":      {"", "", ""},
		"the first time":   {"60", "", "1"},
		"again":            {"60", "1", "2"},
		"written by a fan": {"60", "many", "1"},
		"far below":        {"60", "-7", "1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			job := newJob(func(j *batchv1.Job) {
				if c.group != "" {
					j.Annotations = map[string]string{apis.GroupStartAnnotation: c.group}
				}
				if c.before != "" {
					j.Spec.Template.Annotations = map[string]string{apis.ReleaseAnnotation: c.before}
				}
			})
			released, err := childjob.Released(job, template, &kueue.PodSetAssignment{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := childjob.Restored(released).Spec.Template.Annotations[apis.ReleaseAnnotation]; got != c.want {
				t.Errorf("release %q, want %q", got, c.want)
			}
			if got := job.Spec.Template.Annotations[apis.ReleaseAnnotation]; got != c.before {
				t.Error("the Job that was read has been changed")
			}
		})
	}
}
