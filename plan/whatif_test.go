package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
)

func TestQuotas(t *testing.T) {
	var quotas []plan.Quota
	for _, text := range []string{"ml/a100/gpu=10", "small/a100/gpu=2", "ml/any/gpu=0"} {
		quota, err := plan.ParseQuota(text)
		if err != nil {
			t.Fatal(err)
		}
		quotas = append(quotas, quota)
	}
	change, err := plan.Quotas(read(t, world), quotas)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Update ClusterQueue ml", "  spec.resourceGroups[0].flavors[a100].resources[gpu].nominalQuota: 8 -> 10",
		"  spec.resourceGroups[0].flavors[any].resources[gpu].nominalQuota: 2 -> 0",
		"Update ClusterQueue small", "  spec.resourceGroups[0].flavors[a100].resources[gpu].nominalQuota: 4 -> 2",
	}
	if diff := cmp.Diff(want, lines(change)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestQuotasRefuse(t *testing.T) {
	for text, want := range map[string]string{
		"ml=4":               "write CLUSTERQUEUE/FLAVOR/RESOURCE=AMOUNT",
		"ml/a100/gpu":        "write CLUSTERQUEUE/FLAVOR/RESOURCE=AMOUNT",
		"ml/a100/gpu=many":   `the amount "many"`,
		"ml/a100/gpu=-1":     "the amount is negative",
		"other/a100/gpu=1":   `ClusterQueue "other" does not exist in the snapshot`,
		"ml/h100/gpu=1":      `ClusterQueue "ml" has no quota of h100/gpu: it has a100/gpu, any/gpu`,
		"ml/a100/nvidia/x=1": `has no quota of a100/nvidia/x`,
	} {
		quota, err := plan.ParseQuota(text)
		if err == nil {
			_, err = plan.Quotas(read(t, world), []plan.Quota{quota})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %s", text, err, want)
		}
	}
}

// TestLoseManyBytes subtracts more than 8 Pi of a resource, which exceeds 64 bits in thousandths.
func TestLoseManyBytes(t *testing.T) {
	for name, c := range map[string]struct {
		quotas []string
		lost   string
		want   []string
	}{
		"a part":           {[]string{"40Pi", "20Pi"}, "12Pi", []string{"32Pi", "16Pi"}},
		"all":              {[]string{"40Pi", "20Pi"}, "4Ei", []string{"0", "0"}},
		"as much":          {[]string{"7Ei"}, "7Ei", []string{"0"}},
		"with thousandths": {[]string{"9Pi", "1500m"}, "9Pi", []string{"1500m", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &snapshot.Snapshot{TakenAt: time.Now()}
			s.ResourceFlavors = append(s.ResourceFlavors, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
			for i, quota := range c.quotas {
				s.ClusterQueues = append(s.ClusterQueues, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("q", i)}, Spec: kueue.ClusterQueueSpec{
					ResourceGroups: []kueue.ResourceGroup{{
						CoveredResources: []corev1.ResourceName{"memory"},
						Flavors:          []kueue.FlavorQuotas{{Name: "default", Resources: []kueue.ResourceQuota{{Name: "memory", NominalQuota: resource.MustParse(quota)}}}},
					}},
				}})
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}}
			node.Status.Allocatable = corev1.ResourceList{"memory": resource.MustParse(c.lost)}
			s.Nodes = append(s.Nodes, node)
			change, err := plan.LoseNodes(s, labels.Everything())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, q := range change.After().ClusterQueues {
				got = append(got, q.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota.String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestLoseNodes subtracts nodes from the flavor whose labels they have, in proportion to the quotas.
func TestLoseNodes(t *testing.T) {
	for selector, want := range map[string][]string{
		"zone=a": {
			"Update ClusterQueue ml", "  spec.resourceGroups[0].flavors[a100].resources[gpu].nominalQuota: 8 -> 6",
			"Update ClusterQueue small", "  spec.resourceGroups[0].flavors[a100].resources[gpu].nominalQuota: 4 -> 3", "Delete Node n1",
		},
		"gpu=a100": {
			"Update ClusterQueue ml", "  spec.resourceGroups[0].flavors[a100].resources[gpu].nominalQuota: 8 -> 0",
			"Update ClusterQueue small", "  spec.resourceGroups[0].flavors[a100].resources[gpu].nominalQuota: 4 -> 0", "Delete Node n1", "Delete Node n2",
		},
		"zone=c": {"Update ClusterQueue ml", "  spec.resourceGroups[0].flavors[any].resources[gpu].nominalQuota: 2 -> 1", "Delete Node n3"},
	} {
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		change, err := plan.LoseNodes(read(t, world), parsed)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, lines(change)); diff != "" {
			t.Errorf("%s: -want +got\n%s", selector, diff)
		}
	}
	none, _ := labels.Parse("zone=z")
	if _, err := plan.LoseNodes(read(t, world), none); err == nil || !strings.Contains(err.Error(), `match "zone=z": it has 3 nodes`) {
		t.Errorf("the error is %v, want one about the selector", err)
	}
}

// TestLostNodesEvict evicts what runs on lost nodes, and lets it start again where quota is left.
func TestLostNodesEvict(t *testing.T) {
	const running = `
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: gang, namespace: default, uid: gang-uid, creationTimestamp: "2025-12-31T23:00:00Z"}
spec:
  queueName: main
  maximumExecutionTimeSeconds: 7200
  podSets: [{name: main, count: 2, template: {spec: {containers: [{name: c, resources: {requests: {gpu: 1}}}]}}}]
status:
  admission:
    clusterQueue: ml
    podSetAssignments: [{name: main, count: 2, flavors: {gpu: a100}, resourceUsage: {gpu: 2}}]
  conditions:
  - {type: QuotaReserved, status: "True", reason: QuotaReserved, lastTransitionTime: "2025-12-31T23:00:00Z"}
  - {type: Admitted, status: "True", reason: Admitted, lastTransitionTime: "2025-12-31T23:00:00Z"}
---
apiVersion: v1
kind: Pod
metadata: {name: gang-0, namespace: default, labels: {tranche.dev/pod-group-member: "true"}, annotations: {tranche.dev/admission: gang-uid.0/main}}
spec: {nodeName: n1}
status: {phase: Running}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata:
  name: job
  namespace: default
  uid: job-workload-uid
  creationTimestamp: "2025-12-31T23:30:00Z"
  labels: {tranche.dev/job: job, kueue.x-k8s.io/job-uid: job-uid}
spec:
  queueName: main
  podSets: [{name: main, count: 1, template: {spec: {containers: [{name: c, resources: {requests: {gpu: 1}}}]}}}]
status:
  admission:
    clusterQueue: ml
    podSetAssignments: [{name: main, count: 1, flavors: {gpu: a100}, resourceUsage: {gpu: 1}}]
  conditions:
  - {type: QuotaReserved, status: "True", reason: QuotaReserved, lastTransitionTime: "2025-12-31T23:30:00Z"}
  - {type: Admitted, status: "True", reason: Admitted, lastTransitionTime: "2025-12-31T23:30:00Z"}
---
apiVersion: v1
kind: Pod
metadata:
  name: job-0
  namespace: default
  labels: {batch.kubernetes.io/controller-uid: job-uid}
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: job, uid: job-uid, controller: true}]
spec: {nodeName: n1}
status: {phase: Running}
`
	zone, _ := labels.Parse("zone=a")
	change, err := plan.LoseNodes(read(t, world+running), zone)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(change, &simulator.Durations{}, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Consequences) != 2 || p.Consequences[1].Kind != plan.Evicted || p.Consequences[1].Workload != "job" {
		t.Fatalf("the consequences are %+v, want two evictions", p.Consequences)
	}
	c := &p.Consequences[0]
	if c.Kind != plan.Evicted || c.Workload != "gang" || c.Reason != "NodeFailures" || c.Again == nil || c.Lost.Seconds != 3600 || c.Lost.AcceleratorSeconds["gpu"] != 7200 {
		t.Errorf("the consequence is %+v, lost %+v", c, c.Lost)
	}
	if p.Severity() != plan.Harms {
		t.Errorf("the severity is %d, want %d", p.Severity(), plan.Harms)
	}
}

// TestSubmit predicts the start of a JobSet that does not exist, and for whom it is in the way.
func TestSubmit(t *testing.T) {
	submitted := func(text string) (*plan.Plan, error) {
		change, err := plan.Submit(read(t, world), read(t, text))
		if err != nil {
			return nil, err
		}
		return plan.New(change, &simulator.Durations{}, 24*time.Hour)
	}
	for name, c := range map[string]struct {
		manifest string
		want     plan.Kind
	}{
		"fits":      {jobSetManifest("new", "parallelism: 2"), plan.NewlyAdmitted},
		"too large": {jobSetManifest("new", "parallelism: 20\n        completions: 20"), plan.NeverFits},
		"waits":     {jobSetManifest("new", "parallelism: 8\n        completions: 8"), plan.Waiting},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := submitted(c.manifest)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Consequences) != 1 || p.Consequences[0].Kind != c.want || p.Consequences[0].JobSet != "new" {
				t.Errorf("the consequences are %+v, want %s of JobSet new", p.Consequences, c.want)
			}
		})
	}
	for want, text := range map[string]string{
		"JobSet default/runs exists in the snapshot":                                      jobSetManifest("runs", "parallelism: 2"),
		"the start of single pods, and of what CronJobs, Deployments and the like create": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n",
		"the manifests have no JobSet":                                                    "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: lab}\n",
	} {
		if _, err := submitted(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}

// TestSubmitJob predicts the start of a Job that does not exist, with as few pods as it may be admitted with.
func TestSubmitJob(t *testing.T) {
	const manifest = `
apiVersion: batch/v1
kind: Job
metadata:
  name: new
  namespace: default
  labels: {kueue.x-k8s.io/queue-name: main}
  annotations: ANNOTATIONS
spec:
  parallelism: PODS
  completions: PODS
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {gpu: 1}}}]}}
`
	for name, c := range map[string]struct {
		pods, annotations string
		want              plan.Kind
	}{
		"fits":         {"2", "{}", plan.NewlyAdmitted},
		"too large":    {"20", "{}", plan.NeverFits},
		"fits in part": {"20", "{kueue.x-k8s.io/job-min-parallelism: '2'}", plan.NewlyAdmitted},
		"waits":        {"8", "{}", plan.Waiting},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.NewReplacer("PODS", c.pods, "ANNOTATIONS", c.annotations).Replace(manifest)
			change, err := plan.Submit(read(t, world), read(t, text))
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.New(change, &simulator.Durations{}, 24*time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Consequences) != 1 || p.Consequences[0].Kind != c.want || !strings.HasPrefix(p.Consequences[0].Workload, "job-new-") {
				t.Errorf("the consequences are %+v, want %s of Job new", p.Consequences, c.want)
			}
		})
	}
}
