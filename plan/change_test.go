package plan_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
)

const world = `
apiVersion: v1
kind: Namespace
metadata: {name: default, labels: {team: a}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a100, finalizers: [kueue.x-k8s.io/resource-in-use]}
spec: {nodeLabels: {gpu: a100}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: ml, uid: ml-uid, finalizers: [kueue.x-k8s.io/resource-in-use], annotations: {tranche.dev/stage-admission: Greedy}}
spec:
  namespaceSelector: {}
  queueingStrategy: BestEffortFIFO
  stopPolicy: None
  flavorFungibility: {whenCanBorrow: MayStopSearch, whenCanPreempt: TryNextFlavor}
  preemption: {reclaimWithinCohort: Never, withinClusterQueue: Never, borrowWithinCohort: {policy: Never}}
  resourceGroups:
  - coveredResources: [gpu]
    flavors:
    - name: a100
      resources: [{name: gpu, nominalQuota: "8"}]
    - name: any
      resources: [{name: gpu, nominalQuota: "2"}]
status: {pendingWorkloads: 3}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: small, uid: small-uid}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [gpu]
    flavors:
    - name: a100
      resources: [{name: gpu, nominalQuota: 4}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: default, uid: main-uid}
spec: {clusterQueue: ml}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: runs, namespace: default, uid: runs-uid, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {tranche.dev/started: "true"}}
spec:
  suspend: false
  replicatedJobs:
  - name: train
    replicas: 1
    template:
      metadata: {labels: {tranche.dev/hold: "true"}}
      spec:
        parallelism: 2
        completions: 2
        completionMode: Indexed
        template:
          spec:
            restartPolicy: OnFailure
            containers: [{name: main, image: x, resources: {requests: {gpu: 1}}}]
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {gpu: a100, zone: a}}
status: {allocatable: {gpu: "3", cpu: "8"}}
---
apiVersion: v1
kind: Node
metadata: {name: n2, labels: {gpu: a100, zone: b}}
status: {allocatable: {gpu: "9", cpu: "8"}}
---
apiVersion: v1
kind: Node
metadata: {name: n3, labels: {zone: c}}
status: {allocatable: {gpu: "1", cpu: "8"}}
`

func read(t *testing.T, text string) *snapshot.Snapshot {
	t.Helper()
	s, err := manifests(text)
	if err != nil {
		t.Fatal(err)
	}
	s.TakenAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return s
}

func manifests(text string) (*snapshot.Snapshot, error) {
	m := snapshot.NewManifests()
	return m.Snapshot(m.ReadStream("change.yaml", strings.NewReader(text)))
}

// lines describes the objects that a change has.
func lines(c *plan.Change) []string {
	var all []string
	for i := range c.Objects {
		o := &c.Objects[i]
		all = append(all, string(o.Action)+" "+o.String())
		for _, f := range o.Fields {
			if o.Action == plan.Update {
				line := "  " + f.Path + ": " + f.Before + " -> " + f.After
				if f.IsUnnamed {
					line += " (unnamed)"
				}
				all = append(all, line)
			}
		}
	}
	return all
}

