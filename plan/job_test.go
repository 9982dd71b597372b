package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/simulator"
)

// queuedJobs are a Job that waits, one that runs on a flavor, one that runs with fewer pods than its user wrote, an elastic one that runs, and one
// that is not queued.
const queuedJobs = `
---
apiVersion: batch/v1
kind: Job
metadata: {name: waits, namespace: default, uid: waits-uid, labels: {kueue.x-k8s.io/queue-name: main, tranche.dev/hold: queued}}
spec: {parallelism: 2, completions: 2, completionMode: NonIndexed, suspend: true, template: TEMPLATE}
---
apiVersion: batch/v1
kind: Job
metadata: {name: runs, namespace: default, labels: {kueue.x-k8s.io/queue-name: main, tranche.dev/hold: queued}}
spec: {parallelism: 2, completions: 2, completionMode: NonIndexed, suspend: false, template: TEMPLATE}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: part
  namespace: default
  labels: {kueue.x-k8s.io/queue-name: main, tranche.dev/hold: queued}
  annotations: {kueue.x-k8s.io/job-min-parallelism: "2", tranche.dev/parallelism: "8"}
spec: {parallelism: 3, completions: 8, completionMode: NonIndexed, suspend: false, template: TEMPLATE}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: elastic
  namespace: default
  labels: {kueue.x-k8s.io/queue-name: main, tranche.dev/hold: queued}
  annotations: {kueue.x-k8s.io/elastic-job: "true"}
spec: {parallelism: 2, completions: 2, completionMode: Indexed, suspend: false, template: TEMPLATE}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: js-train-0
  namespace: default
  labels: {tranche.dev/hold: "true"}
  ownerReferences: [{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, name: js, uid: u, controller: true}]
spec: {parallelism: 2, completions: 2, suspend: true, template: TEMPLATE}
`

const jobTemplate = "{spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {gpu: 1}}}]}}"

func jobManifest(name, spec string) string {
	return "---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: " + name + ", namespace: default, labels: {kueue.x-k8s.io/queue-name: main}}\n" +
		"spec: {" + spec + ", template: " + jobTemplate + "}\n"
}

// TestApplyJobs applies manifests of Jobs as users write them: new ones, and existing ones, to which the API server, admission policies and the manager
// have added fields.
func TestApplyJobs(t *testing.T) {
	jobs := world + strings.ReplaceAll(queuedJobs, "TEMPLATE", jobTemplate)
	const ofCronJob = ", ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: nightly, uid: u, controller: true}]"
	for name, c := range map[string]struct {
		manifests     string
		want, ignored []string
	}{
		"a new one, created suspended": {jobManifest("new", "suspend: true"), []string{"Create Job default/new"}, nil},
		"those that exist, as their users wrote them": {
			jobManifest("waits", "parallelism: 2, completions: 2") + jobManifest("runs", "parallelism: 2, completions: 2, suspend: false") +
				jobManifest("part", "parallelism: 8, completions: 8") + jobManifest("elastic", "parallelism: 2, completions: 2, completionMode: Indexed"),
			[]string{"Unchanged Job default/elastic", "Unchanged Job default/part", "Unchanged Job default/runs", "Unchanged Job default/waits"},
			nil,
		},
		"another size of one that waits": {jobManifest("waits", "parallelism: 3, completions: 3"), []string{
			"Update Job default/waits", "  spec.completions: 2 -> 3", "  spec.parallelism: 2 -> 3",
		}, nil},
		"the suspension of one that runs": {jobManifest("runs", "parallelism: 2, completions: 2, suspend: true"), []string{
			"Update Job default/runs", "  metadata.annotations[tranche.dev/suspended]:  -> true", "  spec.suspend: false -> true",
		}, nil},
		"a growth": {jobManifest("elastic", "parallelism: 4, completions: 4, completionMode: Indexed"), []string{
			"Update Job default/elastic", "  metadata.annotations[tranche.dev/completions]:  -> 4", "  metadata.annotations[tranche.dev/parallelism]:  -> 4",
		}, nil},
		"a smaller size of an elastic one": {jobManifest("elastic", "parallelism: 1, completions: 1, completionMode: Indexed"), []string{
			"Update Job default/elastic", "  spec.completions: 2 -> 1", "  spec.parallelism: 2 -> 1",
		}, nil},
		"one without a queue": {
			strings.Replace(jobManifest("hook", "parallelism: 1"), "kueue.x-k8s.io/queue-name: main", "", 1), nil,
			[]string{"Job default/hook: metadata.labels: the Job names no LocalQueue, so it would start without quota: set the label kueue.x-k8s.io/queue-name"},
		},
		"one of a controller": {
			strings.Replace(jobManifest("nightly-1", "parallelism: 1"), "main}", "main}"+ofCronJob, 1), nil,
			[]string{"Job default/nightly-1: metadata.ownerReferences: CronJob nightly creates this Job: apply that object instead"},
		},
		"one of a JobSet": {
			jobManifest("js-train-0", "parallelism: 1"), nil,
			[]string{"Job default/js-train-0: metadata.name: a Job of this name exists that is not queued: give it another name"},
		},
		"what creates Jobs or pods, and a pod": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly}\n---\n" +
				"apiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: alone, namespace: default}\n", nil,
			[]string{
				"Service web (change.yaml): its kind does not decide admission",
				"Deployment web (change.yaml): the Jobs or pods that it creates are not simulated; if they have a queue name, they wait for quota, too",
				"CronJob nightly (change.yaml): the Jobs or pods that it creates are not simulated; if they have a queue name, they wait for quota, too",
				"Pod default/alone: single pods are not simulated; if it has a queue name, it waits for quota, too",
			},
		},
		"one without a queue, in a namespace with a default queue": {
			"apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: default, namespace: default}\nspec: {clusterQueue: ml}\n" +
				strings.Replace(jobManifest("hook", "parallelism: 1, completions: 1"), "labels: {kueue.x-k8s.io/queue-name: main}", "labels: {}", 1),
			[]string{"Create LocalQueue default/default", "Create Job default/hook"},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			change, err := plan.Apply(read(t, jobs), read(t, c.manifests), plan.Kept)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, lines(change)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if diff := cmp.Diff(c.ignored, change.Ignored); diff != "" {
				t.Errorf("ignored: -want +got\n%s", diff)
			}
			again, err := plan.Apply(change.After(), read(t, c.manifests), plan.Kept)
			if err != nil || !again.IsEmpty() {
				t.Errorf("applied twice: %v, %v", lines(again), err)
			}
		})
	}
}

