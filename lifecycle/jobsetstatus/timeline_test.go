package jobsetstatus_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// at returns the time that many seconds after the beginning.
func at(seconds int) time.Time { return time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC) }

// holds returns a quota Workload that holds 2 GPUs and some CPUs, with conditions such as "PodsReady=False 20", or with a reason
// "PodsReady=True 20 Recovered".
func holds(conditions ...string) *kueue.Workload {
	w := &kueue.Workload{Status: kueue.WorkloadStatus{Admission: &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{
		ResourceUsage: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2"), corev1.ResourceCPU: resource.MustParse("8"), "hugepages-2Mi": resource.MustParse("4")},
	}}}}}
	w.CreationTimestamp = metav1.NewTime(at(1))
	for _, text := range conditions {
		words := strings.FieldsFunc(text, func(r rune) bool { return r == '=' || r == ' ' })
		var seconds int
		if _, err := fmt.Sscan(words[2], &seconds); err != nil {
			panic(err)
		}
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
			Type: words[0], Status: metav1.ConditionStatus(words[1]), LastTransitionTime: metav1.NewTime(at(seconds)), Reason: strings.Join(words[3:], ""),
		})
	}
	return w
}

// summary returns "queued admitted ready finished | held idle", in seconds and GPU-seconds.
func summary(s apis.StageTimes) string {
	second := func(t *metav1.Time) string {
		if t == nil {
			return "-"
		}
		return fmt.Sprint(int(t.Sub(at(0)) / time.Second))
	}
	return fmt.Sprintf("%s %s %s %s | %d %d", second(&s.Queued), second(&s.Admitted), second(s.Ready), second(s.Finished),
		s.Held["nvidia.com/gpu"], s.Idle["nvidia.com/gpu"])
}

func TestCount(t *testing.T) {
	finished := []string{"QuotaReserved=True 10", "Admitted=True 15", "PodsReady=True 30", "Finished=True 110"}
	for name, c := range map[string]struct {
		workload   []string
		opens      [][]string
		end        []int    // each counted in turn
		then       []string // its later conditions, counted at 110
		want       string
		wantWaited int
	}{
		"finished": {workload: finished, end: []int{110}, want: "7 15 30 110 | 200 40"},
		"never ready": {
			workload: []string{"QuotaReserved=True 10", "Admitted=True 15"}, end: []int{60}, want: "7 15 - - | 100 100",
		},
		"a pod was lost": {
			workload: []string{"QuotaReserved=True 10", "Admitted=True 15", "PodsReady=False 50"}, end: []int{60}, want: "7 15 - - | 100 0",
		},
		"a pod was lost and has recovered": {
			workload: []string{"QuotaReserved=True 10", "Admitted=True 15", "PodsReady=True 50 Recovered", "Finished=True 60"}, end: []int{60}, want: "7 15 50 60 | 100 0",
		},
		"restarted with its quota": {
			workload: []string{"QuotaReserved=True 10", "Admitted=True 15", "PodsReady=True 30"}, end: []int{50}, then: []string{"PodsReady=True 70", "Finished=True 110"},
			want: "7 15 30 110 | 200 80",
		},
		"evicted, and its pods have terminated": {
			workload: []string{"QuotaReserved=True 10", "Admitted=True 15", "PodsReady=True 30"}, end: []int{100}, then: []string{"PodsReady=False 105", "Evicted=True 100"},
			want: "7 15 30 - | 200 40",
		},
		"a pod was lost, and its time counted": {
			workload: []string{"QuotaReserved=True 10", "Admitted=True 15", "PodsReady=True 30"}, end: []int{50},
			then: []string{"PodsReady=True 70 Recovered", "Finished=True 110"}, want: "7 15 30 110 | 200 40",
		},
		"what was ready before it was evicted the last time does not count": {
			workload: []string{"QuotaReserved=True 10", "Admitted=True 15", "PodsReady=False 5"}, end: []int{60}, want: "7 15 - - | 100 100",
		},
		"waits for a stage that it has opened": {
			workload: finished, opens: [][]string{{"QuotaReserved=True 40", "PodsReady=True 70"}}, end: []int{110}, want: "7 15 30 110 | 200 120", wantWaited: 40,
		},
		"waits for the last of two": {
			workload: finished, opens: [][]string{{"QuotaReserved=True 40", "PodsReady=True 70"}, {"QuotaReserved=False 40"}}, end: []int{110},
			want: "7 15 30 110 | 200 200", wantWaited: 80,
		},
		"a stage that it has opened was ready before": {
			workload: finished, opens: [][]string{{"QuotaReserved=True 5", "PodsReady=True 20"}}, end: []int{110}, want: "7 15 30 110 | 200 40",
		},
		"counted twice at the same time": {workload: finished, end: []int{110, 110}, want: "7 15 30 110 | 200 40"},
		"counted on the way": {
			workload: []string{"QuotaReserved=True 10", "Admitted=True 15", "PodsReady=True 30"}, end: []int{20, 50, 60}, want: "7 15 30 - | 100 40",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := jobsetstatus.Hold{Stage: "train", Workload: holds(c.workload...), Queued: at(7)}
			for _, opened := range c.opens {
				h.Opens = append(h.Opens, holds(opened...))
			}
			var timeline apis.Timeline
			var waited time.Duration
			for _, end := range c.end {
				h.End = at(end)
				waited += h.Count(&timeline, []string{"load", "train"})
			}
			if c.then != nil {
				h.Workload, h.End = holds(append(c.workload[:2], c.then...)...), at(110)
				waited += h.Count(&timeline, []string{"load", "train"})
			}
			if len(timeline.Stages) != 1 || summary(timeline.Stages[0]) != c.want || waited != time.Duration(c.wantWaited)*time.Second {
				t.Errorf("timeline = %+v, waited %s; want %s, waited %ds", timeline, waited, c.want, c.wantWaited)
			}
			if held := timeline.Stages[0].Held; len(held) != 1 {
				t.Errorf("held %v, want accelerators alone", held)
			}
		})
	}
}

