package schedulergang_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

type job = jobsetapi.ReplicatedJob

const (
	off            = jobsetapi.GangModeOff
	whole          = jobsetapi.GangModeGang
	replicatedGang = jobsetapi.GangModeReplicatedGang
)

// newJob makes a ReplicatedJob of one Job with one pod.
func newJob(name string, more ...func(*job)) job {
	var j job
	j.Name, j.Replicas = name, 1
	j.Template.Spec.Template.Spec.Containers = []corev1.Container{{
		Name:      "main",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
	}}
	for _, m := range more {
		m(&j)
	}
	return j
}

func replicas(n int32) func(*job) { return func(j *job) { j.Replicas = n } }

func parallelism(n int32) func(*job) { return func(j *job) { j.Template.Spec.Parallelism = &n } }

func completions(n int32) func(*job) { return func(j *job) { j.Template.Spec.Completions = &n } }

func mode(m jobsetapi.GangMode) func(*job) {
	return func(j *job) { j.GangConfig = &jobsetapi.GangConfig{GangMode: m} }
}

func annotated(m jobsetapi.GangMode) func(*job) {
	return func(j *job) { j.Template.Annotations = map[string]string{apis.GangAnnotation: string(m)} }
}

func scheduler(name string) func(*job) {
	return func(j *job) { j.Template.Spec.Template.Spec.SchedulerName = name }
}

func podGroup(name string) func(*job) {
	return func(j *job) {
		j.Template.Spec.Template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
	}
}

func after(name string, status jobset.DependsOnStatus) func(*job) {
	return func(j *job) { j.DependsOn = []jobset.DependsOn{{Name: name, Status: status}} }
}

// newJobSet makes a JobSet that asks for no gang as a whole.
func newJobSet(jobs ...job) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{}
	js.Namespace, js.Name, js.UID = "ml", "js", types.UID("8f14e45f-ceea-467f-9c1c-3d6b2a3f0b11")
	js.Spec.ReplicatedJobs = jobs
	return js
}

// asGang makes a JobSet one gang.
func asGang(js *jobsetapi.JobSet) *jobsetapi.JobSet {
	js.Spec.GangConfig = &jobsetapi.GangConfig{GangMode: whole}
	return js
}

func inOrder(js *jobsetapi.JobSet, rules ...jobsetapi.StartupPolicyRule) *jobsetapi.JobSet {
	js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder, Rules: rules}
	return js
}

func annotate(js *jobsetapi.JobSet, m jobsetapi.GangMode) *jobsetapi.JobSet {
	js.Annotations = map[string]string{apis.GangAnnotation: string(m)}
	return js
}

var kube schedulergang.Provider = schedulergang.Kube{Version: schedulergang.V1alpha2}

