package ledger_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

const gpu corev1.ResourceName = "nvidia.com/gpu"

func TestAccelerators(t *testing.T) {
	rules := ledger.Rules{
		Charges: charge.Rules{
			ExcludedPrefixes: []string{"excluded.example.com/"},
			Transformations: map[corev1.ResourceName]charge.Transformation{
				"example.com/half": {Replace: true, Outputs: corev1.ResourceList{gpu: resource.MustParse("0.5")}},
			},
		},
		Devices:  device.Mapping{"gpu.example.com": gpu},
		Extended: device.Extended{"gpu.example.com/whole": gpu},
	}
	claim := func(class string) map[string]device.Claim {
		exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 3}
		c := device.Claim{Controller: &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", UID: "pod"}}
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "all", Exactly: exactly}}
		return map[string]device.Claim{"claim": c}
	}
	for name, tc := range map[string]struct {
		requests map[corev1.ResourceName]string
		claims   map[string]device.Claim
		want     ledger.Amounts
	}{
		"no accelerators":              {requests: map[corev1.ResourceName]string{"cpu": "4"}, want: ledger.Amounts{}},
		"accelerators":                 {requests: map[corev1.ResourceName]string{"cpu": "4", gpu: "2"}, want: ledger.Amounts{gpu: 2000}},
		"excluded":                     {requests: map[corev1.ResourceName]string{"excluded.example.com/nic": "4", gpu: "2"}, want: ledger.Amounts{gpu: 2000}},
		"transformed":                  {requests: map[corev1.ResourceName]string{"example.com/half": "3"}, want: ledger.Amounts{gpu: 1500}},
		"served by a DeviceClass":      {requests: map[corev1.ResourceName]string{"gpu.example.com/whole": "3"}, want: ledger.Amounts{gpu: 3000}},
		"devices":                      {requests: map[corev1.ResourceName]string{gpu: "1"}, claims: claim("gpu.example.com"), want: ledger.Amounts{gpu: 4000}},
		"devices that do not exist":    {claims: map[string]device.Claim{}, want: ledger.Amounts{}},
		"devices without a charge":     {claims: claim("nic.example.com"), want: ledger.Amounts{ledger.UnknownDevices: 1000}},
		"devices, and no claims asked": {requests: map[corev1.ResourceName]string{gpu: "1"}, want: ledger.Amounts{gpu: 1000}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod"}}
			requests := corev1.ResourceList{}
			for name, amount := range tc.requests {
				requests[name] = resource.MustParse(amount)
			}
			pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests}}}
			if tc.claims != nil {
				pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: new("template")}}
				pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "devices", ResourceClaimName: new("claim")}}
			}
			if diff := cmp.Diff(tc.want, rules.Accelerators(pod, tc.claims)); diff != "" {
				t.Errorf("-want +got: %s", diff)
			}
		})
	}
}

