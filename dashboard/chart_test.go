package dashboard_test

import (
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/dashboard"
)

// While an evicted or restarted stage holds its quota, its pods are no longer ready, but the chart still shows that they ran.
func TestChartOfStageThatRan(t *testing.T) {
	for name, tc := range map[string]struct {
		recorded apis.StageTimes
		then     []metav1.Condition
		want     string
	}{
		"evicted": {
			recorded: apis.StageTimes{Counted: metav1.NewTime(at(40))}, then: []metav1.Condition{
				condition(kueue.WorkloadEvicted, metav1.ConditionTrue, "Preempted", 40), condition(kueue.WorkloadPodsReady, metav1.ConditionFalse, "WaitForStart", 45),
			},
			want: "waiting 0-5 idle 5-10 running 10-40 evicting 40-now",
		},
		"restarted": { // which removes the condition PodsReady
			recorded: apis.StageTimes{Counted: metav1.NewTime(at(40)), NotReadySince: new(metav1.NewTime(at(40)))}, want: "waiting 0-5 idle 5-10 running 10-40 idle 40-now",
		},
	} {
		t.Run(name, func(t *testing.T) {
			js := jobSet("team", "js", "train")
			tc.recorded.Name, tc.recorded.Admitted, tc.recorded.Ready = "train", metav1.NewTime(at(5)), new(metav1.NewTime(at(10)))
			timeline, err := json.Marshal(apis.Timeline{Stages: []apis.StageTimes{tc.recorded}})
			if err != nil {
				t.Fatal(err)
			}
			js.Annotations = map[string]string{apis.TimelineAnnotation: string(timeline)}
			w := stageWorkload(js, "train", append([]metav1.Condition{
				condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", 5),
				condition(kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", 5),
			}, tc.then...)...)
			answer := dashboard.New().JobSet(dashboard.Viewer{}, &dashboard.JobSetObjects{JobSet: js, Workloads: []*kueue.Workload{w}}, at(70))
			if got := chart(&answer.Stages[0]); got != " "+tc.want {
				t.Errorf("the chart shows%s, want %s", got, tc.want)
			}
		})
	}
}

// chart returns the spans of a stage, in seconds.
func chart(st *dashboard.StageAnswer) (text string) {
	for _, s := range st.Spans {
		to := "now"
		if s.To != nil {
			to = fmt.Sprint(s.To.Unix() - start.Unix())
		}
		text += fmt.Sprintf(" %s %d-%s", s.Kind, s.From.Unix()-start.Unix(), to)
	}
	return text
}