// A stage that is admitted again adds to the quota that it has held before.
func TestCountOfSeveralHolds(t *testing.T) {
	var timeline apis.Timeline
	order := []string{"load", "train", "test"}
	for _, h := range []jobsetstatus.Hold{
		{Stage: "test", Workload: holds("QuotaReserved=True 0", "PodsReady=True 0"), End: at(1)},
		{Stage: "train", Workload: holds("QuotaReserved=True 10", "Admitted=True 10", "PodsReady=True 20"), Queued: at(5), End: at(60)},
		{Stage: "load", Workload: holds("QuotaReserved=True 0", "PodsReady=True 0"), End: at(1)},
		{Stage: "train", Workload: holds("QuotaReserved=True 100", "Admitted=True 100", "PodsReady=True 101", "Finished=True 200"), Queued: at(60), End: at(200)},
	} {
		h.Count(&timeline, order)
	}
	var names []string
	for _, s := range timeline.Stages {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff(order, names); diff != "" {
		t.Fatalf("order (-want +got):\n%s", diff)
	}
	if got, want := summary(timeline.Stages[1]), "60 100 101 200 | 300 22"; got != want {
		t.Errorf("train = %s, want %s", got, want)
	}
	earlier := []apis.HoldTimes{{Queued: metav1.NewTime(at(5)), Admitted: metav1.NewTime(at(10)), Ready: new(metav1.NewTime(at(20))), End: metav1.NewTime(at(60))}}
	if diff := cmp.Diff(earlier, timeline.Stages[1].Earlier); diff != "" {
		t.Errorf("earlier holds (-want +got):\n%s", diff)
	}
	for name, c := range map[string]struct {
		stage    string
		workload *kueue.Workload
		want     bool
	}{
		"counted":          {"train", holds("Finished=True 200"), true},
		"another end":      {"train", holds("Finished=True 201"), false},
		"not finished":     {"train", holds(), false},
		"never counted":    {"none", holds("Finished=True 200"), false},
		"counted too soon": {"test", holds("Finished=True 1"), false},
	} {
		if got := jobsetstatus.IsCounted(&timeline, c.stage, c.workload, order); got != c.want {
			t.Errorf("%s: IsCounted = %t, want %t", name, got, c.want)
		}
	}
}

func TestQueuedSince(t *testing.T) {
	for name, c := range map[string]struct {
		workload         []string
		succeeded, ready [][]string
		want             int
	}{
		"created":                        {nil, nil, nil, 1},
		"what had to succeed":            {[]string{"QuotaReserved=True 50"}, [][]string{{"Finished=True 20"}, {"Finished=True 30"}}, nil, 30},
		"what had to be ready":           {[]string{"QuotaReserved=True 50"}, nil, [][]string{{"QuotaReserved=True 1", "PodsReady=True 40"}}, 40},
		"requeued":                       {[]string{"QuotaReserved=True 50", "Requeued=True 45"}, [][]string{{"Finished=True 20"}}, nil, 45},
		"reserved before the other ends": {[]string{"QuotaReserved=True 50"}, [][]string{{"Finished=True 51"}}, nil, 50},
	} {
		t.Run(name, func(t *testing.T) {
			var succeeded, ready []*kueue.Workload
			for _, all := range c.succeeded {
				succeeded = append(succeeded, holds(all...))
			}
			for _, all := range c.ready {
				ready = append(ready, holds(all...))
			}
			if got := jobsetstatus.QueuedSince(holds(c.workload...), succeeded, ready); !got.Equal(at(c.want)) {
				t.Errorf("queued since %s, want %s", got, at(c.want))
			}
		})
	}
}

// Only the last holds before the current one are listed, and a hold that is counted several times is one hold.
func TestEarlierHolds(t *testing.T) {
	var timeline apis.Timeline
	for hold := range 10 {
		start := 100 * hold
		w := holds(fmt.Sprintf("QuotaReserved=True %d", start))
		h := jobsetstatus.Hold{Stage: "train", Workload: w, Queued: at(start), End: at(start + 10)}
		h.Count(&timeline, []string{"train"})
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(start + 20)),
		})
		for _, end := range []int{30, 30, 50} {
			h.End = at(start + end)
			h.Count(&timeline, []string{"train"})
		}
	}
	var got []string
	for _, e := range timeline.Stages[0].Earlier {
		got = append(got, fmt.Sprintf("%d-%d", int(e.Admitted.Sub(at(0)).Seconds()), int(e.End.Sub(at(0)).Seconds())))
	}
	if diff := cmp.Diff([]string{"820-850", "720-750", "620-650", "520-550", "420-450"}, got); diff != "" {
		t.Errorf("earlier holds (-want +got):\n%s", diff)
	}
}