func TestApply(t *testing.T) {
	const clusterQueue = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: ml, labels: {app: queues}}\nspec:\n  namespaceSelector: {}\n  resourceGroups:\n" +
		"  - coveredResources: [gpu]\n    flavors:\n"
	const quotas = "    - {name: a100, resources: [{name: gpu, nominalQuota: 8000m}]}\n    - {name: any, resources: [{name: gpu, nominalQuota: 2}]}\n"
	for name, c := range map[string]struct {
		manifests string
		prune     plan.Prune
		want      []string
	}{
		"equal but for defaults, labels and spelling": {
			manifests: strings.Replace(clusterQueue, "labels: {app: queues}", "annotations: {tranche.dev/stage-admission: Greedy}", 1) + quotas,
			want:      []string{"Unchanged ClusterQueue ml"},
		},
		"an annotation of users that is removed": {
			manifests: clusterQueue + quotas,
			want: []string{
				"Update ClusterQueue ml", "  metadata.annotations[tranche.dev/stage-admission]: Greedy ->  (unnamed)", "  metadata.labels.app:  -> queues",
			},
		},
		"quotas by the names of flavors, and their order": {
			manifests: strings.Replace(clusterQueue, "labels: {app: queues}", "annotations: {tranche.dev/stage-admission: Greedy}", 1) +
				"    - {name: any, resources: [{name: gpu, nominalQuota: 2}]}\n    - {name: a100, resources: [{name: gpu, nominalQuota: 4, borrowingLimit: 1}]}\n",
			want: []string{
				"Update ClusterQueue ml", "  spec.resourceGroups[0].flavors[a100].resources[gpu].borrowingLimit:  -> 1",
				"  spec.resourceGroups[0].flavors[a100].resources[gpu].nominalQuota: 8 -> 4", "  spec.resourceGroups[0].flavors (order): a100, any -> any, a100",
			},
		},
		"a new object, and one that is not applied": {
			manifests: "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: lab}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: default}\n" +
				"---\napiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: default}\n",
			want: []string{"Create Cohort lab"},
		},
		"deletions": {
			manifests: "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: any}\n",
			prune:     plan.Pruned,
			want: []string{
				"Unchanged ResourceFlavor any", "Delete ResourceFlavor a100", "Delete ClusterQueue ml", "Delete ClusterQueue small", "Delete LocalQueue default/main",
			},
		},
		"a JobSet as its user wrote it, with another size": {
			manifests: jobSetManifest("runs", "parallelism: 3\n        completions: 3"),
			want: []string{
				"Update JobSet default/runs", "  spec.replicatedJobs[train].template.spec.completions: 2 -> 3", "  spec.replicatedJobs[train].template.spec.parallelism: 2 -> 3",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := read(t, world)
			change, err := plan.Apply(s, read(t, c.manifests), c.prune)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, lines(change)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if diff := cmp.Diff(read(t, world), s); diff != "" {
				t.Errorf("the snapshot itself has changed: -before +after\n%s", diff)
			}
			again, err := plan.Apply(change.After(), read(t, c.manifests), plan.Kept)
			if err != nil || !again.IsEmpty() {
				t.Errorf("applied twice: %v, %v", lines(again), err)
			}
		})
	}
}

func jobSetManifest(name, size string) string {
	return "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: " + name + ", namespace: default, labels: {kueue.x-k8s.io/queue-name: main}}\n" +
		"spec:\n  replicatedJobs:\n  - name: train\n    template:\n      spec:\n        " + size + "\n        template:\n          spec:\n" +
		"            containers: [{name: main, image: x, resources: {requests: {gpu: 1}}}]\n"
}

// TestApplyMarksFieldsThatTheManifestDoesNotName: an apply resets the policy only if an earlier one has set it. Quotas of a list that it names are replaced.
func TestApplyMarksFieldsThatTheManifestDoesNotName(t *testing.T) {
	change, err := plan.Apply(read(t, strings.Replace(world, "withinClusterQueue: Never", "withinClusterQueue: LowerPriority", 1)), read(t, `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: ml, annotations: {tranche.dev/stage-admission: Greedy}}
spec:
  namespaceSelector: {}
  preemption: {reclaimWithinCohort: Any}
  resourceGroups:
  - coveredResources: [gpu]
    flavors:
    - {name: a100, resources: [{name: gpu, nominalQuota: 8}]}
`), plan.Kept)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Update ClusterQueue ml", "  spec.preemption.reclaimWithinCohort: Never -> Any", "  spec.preemption.withinClusterQueue: LowerPriority -> Never (unnamed)",
		"  spec.resourceGroups[0].flavors[any].name: any -> ", "  spec.resourceGroups[0].flavors[any].resources[gpu].name: gpu -> ",
		"  spec.resourceGroups[0].flavors[any].resources[gpu].nominalQuota: 2 -> ",
	}
	if diff := cmp.Diff(want, lines(change)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestApplyKeepsAnnotationsApart: a removed annotation is not named because the manifest has another one with a dot.
func TestApplyKeepsAnnotationsApart(t *testing.T) {
	change, err := plan.Apply(read(t, world), read(t, `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: ml, annotations: {example.com/owner: research}}
`), plan.Kept)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := lines(change), "  metadata.annotations[tranche.dev/stage-admission]: Greedy ->  (unnamed)"; !slices.Contains(got, want) {
		t.Errorf("got %q, want %q among them", got, want)
	}
}

// TestApplyRefuses gives manifests that the API server, the manager or the engine would refuse.
func TestApplyRefuses(t *testing.T) {
	const queue = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: ml}\nspec:\n"
	for want, text := range map[string]string{
		`field "spec.queuingStrategy"`: queue + "  queuingStrategy: StrictFIFO\n",
		`"spec"`:                       queue + "  cohortName: a\nspec:\n  cohortName: b\n",
		`ClusterQueue ml is given twice, in change.yaml`:                                                        queue + "  cohortName: a\n---\n" + queue + "  cohortName: a\n",
		`has apiVersion kueue.x-k8s.io/v1beta1: write it in kueue.x-k8s.io/v1beta2`:                             strings.Replace(queue, "v1beta2", "v1beta1", 1) + "  cohortName: a\n",
		`there is no kind ClusterQueues in kueue.x-k8s.io/v1beta2: correct it`:                                  strings.Replace(queue, "ClusterQueue", "ClusterQueues", 1) + "  cohortName: a\n",
		`LocalQueue main has no metadata.namespace: write it`:                                                   "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: main}\n",
		`there is no Namespace fresh: create it, or add it to the manifests`:                                    "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: main, namespace: fresh}\nspec: {clusterQueue: ml}\n",
		`spec.clusterQueue is immutable, and is other instead of ml: delete the LocalQueue and create it again`: "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: main, namespace: default}\nspec: {clusterQueue: other}\n",
		`the manifests have no objects`:                                                                         "# nothing\n",
		`JobSet default/runs: spec.replicatedJobs[train].template.spec.template.spec.containers[main].resources.requests.gpu is immutable, and is 2 instead of 1`: strings.Replace(jobSetManifest("runs", "parallelism: 2"), "gpu: 1", "gpu: 2", 1),
		`JobSet default/new: metadata.labels: the JobSet names no LocalQueue`:                                                                                     strings.Replace(jobSetManifest("new", "parallelism: 2"), "kueue.x-k8s.io/queue-name", "other", 1),
		`JobSet default/new: the WorkloadPriorityClass "high" that its label kueue.x-k8s.io/priority-class`:                                                       strings.Replace(jobSetManifest("new", "parallelism: 2"), "labels: {", "labels: {kueue.x-k8s.io/priority-class: high, ", 1),
		`JobSet default/new: spec.managedBy is "other"`:                                                                                                           jobSetManifest("new", "parallelism: 2") + "  managedBy: other\n",
		`ClusterQueue ml: spec.namespaceSelector: `:                                                                                                               queue + "  namespaceSelector: {matchExpressions: [{key: a, operator: Is}]}\n",
	} {
		t.Run(want, func(t *testing.T) {
			_, err := planOf(t, text)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want %s", err, want)
			}
		})
	}
}

