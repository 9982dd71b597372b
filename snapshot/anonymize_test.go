package snapshot_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/test/constant"
)

// The time and the preemptor of a notice decide: only the names behind them are replaced.
func TestPseudonymsKeepNotices(t *testing.T) {
	const decides = "The pods end at 2026-01-02T15:04:05Z, to accommodate a workload (UID: 5a1f-77,"
	for message, want := range map[string]string{
		decides + " JobUID: 77c2) due to prioritization in the ClusterQueue; preemptor path: /secret; preemptee path: /secret": decides,
		"secret " + decides: "",
	} {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns-a"}}
		w.Status.Conditions = []metav1.Condition{{Type: apis.PreemptionPendingCondition, Status: metav1.ConditionTrue, Message: message}}
		s := &snapshot.Snapshot{Workloads: []*kueue.Workload{w}}
		got := read(t, write(t, s, snapshot.NewAnonymizer())).Workloads[0].Status.Conditions[0].Message
		if want != "" && got != want || strings.Contains(got, "secret") {
			t.Errorf("message %q, want %q", got, want)
		}
	}
}

// Compound values keep their form, so that the engine and the controllers read the same from them.
func TestPseudonymsInAnnotations(t *testing.T) {
	a := snapshot.NewAnonymizer()
	n := a.Name
	cases := plainPseudonyms(a)
	maps.Copy(cases, map[string]pseudonym{
		"gates":           {"kueue.x-k8s.io/admission-gated-by", "tranche.dev/stage,mine", "tranche.dev/stage," + n("mine")},
		"flavors":         {"tranche.dev/flavors", "train/nvidia.com/gpu=h100,train/cpu=small", n("train") + "/nvidia.com/gpu=" + n("h100") + "," + n("train") + "/cpu=" + n("small")},
		"succeeded Jobs":  {"tranche.dev/succeeded-jobs", "ps=0-3;worker=1,4", n("ps") + "=0-3;" + n("worker") + "=1,4"},
		"startup rules":   {"tranche.dev/startup-rules", "ps,worker=Succeeded;eval=Ready", n("ps") + "," + n("worker") + "=Succeeded;" + n("eval") + "=Ready"},
		"claim templates": {"tranche.dev/claim-templates", "gpus=uid-1", n("gpus") + "=uid-1"},
		"gang":            {"tranche.dev/pod-group", "koordinator.ring", "koordinator." + n("ring")},
		"admission":       {"tranche.dev/admission", "uid.1/workers", "uid.1/" + n("workers")},
		"groups":          {"gang.scheduling.koordinator.sh/groups", `["ns/a","ns/b"]`, `["` + n("ns") + "/" + n("a") + `","` + n("ns") + "/" + n("b") + `"]`},
		"stage":           {"tranche.dev/stage", "ps.worker", n("ps") + "." + n("worker")},
		"finished stages": {"tranche.dev/finished-stages", `{"attempt":1,"stages":["ps"]}`, `{"attempt":1,"stages":["` + n("ps") + `"]}`},
		"a policy":        {"tranche.dev/stage-admission", "Reserve", "Reserve"},
		"a number":        {"kueue.x-k8s.io/pod-group-total-count", "16", "16"},
		"a name":          {"kueue.x-k8s.io/pod-group-name", "ring", n("ring")},
		"the owner's UID": {"kueue.x-k8s.io/job-uid", "uid-1", "uid-1"},
		"a truth":         {"tranche.dev/hold", "true", "true"},
		"a duration":      {"tranche.dev/co-start-reserve-for", "1h30m", "1h30m"},
		"a minimum":       {"tranche.dev/minimum-runtime", "30m", "30m"},
		"a notice":        {"tranche.dev/preemption-notice", "2m", "2m"},
		"a checkpoint":    {"tranche.dev/checkpointed-at", "2026-01-01T00:00:00+01:00", "2026-01-01T00:00:00+01:00"},
		"a time":          {"tranche.dev/started", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"},
		"the JobSet":      {"tranche.dev/jobset", "fine-tune", n("fine-tune")},
		"node labels":     {"tranche.dev/flavor-node-labels", "example.com/pool,kubernetes.io/arch", n("example.com/pool") + ",kubernetes.io/arch"},
		"additions": {
			"tranche.dev/admission-additions", `{"labels":["example.com/pool"],"tolerations":[{"effect":"NoSchedule","key":"example.com/pool","operator":"Exists"}]}`,
			`{"labels":["` + n("example.com/pool") + `"],"tolerations":[{"effect":"NoSchedule","key":"` + n("example.com/pool") + `","operator":"Exists"}]}`,
		},
		"a timeline": {
			"tranche.dev/timeline", `{"stages":[{"held":{"nvidia.com/gpu":8},"name":"ps.worker"}]}`,
			`{"stages":[{"held":{"nvidia.com/gpu":8},"name":"` + n("ps") + "." + n("worker") + `"}]}`,
		},
		"a gang scheduler": {"tranche.dev/gang-provider", "Volcano", "Volcano"},
		"started gangs":    {"tranche.dev/started-together", "ns/a,ns/b", n("ns") + "/" + n("a") + "," + n("ns") + "/" + n("b")},
		"a message":        {"tranche.dev/gang-message", "waits for a", n("waits") + " " + n("for") + " " + n("a")},
	})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := &snapshot.Snapshot{Pods: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Annotations: map[string]string{c.key: c.value}}}}}
			if got := read(t, write(t, s, a)).Pods[0].Annotations[c.key]; got != c.want {
				t.Errorf("%s: %q became %q, want %q", c.key, c.value, got, c.want)
			}
		})
	}
	for name, key := range constant.Strings(t, "../apis") {
		isKey := strings.HasSuffix(name, "Label") || strings.HasSuffix(name, "Annotation") || strings.HasSuffix(name, "Key")
		if !isKey || key == apis.ExplanationAnnotation {
			continue // no object has that annotation
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(cases)), func(c pseudonym) bool { return c.key == key }) {
			t.Errorf("%s: no case says what becomes of the values of %s", name, key)
		}
	}
}