// A timeline that is too long loses its earlier holds before it loses stages.
func TestEarlierHoldsAreOmittedFirst(t *testing.T) {
	timeline := apis.Timeline{Stages: make([]apis.StageTimes, 300)}
	for i := range timeline.Stages {
		timeline.Stages[i] = apis.StageTimes{Name: fmt.Sprint("stage-", i), Earlier: make([]apis.HoldTimes, apis.MaxEarlierHolds)}
	}
	value, err := jobsetstatus.RenderTimeline(timeline)
	if err != nil || len(value) > 64<<10 {
		t.Fatalf("%d bytes, %v; want at most 64 Ki", len(value), err)
	}
	read := jobsetstatus.TimelineOf(&jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apis.TimelineAnnotation: value}}})
	if len(read.Stages) != 300 || read.Omitted != 0 || read.Stages[299].Earlier != nil || timeline.Stages[0].Earlier == nil {
		t.Errorf("read %d stages, %d omitted, want all 300 without earlier holds, and the argument as it was", len(read.Stages), read.Omitted)
	}
}

// The API server would reject an annotation that is too long, and with it all other writes of a reconcile.
func TestTimelineIsBounded(t *testing.T) {
	var timeline apis.Timeline
	var order []string
	for i := range 1000 {
		order = append(order, fmt.Sprintf("%s-%d", strings.Repeat("x", 58), i))
		h := jobsetstatus.Hold{Stage: order[i], Workload: holds("QuotaReserved=True 10", "PodsReady=True 20", "Finished=True 60"), End: at(60)}
		h.Count(&timeline, order)
	}
	value, err := jobsetstatus.RenderTimeline(timeline)
	if err != nil || len(value) > 64<<10 || len(value) < 50<<10 {
		t.Fatalf("%d bytes, %v; want about 64 Ki", len(value), err)
	}
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apis.TimelineAnnotation: value}}}
	read := jobsetstatus.TimelineOf(js)
	if read.Omitted+len(read.Stages) != 1000 || read.Stages[len(read.Stages)-1].Name != order[999] {
		t.Errorf("read %d stages and %d omitted, want 1000 together and the last", len(read.Stages), read.Omitted)
	}
	again, err := jobsetstatus.RenderTimeline(read)
	if err != nil || again != value {
		t.Errorf("rendered again it differs, %v", err)
	}
	// An omitted stage stays out, whatever its state, and counts as counted; a stage with an entry does not.
	for i, want := range map[int]bool{0: true, read.Omitted - 1: true, read.Omitted: false, 999: false} {
		w := holds("QuotaReserved=True 70", "PodsReady=True 80", "Finished=True 90")
		if got := jobsetstatus.IsCounted(&read, order[i], w, order); got != want {
			t.Errorf("stage %d of which %d are omitted: IsCounted = %t, want %t", i, read.Omitted, got, want)
		}
		stages := len(read.Stages)
		h := jobsetstatus.Hold{Stage: order[i], Workload: w, End: at(90)}
		if h.Count(&read, order); len(read.Stages) != stages {
			t.Errorf("stage %d is back", i)
		}
	}
	js.Annotations[apis.TimelineAnnotation] = "{"
	if read := jobsetstatus.TimelineOf(js); len(read.Stages) != 0 {
		t.Errorf("read %+v from nonsense", read)
	}
}