func planOf(t *testing.T, text string) (*plan.Plan, error) {
	t.Helper()
	m, err := manifests(text)
	if err != nil {
		return nil, err
	}
	change, err := plan.Apply(read(t, world), m, plan.Kept)
	if err != nil {
		return nil, err
	}
	return plan.New(change, &simulator.Durations{}, time.Hour)
}

// TestDefaults compares the defaults that a change knows with those of the CustomResourceDefinitions.
func TestDefaults(t *testing.T) {
	known := map[string][]string{
		"cohorts":     {"spec.fairSharing.weight"},
		"localqueues": {"spec.fairSharing.weight", "spec.stopPolicy"},
		"clusterqueues": {
			"spec.fairSharing.weight", "spec.flavorFungibility", "spec.flavorFungibility.whenCanBorrow", "spec.flavorFungibility.whenCanPreempt", "spec.preemption",
			"spec.preemption.borrowWithinCohort", "spec.preemption.borrowWithinCohort.policy", "spec.preemption.reclaimWithinCohort",
			"spec.preemption.withinClusterQueue", "spec.queueingStrategy", "spec.stopPolicy",
		},
	}
	for _, resource := range []string{"cohorts", "localqueues", "clusterqueues", "resourceflavors", "admissionchecks", "workloadpriorityclasses"} {
		content, err := os.ReadFile(filepath.Join("..", "config", "crd", "kueue.x-k8s.io_"+resource+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensions.CustomResourceDefinition
		if err := yaml.Unmarshal(content, &crd); err != nil {
			t.Fatal(err)
		}
		var found []string
		walk(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, "", &found)
		slices.Sort(found)
		if diff := cmp.Diff(known[resource], found); diff != "" {
			t.Errorf("%s: defaults: -known +in the CustomResourceDefinition\n%s", resource, diff)
		}
	}
}

func walk(schema *apiextensions.JSONSchemaProps, path string, found *[]string) {
	for name := range schema.Properties {
		property := schema.Properties[name]
		at := strings.TrimPrefix(path+"."+name, ".")
		if at == "status" {
			continue
		}
		if property.Default != nil {
			*found = append(*found, at)
		}
		walk(&property, at, found)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		walk(schema.Items.Schema, path+"[]", found)
	}
}