// A pseudonym is what an Anonymizer makes of the value of an annotation.
type pseudonym struct{ key, value, want string }

// plainPseudonyms are those of keys whose values are one word that stays, or one name that does not.
func plainPseudonyms(a *snapshot.Anonymizer) map[string]pseudonym {
	cases := map[string]pseudonym{}
	for key, words := range map[string][]string{
		apis.HoldLabel: {apis.HoldValue, apis.HoldQueued, apis.HoldUnqueued, apis.HoldAdopted}, apis.HeldAnnotation: {"true"}, apis.PausedAnnotation: {"true"},
		apis.AdoptedAnnotation: {"true"}, apis.SuspendedAnnotation: {"true"}, apis.UnnoticedAnnotation: {"true"}, apis.UninstalledAnnotation: {"true"},
		apis.ElasticJobAnnotation: {"true"}, apis.RequireQueueLabel: {"true"}, apis.TakeoverProbeLabel: {"true"}, apis.ConcurrentParentLabel: {"true"},
		apis.KueueManagedKey: {"true"}, apis.PodGroupMemberLabel: {apis.PodGroupMemberValue}, apis.KoordinatorTimeoutAnnotation: {"true"},
		apis.PodGroupFastAdmissionAnnotation: {"true"}, apis.PodGroupServingAnnotation: {"true"}, apis.RetriableInGroupAnnotation: {"false"},
		apis.CompletionsEqualAnnotation: {"true"},
		apis.SizeAnnotation:             {"4"}, apis.CompletionsAnnotation: {"4"}, apis.MinParallelismAnnotation: {"2"}, apis.StageIndexLabel: {"0"},
		apis.GrowthLabel: {"1"}, apis.AttemptAnnotation: {"0"}, apis.GroupStartAnnotation: {"600"}, apis.ReleaseAnnotation: {"1"}, apis.PartsAnnotation: {"2"},
		apis.RoundAnnotation: {"1"}, apis.AdmitTogetherCountAnnotation: {"2"}, apis.MaxExecTimeLabel: {"86400"}, apis.PriorityBoostAnnotation: {"7", "-5", "2147483647"},
		apis.EngineAnnotation: {apis.EngineTranche, apis.EngineKueue}, apis.StopPolicyAnnotation: {"None", "Hold"},
		apis.GangAnnotation: {"Off", "Gang", "ReplicatedGang"}, apis.GangGroupAnnotation: {"all", "0", "0x"},
		apis.ReserveAfterAnnotation: {"15m", apis.Never}, apis.IdleSinceAnnotation: {"2026-01-01T00:00:00Z"}, apis.DevicesAnnotation: {"nvidia.com/gpu"},
		apis.ExtraLabel: {"uid-1"}, apis.PlanUIDLabel: {"uid-1"}, apis.GangSchedulerAnnotation: {apis.VolcanoScheduler},
		apis.KoordinatorPrefix + "waiting-time": {"90s"}, apis.KoordinatorPrefix + "mode": {"NonStrict"}, apis.KoordinatorPrefix + "min-available": {"3"},
	} {
		for _, word := range words {
			cases[key+" "+word] = pseudonym{key, word, word}
		}
	}
	for _, key := range []string{
		apis.JobLabel, apis.OwnQueueLabel, apis.QueueLabel, apis.PriorityClassLabel, apis.PrebuiltWorkloadKey, apis.SliceNameAnnotation,
		apis.SliceReplacementAnnotation, apis.AllowedFlavorsAnnotation, apis.PodSetLabel, apis.ClusterQueueLabel, apis.LocalQueueLabel, apis.CoschedulingLabel,
		apis.KoordinatorLabel, apis.GroupNameAnnotation, apis.AdmitTogetherLabel, apis.GangSchedulerAnnotation, apis.KoordinatorPrefix + "name",
	} {
		cases[key+" of a name"] = pseudonym{key, "mine", a.Name("mine")}
	}
	return cases
}

