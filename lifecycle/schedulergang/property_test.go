package schedulergang_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// drawJobSet draws a JobSet that has a valid plan, with gangs at one of the levels.
func drawJobSet(t *rapid.T) *jobsetapi.JobSet {
	js := newJobSet()
	js.Name = rapid.StringMatching(`[a-z]([a-z0-9.-]{0,60}[a-z0-9])?`).Draw(t, "name")
	js.UID = types.UID(rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}`).Draw(t, "uid"))
	js.Status.Restarts = rapid.Int32Range(0, math.MaxInt32-1).Draw(t, "restarts")
	level := rapid.SampledFrom([]string{"JobSet", "ReplicatedJob"}).Draw(t, "level")
	if level == "JobSet" {
		asGang(js)
	}
	stem := rapid.StringMatching(`[a-z][a-z0-9-]{0,59}`).Draw(t, "stem")
	for i := range rapid.IntRange(1, 12).Draw(t, "jobs") {
		j := newJob(fmt.Sprintf("%s%d", stem, i), replicas(rapid.Int32Range(0, 4).Draw(t, "replicas")))
		if rapid.Bool().Draw(t, "parallel") {
			parallelism(rapid.Int32Range(0, 4).Draw(t, "parallelism"))(&j)
		}
		if rapid.Bool().Draw(t, "complete") {
			completions(rapid.Int32Range(0, 4).Draw(t, "completions"))(&j)
		}
		if i > 0 && rapid.IntRange(0, 5).Draw(t, "waits") == 0 {
			after(fmt.Sprintf("%s%d", stem, i-1), rapid.SampledFrom([]jobset.DependsOnStatus{jobset.DependencyReady, jobset.DependencyComplete}).Draw(t, "for"))(&j)
		}
		if level == "ReplicatedJob" {
			how := rapid.SampledFrom([]func(jobsetapi.GangMode) func(*job){mode, annotated}).Draw(t, "how")
			how(rapid.SampledFrom([]jobsetapi.GangMode{off, whole, replicatedGang}).Draw(t, "mode"))(&j)
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, j)
		js.Status.ReplicatedJobsStatus = append(js.Status.ReplicatedJobsStatus, jobset.ReplicatedJobStatus{
			Name: j.Name, JobRestarts: rapid.SliceOfN(rapid.Int32Range(0, 3), 0, 4).Draw(t, "jobRestarts"),
		})
	}
	return js
}

// modeOf returns the gangMode of a ReplicatedJob.
func modeOf(j *job) jobsetapi.GangMode {
	if j.GangConfig != nil {
		return j.GangConfig.GangMode
	}
	for _, m := range j.Template.Annotations {
		return jobsetapi.GangMode(m)
	}
	return off
}

// podsOf returns how many pods one Job of a ReplicatedJob has at once.
func podsOf(j *job) int32 {
	pods := int32(1)
	if p := j.Template.Spec.Parallelism; p != nil {
		pods = *p
	}
	if c := j.Template.Spec.Completions; c != nil {
		pods = min(pods, *c)
	}
	return pods
}

// isWrong reports by brute force whether a JobSet asks for a gang that no scheduler could place.
func isWrong(js *jobsetapi.JobSet, p *stageplan.Plan) bool {
	var all int32
	for i := range js.Spec.ReplicatedJobs {
		j := &js.Spec.ReplicatedJobs[i]
		all += j.Replicas * podsOf(j)
		if modeOf(j) != off && j.Replicas*podsOf(j) == 0 {
			return true
		}
	}
	return js.Spec.GangConfig != nil && (all == 0 || len(p.Stages) > 1)
}

// link returns how schedulers identify the gang of a pod.
func link(fields schedulergang.PodFields) string {
	switch {
	case fields.SchedulingGroup != nil:
		return *fields.SchedulingGroup.PodGroupName
	case fields.Annotations != nil:
		return fields.Annotations["scheduling.k8s.io/group-name"]
	}
	for _, name := range slices.Sorted(maps.Values(fields.Labels)) {
		return name
	}
	return ""
}

// members counts, for each gang, the pods of all Jobs that name it. Gangs whose Jobs have no pods are left out.
func members(js *jobsetapi.JobSet, gangSet *schedulergang.GangSet, provider schedulergang.Provider) map[string]int64 {
	count := map[string]int64{}
	for i := range js.Spec.ReplicatedJobs {
		j := &js.Spec.ReplicatedJobs[i]
		for k := range j.Replicas {
			if name := link(gangSet.PodFields(provider, j.Name, k)); name != "" && podsOf(j) > 0 {
				count[name] += int64(podsOf(j))
			}
		}
	}
	return count
}

// minimums returns, for each gang, the minimum of pods in its object, from the objects of all stages.
func minimums(t *rapid.T, p *stageplan.Plan, gangSet *schedulergang.GangSet, provider schedulergang.Provider) map[string]int64 {
	count, made := map[string]int64{}, map[string]schedulergang.Object{}
	for s := range p.Stages {
		for _, object := range provider.Objects(gangSet, s) {
			key := object.Kind + "/" + object.Name
			if before, twice := made[key]; twice && object.Kind != "Workload" || twice && !cmp.Equal(before, object) {
				t.Fatalf("%s is made twice: %v, %v", key, before, object)
			}
			made[key] = object
			if problems := validation.IsDNS1123Label(object.Name); len(problems) > 0 {
				t.Fatalf("name %q: %v", object.Name, problems)
			}
			if object.Kind == "PodGroup" {
				count[object.Name] = minimum(object.Spec)
			}
			entries, _ := object.Spec["podGroups"].([]any)
			for _, entry := range entries {
				entry := entry.(map[string]any)
				policy := entry["policy"].(map[string]any)["gang"].(map[string]any)
				count[object.Name+"/"+entry["name"].(string)] = policy["minCount"].(int64)
			}
		}
	}
	return count
}

func minimum(spec map[string]any) int64 {
	if n, ok := spec["minMember"].(int64); ok {
		return n
	}
	policy := spec["schedulingPolicy"].(map[string]any)["gang"].(map[string]any)
	return policy["minCount"].(int64)
}

// TestEveryPodCounts: the objects of the gangs ask for all pods that name them and no others, and every pod that should be in a gang
// names one. A JobSet is refused if there can be no such gang, and only then.
func TestEveryPodCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		js := drawJobSet(t)
		p, err := stageplan.New(&js.Spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(providers())) {
			provider := providers()[name]
			gangSet, err := schedulergang.New(js, p, provider)
			var problems stageplan.Problems
			if err != nil && !errors.As(err, &problems) {
				t.Fatalf("%s: %v", name, err)
			}
			if wrong := isWrong(js, p); wrong != (err != nil) {
				t.Fatalf("%s: error %v, want %t", name, err, wrong)
			}
			if err != nil {
				continue
			}
			pods := members(js, gangSet, provider)
			checkSum(t, js, gangSet, pods, name)
			if diff := cmp.Diff(entriesOf(t, pods), minimums(t, p, gangSet, provider)); diff != "" {
				t.Fatalf("%s: -pods +minimums\n%s", name, diff)
			}
		}
	})
}

// entriesOf removes the keys that distinguish gangs of the same entry of a gang Workload. All of them have as many pods.
func entriesOf(t *rapid.T, pods map[string]int64) map[string]int64 {
	entries := map[string]int64{}
	for name, n := range pods {
		if parts := strings.Split(name, "/"); len(parts) == 3 {
			name = parts[0] + "/" + parts[1]
		}
		if before, ok := entries[name]; ok && before != n {
			t.Fatalf("gangs of %s have %d and %d pods", name, before, n)
		}
		entries[name] = n
	}
	return entries
}

// checkSum: all pods of ReplicatedJobs in gangs are counted, and the groups count as many.
func checkSum(t *rapid.T, js *jobsetapi.JobSet, gangSet *schedulergang.GangSet, pods map[string]int64, provider string) {
	var want, got, groups int64
	for i := range js.Spec.ReplicatedJobs {
		if j := &js.Spec.ReplicatedJobs[i]; js.Spec.GangConfig != nil || modeOf(j) != off {
			want += int64(j.Replicas * podsOf(j))
		}
	}
	for _, n := range pods {
		got += n
	}
	for i := range gangSet.PodGroupTemplates {
		groups += int64(gangSet.PodGroupTemplates[i].Gangs()) * int64(gangSet.PodGroupTemplates[i].MinCount)
	}
	if got != want || groups != want {
		t.Fatalf("%s: %d pods name a gang, groups have %d, want %d", provider, got, groups, want)
	}
}

// TestEveryAttemptIsNew: no gang of an attempt is one of the attempt before, nor one of another JobSet with the same name.
func TestEveryAttemptIsNew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		js := drawJobSet(t)
		p, err := stageplan.New(&js.Spec)
		if err != nil {
			t.Fatal(err)
		}
		next, other := *js, *js
		next.Status.Restarts++
		other.UID = "another-jobset" // no UID is drawn with these letters
		for _, name := range slices.Sorted(maps.Keys(providers())) {
			provider := providers()[name]
			gangSet, err := schedulergang.New(js, p, provider)
			if err != nil {
				continue
			}
			before := members(js, gangSet, provider)
			for what, after := range map[string]*jobsetapi.JobSet{"next attempt": &next, "another JobSet": &other} {
				gangSet, err := schedulergang.New(after, p, provider)
				if err != nil {
					t.Fatal(err)
				}
				now := members(js, gangSet, provider)
				if len(now) != len(before) {
					t.Fatalf("%s, %s: %v, then %v", name, what, before, now)
				}
				for gang := range now {
					if _, same := before[gang]; same {
						t.Fatalf("%s, %s: gang %s is still there", name, what, gang)
					}
				}
			}
		}
	})
}

// TestSameAgain: the result depends only on the JobSet.
func TestSameAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		js := drawJobSet(t)
		p, err := stageplan.New(&js.Spec)
		if err != nil {
			t.Fatal(err)
		}
		for name, provider := range providers() {
			first, err := schedulergang.New(js, p, provider)
			if err != nil {
				continue
			}
			second, err := schedulergang.New(js, p, provider)
			if err != nil {
				t.Fatal(err)
			}
			for s := range p.Stages {
				if diff := cmp.Diff(provider.Objects(first, s), provider.Objects(second, s)); diff != "" {
					t.Fatalf("%s: %s", name, diff)
				}
			}
		}
	})
}
