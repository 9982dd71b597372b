package stagesafety

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/engine"
)

func ours() map[kueue.AdmissionCheckReference]bool {
	return map[kueue.AdmissionCheckReference]bool{checkName: true}
}

// pair returns an engine with two JobSets of which only one may begin, and their first reservations.
func pair(t *testing.T) (judge, *kueue.Workload, *kueue.Workload) {
	t.Helper()
	d := newDirect(t)
	first, second := launcher(d.submit(t, "first")), launcher(d.submit(t, "second"))
	return judge{runner: d}, first, second
}

func (j judge) wantSafe(t *testing.T, workload *kueue.Workload) {
	t.Helper()
	if answer := j.judged(t, workload); !answer.IsSafe || answer.Message != "" {
		t.Errorf("%s is judged %+v, want safe", workload.Name, answer)
	}
}

func (j judge) wantUnsafe(t *testing.T, workload *kueue.Workload) {
	t.Helper()
	if answer := j.judged(t, workload); answer.IsSafe || answer.Message == "" {
		t.Errorf("%s is judged %+v, want unsafe", workload.Name, answer)
	}
}

func (j judge) judged(t *testing.T, workload *kueue.Workload) admission.Answer {
	t.Helper()
	answer, ok, err := j.answer(t.Context(), workload, ours())
	if err != nil || !ok {
		t.Errorf("%s is judged: %t, %v", workload.Name, ok, err)
	}
	return answer
}

func TestPendingChecks(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*kueue.Workload)
		want   []string
	}{
		"reserved": {func(*kueue.Workload) {}, []string{checkName}},
		"two of three are pending": {func(w *kueue.Workload) {
			w.Status.AdmissionChecks = append(w.Status.AdmissionChecks,
				kueue.AdmissionCheckState{Name: "done", State: kueue.CheckStateReady}, kueue.AdmissionCheckState{Name: "other", State: kueue.CheckStatePending})
		}, []string{checkName, "other"}},
		"answered":          {func(w *kueue.Workload) { w.Status.AdmissionChecks[0].State = kueue.CheckStateRetry }, nil},
		"rejected":          {func(w *kueue.Workload) { w.Status.AdmissionChecks[0].State = kueue.CheckStateRejected }, nil},
		"no admission":      {func(w *kueue.Workload) { w.Status.Admission = nil }, nil},
		"not reserved":      {func(w *kueue.Workload) { w.Status.Conditions[0].Status = metav1.ConditionFalse }, nil},
		"evicted":           {func(w *kueue.Workload) { setEvicted(w, metav1.ConditionTrue) }, nil},
		"no longer evicted": {func(w *kueue.Workload) { setEvicted(w, metav1.ConditionFalse) }, []string{checkName}},
		"being deleted":     {func(w *kueue.Workload) { w.DeletionTimestamp = new(metav1.Now()) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, workload, _ := pair(t)
			tt.change(workload)
			if got := pendingChecks(workload); !cmp.Equal(got, tt.want) || isPending(workload) != (len(tt.want) > 0) {
				t.Errorf("pending are %v, want %v", got, tt.want)
			}
		})
	}
	if got := pendingChecks(&kueue.AdmissionCheck{}); got != nil {
		t.Errorf("an object of another kind waits for %v", got)
	}
}

func setEvicted(w *kueue.Workload, status metav1.ConditionStatus) {
	w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: status})
}