// TestDurationsOfQueuesAreKept: pseudonyms change no annotation that is a duration.
func TestDurationsOfQueuesAreKept(t *testing.T) {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "q", UID: "q", Annotations: map[string]string{
		apis.CoStartAnnotation: "1m", apis.ReserveAfterAnnotation: "15m", apis.MinimumRuntimeAnnotation: "2h",
	}}}
	got := read(t, write(t, &snapshot.Snapshot{ClusterQueues: []*kueue.ClusterQueue{q}}, snapshot.NewAnonymizer())).ClusterQueues[0]
	if diff := cmp.Diff(q.Annotations, got.Annotations); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// The names of Jobs stay composed of those of their JobSets.
func TestPseudonymsOfComposedNames(t *testing.T) {
	a := snapshot.NewAnonymizer()
	labels := map[string]string{
		"jobset.sigs.k8s.io/jobset-name": "fine-tune", "jobset.sigs.k8s.io/replicatedjob-name": "worker", "jobset.sigs.k8s.io/job-index": "2",
		"batch.kubernetes.io/job-name": "fine-tune-worker-2",
	}
	s := &snapshot.Snapshot{
		Jobs: []*batchv1.Job{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "fine-tune-worker-2", Labels: labels}}},
		Pods: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "fine-tune-worker-2-abc", Labels: labels, OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "fine-tune-worker-2"}},
		}}},
		DeviceClasses: []*resourcev1.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "gpu.example.com"}}},
	}
	got := read(t, write(t, s, a))
	want := a.Name("fine-tune") + "-" + a.Name("worker") + "-2"
	if got.Jobs[0].Name != want || got.Pods[0].OwnerReferences[0].Name != want || got.Pods[0].Labels["batch.kubernetes.io/job-name"] != want {
		t.Errorf("Job %s, pod of %s with label %s, want %s", got.Jobs[0].Name, got.Pods[0].OwnerReferences[0].Name, got.Pods[0].Labels["batch.kubernetes.io/job-name"], want)
	}
	if name := got.DeviceClasses[0].Name; name != "gpu.example.com" {
		t.Errorf("DeviceClass %s, must keep its name", name)
	}
}