// TestMinCount counts the pods of gangs by the formulas of KEP-1068.
func TestMinCount(t *testing.T) {
	cases := map[string]struct {
		js *jobsetapi.JobSet
		// want has "group: gangs of pods" for each.
		want string
	}{
		"no gangs":                       {newJobSet(newJob("a")), ""},
		"all are off":                    {annotate(newJobSet(newJob("a", mode(off)), newJob("b", annotated(off))), off), ""},
		"JobSet":                         {asGang(newJobSet(newJob("a", replicas(2), parallelism(4)), newJob("b", replicas(2), parallelism(4)))), "all: 1 of 16"},
		"JobSet of unlike jobs":          {asGang(newJobSet(newJob("driver"), newJob("workers", replicas(2), parallelism(4)))), "all: 1 of 9"},
		"JobSet with a job without pods": {asGang(newJobSet(newJob("driver"), newJob("spare", replicas(0)))), "all: 1 of 1"},
		"JobSet by annotation":           {annotate(newJobSet(newJob("a", replicas(3))), whole), "all: 1 of 3"},
		"JobSet over jobs that are off":  {asGang(newJobSet(newJob("a", mode(off)), newJob("b"))), "all: 1 of 2"},
		"ReplicatedJob":                  {newJobSet(newJob("a", replicas(2), parallelism(4), mode(whole)), newJob("b")), "a: 1 of 8"},
		"ReplicatedJob by annotation":    {newJobSet(newJob("a"), newJob("b", replicas(2), annotated(whole))), "b: 1 of 2"},
		"both say the same":              {newJobSet(newJob("a", mode(whole), annotated(whole))), "a: 1 of 1"},
		"replicas":                       {newJobSet(newJob("a", replicas(2), parallelism(4), mode(replicatedGang))), "a: 2 of 4"},
		"all kinds": {
			newJobSet(newJob("a", replicas(2), parallelism(4), mode(replicatedGang)), newJob("b"), newJob("c", mode(whole), parallelism(3))),
			"a: 2 of 4, c: 1 of 3",
		},
		"fewer completions than parallelism": {newJobSet(newJob("a", replicas(2), parallelism(8), completions(3), mode(whole))), "a: 1 of 6"},
		"more completions than parallelism":  {newJobSet(newJob("a", replicas(2), parallelism(3), completions(8), mode(replicatedGang))), "a: 2 of 3"},
		"neither is given":                   {newJobSet(newJob("a", replicas(2), mode(whole))), "a: 1 of 2"},
		"only completions":                   {newJobSet(newJob("a", completions(5), mode(whole))), "a: 1 of 1"},
		"in stages": {
			inOrder(newJobSet(newJob("a", parallelism(2), mode(whole)), newJob("b", parallelism(3), mode(whole)))), "a: 1 of 2, b: 1 of 3",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			gangSet, err := schedulergang.New(c.js, plan(t, c.js), kube)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range gangSet.PodGroupTemplates {
				podGroupTemplate := &gangSet.PodGroupTemplates[i]
				got = append(got, fmt.Sprintf("%s: %d of %d", podGroupTemplate.Name, podGroupTemplate.Gangs(), podGroupTemplate.MinCount))
			}
			if diff := cmp.Diff(c.want, strings.Join(got, ", ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	cases := map[string]struct {
		js       *jobsetapi.JobSet
		provider schedulergang.Provider
		want     []string
	}{
		"a gang over stages that open by Ready": {
			asGang(inOrder(newJobSet(newJob("a"), newJob("b")))), kube,
			[]string{`spec.gangConfig.gangMode: Gang can never start: it needs the pods of all stages at once, but stage "b" opens only when stage "a" is Ready: ` +
				`set Gang on each ReplicatedJob instead, or start all ReplicatedJobs together`},
		},
		"a gang over stages that open by a rule": {
			asGang(inOrder(newJobSet(newJob("a"), newJob("b")), jobsetapi.StartupPolicyRule{
				TargetReplicatedJobs: []string{"a"}, WaitForReplicatedJobsStatus: jobsetapi.SucceededStatus,
			})), kube,
			[]string{`spec.gangConfig.gangMode: Gang can never start: it needs the pods of all stages at once, but stage "b" opens only when stage "a" is Succeeded: ` +
				`set Gang on each ReplicatedJob instead, or start all ReplicatedJobs together`},
		},
		"a gang over dependencies": {
			annotate(newJobSet(newJob("a"), newJob("b"), newJob("c", after("a", jobset.DependencyReady))), whole), kube,
			[]string{`metadata.annotations[tranche.dev/gang]: Gang can never start: it needs the pods of all stages at once, but stage "c" opens only when stage "a.b" is Ready: ` +
				`set Gang on each ReplicatedJob instead, or start all ReplicatedJobs together`},
		},
		"a gang without replicas": {
			newJobSet(newJob("a"), newJob("b", replicas(0), mode(whole))), kube,
			[]string{"spec.replicatedJobs[1].gangConfig.gangMode: Gang makes a gang without pods, which no scheduler can place: " +
				"set replicas, parallelism and completions to at least 1, or set Off here"},
		},
		"gangs of Jobs without pods": {
			newJobSet(newJob("a", parallelism(0), annotated(replicatedGang))), kube,
			[]string{"spec.replicatedJobs[0].template.metadata.annotations[tranche.dev/gang]: ReplicatedGang makes a gang without pods, which no scheduler can place: " +
				"set replicas, parallelism and completions to at least 1, or set Off here"},
		},
		"a gang of each of no Jobs": {
			newJobSet(newJob("a", replicas(0), mode(replicatedGang))), kube,
			[]string{"spec.replicatedJobs[0].gangConfig.gangMode: ReplicatedGang makes a gang without pods, which no scheduler can place: " +
				"set replicas, parallelism and completions to at least 1, or set Off here"},
		},
		"a JobSet without pods": {
			asGang(newJobSet(newJob("a", replicas(0)), newJob("b", completions(0)))), kube,
			[]string{"spec.gangConfig.gangMode: Gang makes a gang without pods, which no scheduler can place: " +
				"set replicas, parallelism and completions to at least 1, or set Off here"},
		},
		"more pods than can be counted": {
			asGang(newJobSet(newJob("a", replicas(1<<15), parallelism(1<<15)), newJob("b", replicas(1<<15), parallelism(1<<15)))), kube,
			[]string{"spec.gangConfig.gangMode: Gang makes a gang of 2147483648 pods, at most 2147483647 are allowed: set gangMode on the ReplicatedJobs instead, or use fewer pods"},
		},
		"more gangs than allowed": {
			newJobSet(newJob("a", mode(whole)), newJob("b", replicas(schedulergang.MaxGangs), mode(replicatedGang)), newJob("c", mode(whole))), kube,
			[]string{"spec.replicatedJobs[1].gangConfig.gangMode: the JobSet has more than 4096 gangs with the 4096 gangs of this ReplicatedJob: " +
				"set Gang here, or use fewer replicas"},
		},
		"an unknown mode of the JobSet": {
			annotate(newJobSet(newJob("a")), "All"), kube,
			[]string{`metadata.annotations[tranche.dev/gang]: "All" must be Off, Gang or, for a ReplicatedJob, ReplicatedGang`},
		},
		"unknown modes of ReplicatedJobs": {
			newJobSet(newJob("a", mode("")), newJob("b", annotated("gang"))), kube,
			[]string{
				`spec.replicatedJobs[0].gangConfig.gangMode: "" must be Off, Gang or, for a ReplicatedJob, ReplicatedGang`,
				`spec.replicatedJobs[1].template.metadata.annotations[tranche.dev/gang]: "gang" must be Off, Gang or, for a ReplicatedJob, ReplicatedGang`,
			},
		},
		"replicas of a JobSet": {
			annotate(newJobSet(newJob("a")), replicatedGang), kube,
			[]string{"metadata.annotations[tranche.dev/gang]: ReplicatedGang is only for ReplicatedJobs: set it there, or set Gang here"},
		},
		"both levels": {
			asGang(newJobSet(newJob("a", mode(off)), newJob("b", annotated(replicatedGang)))), kube,
			[]string{"spec.replicatedJobs[1].template.metadata.annotations[tranche.dev/gang]: ReplicatedGang cannot be combined with Gang of spec.gangConfig.gangMode: set one of them to Off"},
		},
		"field and annotation differ": {
			annotate(asGang(newJobSet(newJob("a"))), off), kube,
			[]string{`metadata.annotations[tranche.dev/gang]: "Off" contradicts "Gang" of spec.gangConfig.gangMode: remove the annotation, which is for clusters without that field`},
		},
		"two schedulers in a gang": {
			asGang(newJobSet(newJob("none", replicas(0), scheduler("z")), newJob("a"), newJob("b", scheduler("mine")), newJob("c", scheduler("default-scheduler")))), kube,
			[]string{`spec.replicatedJobs[2].template.spec.template.spec.schedulerName: "mine" differs from "default-scheduler" of ReplicatedJob "a", which is in the same gang: ` +
				`a scheduler ignores pods of other schedulers, so the gang would never be complete: set the same scheduler on both`},
		},
		"another scheduler": {
			newJobSet(newJob("a", mode(whole), scheduler("default-scheduler")), newJob("b", scheduler("default-scheduler"))),
			schedulergang.Volcano{},
			[]string{`spec.replicatedJobs[0].template.spec.template.spec.schedulerName: scheduler "default-scheduler" does not place the gangs of this cluster: set "volcano", or leave the field empty`},
		},
		"a gang that is user-created in part": {
			asGang(newJobSet(newJob("a", podGroup("mine")), newJob("b"))), kube,
			[]string{`spec.gangConfig.gangMode: the pods of ReplicatedJob "a" name gang "mine", the pods of "b" name none: name the gang in both, or in neither`},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			gangSet, err := schedulergang.New(c.js, plan(t, c.js), c.provider)
			var problems stageplan.Problems
			if !errors.As(err, &problems) || gangSet != nil {
				t.Fatalf("New() = %v, %v", gangSet, err)
			}
			var got []string
			for _, problem := range problems {
				got = append(got, problem.String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if want := `JobSet "ml/js": ` + problems.Error(); err.Error() != want {
				t.Errorf("error %q, want %q", err, want)
			}
		})
	}
}

// TestAccept has valid cases that are similar to those of TestRefuse.
func TestAccept(t *testing.T) {
	cases := map[string]struct {
		js       *jobsetapi.JobSet
		provider schedulergang.Provider
	}{
		"as many gangs as there may be":       {newJobSet(newJob("a", mode(whole)), newJob("b", replicas(schedulergang.MaxGangs-1), mode(replicatedGang))), kube},
		"one scheduler, named and by default": {asGang(newJobSet(newJob("a"), newJob("b", scheduler("default-scheduler")))), kube},
		"another scheduler in another gang":   {newJobSet(newJob("a", mode(whole), scheduler("x")), newJob("b", mode(whole))), kube},
		"the scheduler of the provider":       {asGang(newJobSet(newJob("a"), newJob("b", scheduler("s")))), schedulergang.Coscheduling{SchedulerName: "s"}},
		"another scheduler outside of gangs":  {newJobSet(newJob("a", mode(whole)), newJob("b", scheduler("x"))), schedulergang.Koordinator{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := schedulergang.New(c.js, plan(t, c.js), c.provider); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWithoutPlan: a plan that is not of this JobSet is an error, and does not cause a panic.
func TestWithoutPlan(t *testing.T) {
	for name, p := range map[string]*stageplan.Plan{"nil": nil, "empty": {}, "of another": plan(t, newJobSet(newJob("z")))} {
		for _, js := range []*jobsetapi.JobSet{newJobSet(newJob("a", mode(whole))), asGang(newJobSet(newJob("a")))} {
			if gangSet, err := schedulergang.New(js, p, kube); err == nil {
				t.Errorf("%s: New() = %v", name, gangSet)
			}
		}
		if gangSet, err := schedulergang.New(asGang(newJobSet()), p, kube); err == nil {
			t.Errorf("%s, no ReplicatedJobs: New() = %v", name, gangSet)
		}
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("long", 15)
	cases := map[string]struct {
		name string
		js   *jobsetapi.JobSet
		want string
	}{
		"JobSet":        {"js", asGang(newJobSet(newJob("a"))), "js-all-r0-8f14e45fceea"},
		"dots":          {"my.js", asGang(newJobSet(newJob("a"))), "my-js-all-r0-8f14e45fceea"},
		"ReplicatedJob": {"js", newJobSet(newJob("b"), newJob("a", mode(whole))), "js-a-1-r0-8f14e45fceea"},
		"replicas": {
			"js", newJobSet(newJob("a", replicas(2), mode(replicatedGang))), "js-a-0x0-r0-8f14e45fceea js-a-0x1-r0-8f14e45fceea",
		},
		"the end of the name is cut": {
			"training", newJobSet(newJob(long, replicas(2), mode(replicatedGang))),
			"training-longlonglonglonglonglonglonglonglo-0x0-r0-8f14e45fceea training-longlonglonglonglonglonglonglonglo-0x1-r0-8f14e45fceea",
		},
		"ReplicatedJobs that begin alike": {
			"training", newJobSet(newJob(long+"-a", mode(whole)), newJob(long+"-b", mode(whole))),
			"training-longlonglonglonglonglonglonglonglong-0-r0-8f14e45fceea training-longlonglonglonglonglonglonglonglong-1-r0-8f14e45fceea",
		},
		"names that would read alike": {
			"js", newJobSet(newJob("b", replicas(2), mode(replicatedGang)), newJob("b-0x1", mode(whole))),
			"js-b-0x0-r0-8f14e45fceea js-b-0x1-r0-8f14e45fceea js-b-0x1-1-r0-8f14e45fceea",
		},
		"a JobSet with a name of any length": {strings.Repeat("x", 253), asGang(newJobSet(newJob("a"))), strings.Repeat("x", 43) + "-all-r0-8f14e45fceea"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.js.Name = c.name
			gangSet, err := schedulergang.New(c.js, plan(t, c.js), schedulergang.Volcano{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, object := range (schedulergang.Volcano{}).Objects(gangSet, 0) {
				got = append(got, object.Name)
				if len(object.Labels[apis.JobSetLabel]) > 63 {
					t.Errorf("label %q is too long", object.Labels[apis.JobSetLabel])
				}
			}
			if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestNamesStay: pods cannot change the gang that they name, so its name does not change when the JobSet grows.
func TestNamesStay(t *testing.T) {
	for name, provider := range providers() {
		links := map[string]bool{}
		for _, pods := range []int32{1, 4} {
			js := newJobSet(newJob("a", parallelism(pods), mode(whole)))
			gangSet, err := schedulergang.New(js, plan(t, js), provider)
			if err != nil {
				t.Fatal(err)
			}
			links[link(gangSet.PodFields(provider, "a", 0))] = true
		}
		if len(links) != 1 {
			t.Errorf("%s: %v", name, links)
		}
	}
}

// TestManyGroups: a gang Workload has at most eight groups.
func TestManyGroups(t *testing.T) {
	js := newJobSet()
	for i := range 18 {
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, newJob(fmt.Sprintf("j%d", i), mode(whole)))
	}
	last := &js.Spec.ReplicatedJobs[17]
	after("j0", jobset.DependencyReady)(last)
	p := plan(t, js)
	gangSet, err := schedulergang.New(js, p, kube)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	templates := map[string]bool{}
	for s := range p.Stages {
		for _, object := range kube.Objects(gangSet, s) {
			if object.Kind == "PodGroup" {
				if of := templateOf(object); !templates[of] {
					t.Errorf("PodGroup %s is made from %s, which is not there before it", object.Name, of)
				}
				continue
			}
			for _, template := range object.Spec["podGroupTemplates"].([]any) {
				templates[fmt.Sprint(object.Name, "/", template.(map[string]any)["name"])] = true
			}
			got = append(got, fmt.Sprintf("stage %d: %s has %d", s, object.Name, len(object.Spec["podGroupTemplates"].([]any))))
		}
	}
	want := []string{
		"stage 0: js-gangs-8f14e45fceea has 8", "stage 0: js-gangs1-8f14e45fceea has 8", "stage 0: js-gangs2-8f14e45fceea has 2",
		"stage 1: js-gangs2-8f14e45fceea has 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// templateOf returns the gang Workload and the template that a PodGroup is made from.
func templateOf(object schedulergang.Object) string {
	ref := object.Spec["podGroupTemplateRef"].(map[string]any)["workload"].(map[string]any)
	return fmt.Sprint(ref["workloadName"], "/", ref["podGroupTemplateName"])
}

// TestKoordinatorMode: the mode is that of the configuration, and Strict by default.
func TestKoordinatorMode(t *testing.T) {
	js := asGang(newJobSet(newJob("a"), newJob("none", replicas(0))))
	for want, provider := range map[string]schedulergang.Koordinator{"Strict": {}, "NonStrict": {Mode: schedulergang.NonStrict}} {
		gangSet, err := schedulergang.New(js, plan(t, js), provider)
		if err != nil {
			t.Fatal(err)
		}
		objects := provider.Objects(gangSet, 0)
		if len(objects) != 1 {
			t.Fatalf("%d PodGroups, want none for a ReplicatedJob without pods", len(objects))
		}
		if got := objects[0].Annotations["gang.scheduling.koordinator.sh/mode"]; got != want {
			t.Errorf("mode %q, want %q", got, want)
		}
	}
}

// TestPriorityClass: the objects for Volcano have the PriorityClass of the whole gang, if there is one.
func TestPriorityClass(t *testing.T) {
	priority := func(class string) func(*job) {
		return func(j *job) { j.Template.Spec.Template.Spec.PriorityClassName = class }
	}
	cases := map[string]struct {
		jobs []job
		want any
	}{
		"none":     {jobs: []job{newJob("a"), newJob("b")}},
		"the same": {jobs: []job{newJob("a", priority("high")), newJob("b", priority("high"))}, want: "high"},
		"two":      {jobs: []job{newJob("a", priority("high")), newJob("b", priority("low"))}},
		"only one": {jobs: []job{newJob("a"), newJob("b", priority("low"))}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			js := asGang(newJobSet(c.jobs...))
			gangSet, err := schedulergang.New(js, plan(t, js), schedulergang.Volcano{})
			if err != nil {
				t.Fatal(err)
			}
			if got := (schedulergang.Volcano{}).Objects(gangSet, 0)[0].Spec["priorityClassName"]; got != c.want {
				t.Errorf("priorityClassName %v, want %v", got, c.want)
			}
		})
	}
}

// TestWhole distinguishes ReplicatedJobs whose pods are one gang from those of which each Job is one, and those in none.
func TestWhole(t *testing.T) {
	js := newJobSet(newJob("a", mode(whole)), newJob("b", annotated(whole)), newJob("c", mode(replicatedGang)), newJob("d"))
	for name, want := range map[string]bool{"a": true, "b": true, "c": false, "d": false, "unknown": false} {
		if got := schedulergang.IsSingleGang(js, name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
	for _, js := range []*jobsetapi.JobSet{asGang(newJobSet(newJob("d"))), annotate(newJobSet(newJob("d")), whole)} {
		if !schedulergang.IsSingleGang(js, "d") {
			t.Error("the JobSet is one gang")
		}
	}
}

// TestPodsInNoGang: pods in no gang get no fields.
func TestPodsInNoGang(t *testing.T) {
	js := newJobSet(newJob("a", mode(whole)), newJob("b"))
	for name, provider := range providers() {
		gangSet, err := schedulergang.New(js, plan(t, js), provider)
		if err != nil {
			t.Fatal(err)
		}
		for what, got := range map[string]schedulergang.PodFields{
			"off": gangSet.PodFields(provider, "b", 0), "unknown": gangSet.PodFields(provider, "c", 0), "too many": gangSet.PodFields(provider, "a", 1), "negative": gangSet.PodFields(provider, "a", -1),
		} {
			if diff := cmp.Diff(schedulergang.PodFields{}, got); diff != "" {
				t.Errorf("%s, %s: %s", name, what, diff)
			}
		}
	}
}