// TestApplyRefusesJobs gives manifests of queued Jobs that the API server or the admission policies would refuse.
func TestApplyRefusesJobs(t *testing.T) {
	jobs := world + strings.ReplaceAll(queuedJobs, "TEMPLATE", jobTemplate)
	for want, manifest := range map[string]string{
		"Job default/runs: spec.parallelism, spec.completions: cannot be changed while the Job runs: suspend it first":                           jobManifest("runs", "parallelism: 3, completions: 3"),
		"Job default/part: spec.parallelism, spec.completions: cannot be changed while the Job runs":                                             jobManifest("part", "parallelism: 9, completions: 9"),
		"Job default/waits: spec.template.spec.containers[c].resources.requests.gpu is immutable, and is 2 instead of 1: submit it with another": strings.Replace(jobManifest("waits", "parallelism: 2, completions: 2"), "gpu: 1", "gpu: 2", 1),
		"Job default/waits: spec.completionMode is immutable, and is Indexed instead of NonIndexed":                                              jobManifest("waits", "parallelism: 2, completions: 2, completionMode: Indexed"),
	} {
		if _, err := plan.Apply(read(t, jobs), read(t, manifest), plan.Kept); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
	for want, manifest := range map[string]string{
		"Job default/waits exists in the snapshot":                                jobManifest("waits", "parallelism: 2, completions: 2"),
		"Job default/hook: metadata.labels: the Job names no LocalQueue":          strings.Replace(jobManifest("hook", "parallelism: 1"), "kueue.x-k8s.io/queue-name: main", "", 1),
		"Job default/js-train-0: metadata.name: a Job of this name exists that i": jobManifest("js-train-0", "parallelism: 1"),
	} {
		if _, err := plan.Submit(read(t, jobs), read(t, manifest)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("submitted: the error is %v, want %s", err, want)
		}
	}
}

// TestCreatedJobs completes Jobs as the API server and the admission policies do, whatever their spec.suspend.
func TestCreatedJobs(t *testing.T) {
	const queue = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: default, namespace: default}\nspec: {clusterQueue: ml}\n"
	for name, c := range map[string]struct{ manifest, queue string }{
		"created suspended":   {jobManifest("new", "suspend: true"), "main"},
		"created running":     {jobManifest("new", "suspend: false"), "main"},
		"in no queue by name": {strings.Replace(jobManifest("new", "backoffLimit: 0"), "kueue.x-k8s.io/queue-name: main", "", 1), "default"},
	} {
		change, err := plan.Apply(read(t, world), read(t, queue+c.manifest), plan.Kept)
		if err != nil {
			t.Fatal(err)
		}
		jobs := change.After().Jobs
		if len(jobs) != 1 {
			t.Fatalf("%s: %d Jobs, want 1", name, len(jobs))
		}
		job := jobs[0]
		if diff := cmp.Diff(map[string]string{apis.QueueLabel: c.queue, apis.HoldLabel: apis.HoldQueued}, job.Labels); diff != "" {
			t.Errorf("%s: labels: -want +got\n%s", name, diff)
		}
		if len(job.Annotations) > 0 || !*job.Spec.Suspend || *job.Spec.Parallelism != 1 || *job.Spec.Completions != 1 {
			t.Errorf("%s: the Job is %+v", name, job)
		}
	}
}

// TestPlanJobs predicts what follows if the size of a Job that waits changes.
func TestPlanJobs(t *testing.T) {
	const waiting = `
---
apiVersion: batch/v1
kind: Job
metadata: {name: waits, namespace: default, uid: waits-uid, labels: {kueue.x-k8s.io/queue-name: main, tranche.dev/hold: queued}}
spec: {parallelism: 12, completions: 12, completionMode: NonIndexed, suspend: true, template: TEMPLATE}
`
	for name, c := range map[string]struct {
		manifest string
		want     map[string]plan.Kind
	}{
		"smaller": {jobManifest("waits", "parallelism: 2, completions: 2"), map[string]plan.Kind{"waits": plan.NewlyAdmitted}},
		"same":    {jobManifest("waits", "parallelism: 12, completions: 12"), map[string]plan.Kind{}},
	} {
		jobs := world + strings.ReplaceAll(waiting, "TEMPLATE", jobTemplate)
		change, err := plan.Apply(read(t, jobs), read(t, c.manifest), plan.Kept)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.New(change, &simulator.Durations{}, 24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]plan.Kind{}
		for i := range p.Consequences {
			got[p.Consequences[i].Job] = p.Consequences[i].Kind
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}