// The quota that a growth has held counts once for its stage, however often the stage is counted: when the growth is deleted, and when the
// stage ends.
func TestCountOfGrowths(t *testing.T) {
	var timeline apis.Timeline
	order := []string{"train"}
	stage := []string{"QuotaReserved=True 0", "Admitted=True 0", "PodsReady=True 0"}
	first := holds("QuotaReserved=True 20", "PodsReady=True 30")
	second := holds("QuotaReserved=True 70", "PodsReady=False 70")
	for _, h := range []jobsetstatus.Hold{
		{Stage: "train", Workload: holds(stage...), Growths: []*kueue.Workload{first}, End: at(60)},
		{Stage: "train", Workload: holds(stage...), Growths: []*kueue.Workload{first}, End: at(60)},
		{Stage: "train", Workload: holds(stage...), Growths: []*kueue.Workload{second}, End: at(80)},
		{Stage: "train", Workload: holds(append(stage, "Finished=True 100")...), End: at(100)},
	} {
		h.Count(&timeline, order)
	}
	// 100 s of the stage, 40 s and 10 s of its growths, with 2 GPUs each; the first growth was idle for 10 s, the second for all of its
	// time.
	if got, want := timeline.Stages[0].Held["nvidia.com/gpu"], int64(2*(100+40+10)); got != want {
		t.Errorf("held %d, want %d", got, want)
	}
	if got, want := timeline.Stages[0].Idle["nvidia.com/gpu"], int64(2*(10+10)); got != want {
		t.Errorf("idle %d, want %d", got, want)
	}
}
