package dashboard_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/dashboard"
)

// about returns an Event about an object, seen some seconds after the start.
func about(kind, name string, uid types.UID, seconds int) *corev1.Event {
	return &corev1.Event{
		Type: corev1.EventTypeNormal, Reason: "R", Message: fmt.Sprint(seconds), LastTimestamp: metav1.NewTime(at(seconds)), Count: 1,
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "team", Name: name, UID: uid},
	}
}

// The Events of a JobSet are those about itself, its quota Workloads and its Jobs, the latest first. Those about an earlier JobSet of its name are not.
func TestEvents(t *testing.T) {
	js := jobSet("team", "js", "train")
	js.CreationTimestamp = metav1.NewTime(at(10))
	events := dashboard.NewEvents(js, []types.NamespacedName{{Namespace: "team", Name: "jobset-js-train"}})
	warning := about("Job", "js-train-11", "", 30)
	warning.Type = corev1.EventTypeWarning
	series := about("Workload", "jobset-js-train", "", 0)
	series.LastTimestamp, series.Series = metav1.Time{}, &corev1.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(at(50))}
	series.EventTime = metav1.NewMicroTime(at(40))
	for _, event := range []*corev1.Event{
		about("JobSet", "js", js.UID, 20), about("JobSet", "js", "earlier", 21), warning, series,
		about("Job", "js-train-0", "", 9), about("Job", "js-train-x", "", 22), about("Job", "js-training-0", "", 23), about("Job", "js-eval-0", "", 24), about("Job", "js-train-", "", 25),
		about("Workload", "jobset-other", "", 26), about("Pod", "js-train-0", "", 27),
	} {
		events.Add(event)
	}
	names := func(eventType string) (names []string) {
		for _, row := range events.Answer(eventType, dashboard.Window{}).Items {
			names = append(names, row.Kind+" "+row.Name)
		}
		return names
	}
	if got, want := names(""), []string{"Workload jobset-js-train", "Job js-train-11", "JobSet js"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := names(corev1.EventTypeWarning), []string{"Job js-train-11"}; !slices.Equal(got, want) {
		t.Errorf("warnings: %q, want %q", got, want)
	}
	a := events.Answer("", dashboard.Window{Limit: 1})
	if first := a.Items[0]; len(a.Items) != 1 || a.Total != 3 || first.Count != 7 || !first.First.Equal(at(40)) || !first.Last.Equal(at(50)) {
		t.Errorf("the first of %d is %+v", a.Total, first)
	}
	if got := fmt.Sprint(a.Types); got != "map[Normal:2 Warning:1]" {
		t.Errorf("types %s", got)
	}
	if got := dashboard.LastSeen(&corev1.Event{EventTime: metav1.NewMicroTime(at(3))}); !got.Equal(start.Add(3 * time.Second)) {
		t.Errorf("an Event of the new API was seen at %s", got)
	}
}