func TestIsLive(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  corev1.Pod
		want bool
	}{
		"waits for a node": {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}, true},
		"is being deleted": {corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}, true},
		"has succeeded":    {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, false},
		"has failed":       {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, false},
		"is gated":         {corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/wait"}}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ledger.IsLive(&tc.pod); got != tc.want {
				t.Errorf("IsLive() = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestAccountOf(t *testing.T) {
	ofJob := []metav1.OwnerReference{{Kind: "Job", Name: "job", UID: "job-uid", Controller: new(true)}}
	stage := map[string]string{jobset.JobSetUIDKey: "js", jobset.ReplicatedJobNameKey: "Train", batchv1.JobNameLabel: "job", batchv1.ControllerUidLabel: "job-uid"}
	member := map[string]string{apis.PodGroupMemberLabel: apis.PodGroupMemberValue}
	for name, tc := range map[string]struct {
		pod  metav1.ObjectMeta
		want ledger.Account
		ok   bool
	}{
		"of a stage":                 {metav1.ObjectMeta{Labels: stage, OwnerReferences: ofJob}, ledger.Account{Payer: "js", PodSet: "train"}, true},
		"of a stage, but not really": {metav1.ObjectMeta{Labels: stage}, ledger.Account{}, false},
		"of a Job":                   {metav1.ObjectMeta{Labels: map[string]string{batchv1.ControllerUidLabel: "job-uid"}, OwnerReferences: ofJob}, ledger.Account{Payer: "job-uid", PodSet: "main"}, true},
		"of another Job":             {metav1.ObjectMeta{Labels: map[string]string{batchv1.ControllerUidLabel: "other"}, OwnerReferences: ofJob}, ledger.Account{}, false},
		"of a gang":                  {metav1.ObjectMeta{Labels: member, Annotations: map[string]string{apis.AdmissionAnnotation: "w.3/shape"}}, ledger.Account{Payer: "w"}, true},
		"of a gang, without a payer": {metav1.ObjectMeta{UID: "pod", Labels: member}, ledger.Account{Payer: "pod"}, true},
		"of a gang whose Job is one": {metav1.ObjectMeta{UID: "pod", Labels: member, OwnerReferences: ofJob}, ledger.Account{Payer: "pod"}, true},
		"of none":                    {metav1.ObjectMeta{}, ledger.Account{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := ledger.AccountOf(&corev1.Pod{ObjectMeta: tc.pod})
			if got != tc.want || ok != tc.ok {
				t.Errorf("AccountOf() = %v, %t, want %v, %t", got, ok, tc.want, tc.ok)
			}
		})
	}
}

func TestOverruns(t *testing.T) {
	holding := func(change func(*kueue.Workload)) *kueue.Workload {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{UID: "w", Labels: map[string]string{apis.JobUIDLabel: "job"}}}
		w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2}}
		w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: new(int32(2)), ResourceUsage: corev1.ResourceList{gpu: resource.MustParse("16"), "cpu": resource.MustParse("4")},
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "a100", "cpu": "a100"},
		}}}
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
		change(w)
		return w
	}
	ofJob, ofGang := ledger.Account{Payer: "job", PodSet: "main"}, ledger.Account{Payer: "w"}
	for name, tc := range map[string]struct {
		change func(*kueue.Workload)
		asked  ledger.Books
		want   []ledger.Overrun
	}{
		"all of it":             {func(*kueue.Workload) {}, ledger.Books{ofJob: {gpu: 16000, corev1.ResourcePods: 2000}}, nil},
		"too many accelerators": {func(*kueue.Workload) {}, ledger.Books{ofJob: {gpu: 24000}}, []ledger.Overrun{{Account: ofJob, Resource: gpu, Asked: 24000, Charged: 16000}}},
		"too many pods": {
			func(*kueue.Workload) {},
			ledger.Books{ofJob: {corev1.ResourcePods: 3000}},
			[]ledger.Overrun{{Account: ofJob, Resource: corev1.ResourcePods, Asked: 3000, Charged: 2000}},
		},
		"another resource": {func(*kueue.Workload) {}, ledger.Books{ofJob: {"tpu": 1000}}, []ledger.Overrun{{Account: ofJob, Resource: "tpu", Asked: 1000}}},
		"of a gang":        {func(*kueue.Workload) {}, ledger.Books{ofGang: {gpu: 16000}}, nil},
		"of another pod set": {
			func(*kueue.Workload) {},
			ledger.Books{{Payer: "job", PodSet: "eval"}: {gpu: 1000}},
			[]ledger.Overrun{{Account: ledger.Account{Payer: "job", PodSet: "eval"}, Resource: gpu, Asked: 1000}},
		},
		"without quota": {
			func(w *kueue.Workload) { w.Status.Admission = nil },
			ledger.Books{ofJob: {gpu: 1000}},
			[]ledger.Overrun{{Account: ofJob, Resource: gpu, Asked: 1000}},
		},
		"without a reservation": {
			func(w *kueue.Workload) { w.Status.Conditions = nil },
			ledger.Books{ofJob: {gpu: 1000}},
			[]ledger.Overrun{{Account: ofJob, Resource: gpu, Asked: 1000}},
		},
		"after the end": {
			func(w *kueue.Workload) {
				w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue})
			},
			ledger.Books{ofJob: {gpu: 1000}},
			[]ledger.Overrun{{Account: ofJob, Resource: gpu, Asked: 1000}},
		},
		"for a reclaimed pod": {
			func(w *kueue.Workload) { w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}} },
			ledger.Books{ofJob: {gpu: 9000}},
			[]ledger.Overrun{{Account: ofJob, Resource: gpu, Asked: 9000, Charged: 8000}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			charged := ledger.Books{}
			charged.AddCharges(holding(tc.change))
			if diff := cmp.Diff(tc.want, ledger.Overruns(tc.asked, charged)); diff != "" {
				t.Errorf("-want +got: %s", diff)
			}
		})
	}
}