func TestAnswered(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	earlier := metav1.NewTime(now.Add(-time.Hour))
	other := kueue.AdmissionCheckState{Name: "other", State: kueue.CheckStatePending, Message: "waits", LastTransitionTime: earlier}
	for name, tt := range map[string]struct {
		answer admission.Answer
		want   kueue.AdmissionCheckState
	}{
		"safe":   {admission.Answer{IsSafe: true}, kueue.AdmissionCheckState{Name: checkName, State: kueue.CheckStateReady, Message: "All JobSets that hold quota can finish"}},
		"unsafe": {admission.Answer{Message: "why"}, kueue.AdmissionCheckState{Name: checkName, State: kueue.CheckStateRetry, Message: "why"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, before, _ := pair(t)
			before.Status.AdmissionChecks = append(before.Status.AdmissionChecks, other)
			want := before.DeepCopy()
			tt.want.LastTransitionTime = metav1.NewTime(now)
			want.Status.AdmissionChecks[0] = tt.want
			untouched := before.DeepCopy()
			if diff := cmp.Diff(want, answered(before, ours(), tt.answer, now)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(untouched, before); diff != "" {
				t.Errorf("the object in the cache is changed:\n%s", diff)
			}
		})
	}
}

func TestActivated(t *testing.T) {
	if _, changed := activated(newCheck("another")); changed {
		t.Error("the AdmissionCheck of another controller is activated")
	}
	check := newCheck(apis.StageSafetyController)
	after, changed := activated(check)
	want := metav1.Condition{
		Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", ObservedGeneration: 3, Message: "Tranche judges the reservations of stages",
	}
	if len(after.Status.Conditions) != 1 || !changed {
		t.Fatalf("the conditions are %v, changed: %t", after.Status.Conditions, changed)
	}
	got := after.Status.Conditions[0]
	got.LastTransitionTime = metav1.Time{}
	if diff := cmp.Diff(want, got); diff != "" || len(check.Status.Conditions) > 0 {
		t.Errorf("the condition (-want +got):\n%s\nthe object in the cache has %v", diff, check.Status.Conditions)
	}
	if _, changed := activated(after); changed {
		t.Error("an active AdmissionCheck is written again")
	}
	after.Generation++
	if _, changed := activated(after); !changed {
		t.Error("the condition keeps the generation before a change of the spec")
	}
}

// TestJudgeOneAfterTheOther has two reservations of which only one is safe, until the answer for it is withdrawn.
func TestJudgeOneAfterTheOther(t *testing.T) {
	j, first, second := pair(t)
	j.wantSafe(t, first)
	j.wantUnsafe(t, second)
	j.wantSafe(t, first)
	if err := j.retract(t.Context(), first, first.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	j.wantSafe(t, second)
	j.wantUnsafe(t, first)
}

// TestRetractAfterTheWrite keeps an answer that was written although its request failed.
func TestRetractAfterTheWrite(t *testing.T) {
	j, first, second := pair(t)
	j.wantSafe(t, first)
	live := answered(first, ours(), admission.Answer{IsSafe: true}, time.Now())
	live.ResourceVersion = "2"
	if err := j.retract(t.Context(), first, live); err != nil {
		t.Fatal(err)
	}
	j.wantUnsafe(t, second)
}

// TestRetractAfterTheDeletion no longer counts a reservation whose quota Workload is deleted.
func TestRetractAfterTheDeletion(t *testing.T) {
	j, first, second := pair(t)
	j.wantSafe(t, first)
	j.wantUnsafe(t, second)
	if err := j.retract(t.Context(), first, nil); err != nil {
		t.Fatal(err)
	}
	err := j.runner.Ask(t.Context(), func(e *admission.Engine) {
		if _, ok := e.Judge(client.ObjectKeyFromObject(first), first.UID); ok {
			t.Error("the engine still has the reservation")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	j.wantSafe(t, second)
}

// TestRevocation has a reservation that is Ready, and that must be released when quota is cut to less than what its JobSet needs.
func TestRevocation(t *testing.T) {
	d := newDirect(t)
	w := launcher(d.submit(t, "first"))
	w.Status.AdmissionChecks[0].State = kueue.CheckStateReady
	j := judge{runner: d}
	why := func() string {
		t.Helper()
		d.engine.Decide(time.Now())
		why, err := j.revocation(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		return why
	}
	if got := why(); got != "" {
		t.Errorf("revoked because of %q", got)
	}
	d.queueOf("6", checked())
	why() // the engine may decide after it is asked
	if got := why(); !strings.Contains(got, "deadlock recovery") {
		t.Errorf("revoked because of %q, want that quota is cut", got)
	}
	after := answered(w, ours(), admission.Answer{Message: why()}, time.Now())
	if check := after.Status.AdmissionChecks[0]; check.State != kueue.CheckStateRetry || !strings.Contains(check.Message, "deadlock recovery") {
		t.Errorf("the check is %+v, want Retry", check)
	}
	w = after
	w.ResourceVersion = "2"
	if got := why(); got != "" {
		t.Errorf("revoked again because of %q", got)
	}
}

func TestChecksIn(t *testing.T) {
	_, w, _ := pair(t)
	w.Status.AdmissionChecks = append(w.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "done", State: kueue.CheckStateReady})
	for state, want := range map[kueue.CheckState][]string{kueue.CheckStatePending: {checkName}, kueue.CheckStateReady: {"done"}, kueue.CheckStateRetry: nil} {
		if diff := cmp.Diff(want, checksIn(w, state)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", state, diff)
		}
	}
}

// TestJudgeOthers asks the engine about stages only, and about these only with the reservation that is written.
func TestJudgeOthers(t *testing.T) {
	j, first, second := pair(t)
	j.wantSafe(t, first)
	delete(second.Labels, apis.StageIndexLabel)
	j.wantSafe(t, second)

	j, first, _ = pair(t)
	if _, ok, err := j.answer(t.Context(), first, map[kueue.AdmissionCheckReference]bool{checkName: true, "unknown": true}); ok || err != nil {
		t.Errorf("a check that the engine has not observed is answered: %t, %v", ok, err)
	}
	first.Status.Admission, first.ResourceVersion = nil, "2"
	if _, ok, err := j.answer(t.Context(), first, ours()); ok || err != nil {
		t.Errorf("a quota Workload without a reservation is answered: %t, %v", ok, err)
	}
}

func TestResult(t *testing.T) {
	resource := schema.GroupResource{Resource: "workloads"}
	failed := errors.New("failed")
	for name, tt := range map[string]struct {
		err, want error
		result    ctrl.Result
	}{
		"written":  {},
		"conflict": {err: apierrors.NewConflict(resource, "w", failed), result: ctrl.Result{RequeueAfter: afterConflict}},
		"deleted":  {err: apierrors.NewNotFound(resource, "w")},
		"failed":   {err: failed, want: failed},
	} {
		if got, err := result(tt.err); got != tt.result || !errors.Is(err, tt.want) {
			t.Errorf("%s: %+v, %v, want %+v, %v", name, got, err, tt.result, tt.want)
		}
	}
}

func TestConfig(t *testing.T) {
	some := struct{ client.Client }{} // is never called
	for name, tt := range map[string]struct {
		config Config
		want   string
	}{
		"complete":   {Config{Runner: &engine.Runner{}, Client: some, Live: some, Workers: 1}, ""},
		"no runner":  {Config{Client: some, Live: some, Workers: 1}, "Runner, Client and Live are required"},
		"no client":  {Config{Runner: &engine.Runner{}, Live: some, Workers: 1}, "Runner, Client and Live are required"},
		"no reader":  {Config{Runner: &engine.Runner{}, Client: some, Workers: 1}, "Runner, Client and Live are required"},
		"no workers": {Config{Runner: &engine.Runner{}, Client: some, Live: some}, "Workers is 0, must be positive"},
	} {
		if err := tt.config.validate(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
