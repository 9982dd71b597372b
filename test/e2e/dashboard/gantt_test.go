package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/sample"
)

// taken is when the snapshot with the charted JobSet was taken.
var taken = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// clockTime returns a time of the day of the snapshot.
func clockTime(hour, minute int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC))
}

// charted returns a JobSet that was submitted at 10:00: its first stage was evicted once and has finished, the second one is being evicted, and the third
// one has not begun.
func charted() []metav1.Object {
	js := newJobSet("team", "charted", stage{"fetch", "1", "", "", ""}, stage{"train", "1", "2", "", "fetch"}, stage{"tune", "1", "2", "", "train"})
	js.UID, js.Labels[apis.QueueLabel], js.CreationTimestamp = "charted", "q", clockTime(10, 0)
	timeline, err := json.Marshal(apis.Timeline{Stages: []apis.StageTimes{{
		Name: "fetch", Queued: clockTime(10, 30), Admitted: clockTime(10, 36), Ready: new(clockTime(10, 42)), Finished: new(clockTime(11, 0)),
		Earlier: []apis.HoldTimes{{Queued: clockTime(10, 0), Admitted: clockTime(10, 6), Ready: new(clockTime(10, 18)), End: clockTime(10, 24)}},
	}}})
	Expect(err).NotTo(HaveOccurred())
	js.Annotations = map[string]string{apis.TimelineAnnotation: string(timeline)}
	train := workloadAt(js, "train", map[string]metav1.Time{
		kueue.WorkloadQuotaReserved: clockTime(11, 12), kueue.WorkloadAdmitted: clockTime(11, 18), kueue.WorkloadPodsReady: clockTime(11, 30), kueue.WorkloadEvicted: clockTime(11, 48),
	})
	train.Status.Admission = &kueue.Admission{ClusterQueue: "q", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "train", Count: new(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "a100"}, ResourceUsage: sample.Amounts(string(gpu), "2"),
	}}}
	return append(queue("q", nil), js, workloadAt(js, "fetch", map[string]metav1.Time{kueue.WorkloadFinished: clockTime(11, 0)}), train)
}

// workloadAt returns the quota Workload of a stage with conditions that became true at some times.
func workloadAt(js *jobsetapi.JobSet, stage string, conditions map[string]metav1.Time) *kueue.Workload {
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: js.Namespace, Name: js.Name + "-" + stage, UID: types.UID(stage), CreationTimestamp: js.CreationTimestamp,
			Labels:          map[string]string{apis.JobSetLabel: js.Name, apis.StageLabel: stage},
			OwnerReferences: []metav1.OwnerReference{{Kind: "JobSet", Name: js.Name, UID: js.UID, Controller: new(true)}},
		},
		Spec: kueue.WorkloadSpec{QueueName: "q", PodSets: []kueue.PodSet{{Name: kueue.PodSetReference(stage), Count: 1}}},
	}
	for name, at := range conditions {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: name, LastTransitionTime: at})
	}
	return w
}

// A bar is a span of the chart: its kind, and its place from the left and its width in minutes.
type bar struct {
	Kind        string
	From, Lasts int
}

var _ = Describe("The chart of a JobSet", func() {
	It("has what each stage did, at the places of its times", func(ctx SpecContext) {
		const first, last = 10 * 60, 12 * 60
		open(ctx, serveAsOf(taken, charted()...), "jobsets/team/charted")
		see(ctx, "JobSet charted", "Stage 3/3 tune")
		var rows []struct {
			Name string
			Bars []struct {
				Kind, Label string
				Left, Width float64
			}
		}
		Expect(window.Run(ctx, `return [...document.querySelectorAll(".gantt-row")].map((row) => ({
			name: row.querySelector(".gantt-name").innerText,
			bars: [...row.querySelectorAll(".gantt-track i")].map((i) => {
				const track = i.parentElement.getBoundingClientRect(), at = i.getBoundingClientRect();
				return { kind: i.className, left: 100 * (at.left - track.left) / track.width, width: 100 * at.width / track.width, label: i.ariaLabel };
			}),
		}))`, &rows)).To(Succeed())
		want := map[string][]bar{
			"fetch": {
				{"waiting", 10 * 60, 6}, {"idle", 10*60 + 6, 12}, {"running", 10*60 + 18, 6}, // then it is evicted
				{"waiting", 10*60 + 30, 6}, {"idle", 10*60 + 36, 6}, {"running", 10*60 + 42, 18},
			},
			"train": {{"waiting", 11 * 60, 12}, {"reserved", 11*60 + 12, 6}, {"idle", 11*60 + 18, 12}, {"running", 11*60 + 30, 18}, {"evicting", 11*60 + 48, 12}},
			"tune":  {},
		}
		words := map[string]string{
			"waiting": "waiting for quota", "reserved": "reserved: waiting for AdmissionChecks", "idle": "idle: admitted, pods not all ready",
			"running": "running", "evicting": "evicted, pods terminating",
		}
		Expect(rows).To(HaveLen(len(want)))
		for _, row := range rows {
			Expect(row.Bars).To(HaveLen(len(want[row.Name])), row.Name)
			for i, b := range want[row.Name] {
				got, from, to := row.Bars[i], clockTime(0, b.From), clockTime(0, b.From+b.Lasts)
				until := "to " + zoneClock(ctx, to)
				if to.Time.Equal(taken) {
					until = "until now"
				}
				Expect(got.Kind).To(Equal("span-" + b.Kind))
				Expect(got.Left).To(BeNumerically("~", 100*float64(b.From-first)/(last-first), 0.1), "%s: %v", row.Name, b)
				Expect(got.Width).To(BeNumerically("~", 100*float64(b.Lasts)/(last-first), 0.1), "%s: %v", row.Name, b)
				Expect(got.Label).To(HavePrefix(fmt.Sprintf("%s: %s from %s %s, ", row.Name, words[b.Kind], zoneClock(ctx, from), until)))
			}
		}
	}, SpecTimeout(specTimeout))
})

// zoneClock formats a time as the chart does, in the time zone of the browser.
func zoneClock(ctx context.Context, t metav1.Time) (text string) {
	GinkgoHelper()
	Expect(window.Run(ctx, `return new Date("`+t.UTC().Format(time.RFC3339)+`").toLocaleString("en-GB",
		{ hour: "2-digit", minute: "2-digit", second: "2-digit", day: "2-digit", month: "short" })`, &text)).To(Succeed())
	return text
}
