package ledger

import (
	"cmp"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// UnknownDevices counts the pods that claim devices for which nothing can be charged. No quota has this resource.
const UnknownDevices corev1.ResourceName = "unknown-devices"

// Amounts are amounts of resources, in thousandths.
type Amounts map[corev1.ResourceName]int64

// Add adds other amounts, times n.
func (a Amounts) Add(other Amounts, n int64) {
	for name, amount := range other {
		a[name] += amount * n
	}
}

// Rules determine what is charged for the requests and the devices of a pod.
type Rules struct {
	Charges charge.Rules
	Devices device.Mapping
	// Extended has what is charged for the extended resources of DeviceClasses.
	Extended device.Extended
}

// Accelerators returns what is to be charged for the accelerators of a pod. claims has the ResourceClaims of its namespace by name. A ResourceClaim that
// does not exist yet counts nothing.
func (r *Rules) Accelerators(pod *corev1.Pod, claims map[string]device.Claim) Amounts {
	charged, problem := r.Devices.ChargePod(pod, claims)
	all := r.AcceleratorsOf(&charged.Spec)
	if problem != nil && !problem.IsMissing {
		all[UnknownDevices] = 1000
	}
	return all
}

// AcceleratorsOf returns what is to be charged for the accelerators that a pod requests, without those that it claims as devices.
func (r *Rules) AcceleratorsOf(spec *corev1.PodSpec) Amounts {
	requests, all := stageplan.PodRequests(spec), Amounts{}
	for name, amount := range r.Extended.Replace(requests, r.Charges.Apply(requests)) {
		if charge.IsAccelerator(name) && amount.Sign() > 0 {
			all[name] = amount.MilliValue()
		}
	}
	return all
}

// IsLive reports whether a pod may use what it asks for. One that is being deleted may, until its containers have terminated.
func IsLive(pod *corev1.Pod) bool {
	return len(pod.Spec.SchedulingGates) == 0 && !podgroup.IsTerminal(pod)
}

// An Account is what pays for a pod: the quota Workloads of one pod set of a JobSet or a Job, or a quota Workload of a gang of pods.
type Account struct {
	// Payer is the UID of the JobSet or the Job, or that of the quota Workload by which a pod of a gang was ungated. If the pod does not name one, it is the
	// pod's own, for which nothing is charged.
	Payer types.UID
	// PodSet is empty for a pod of a gang.
	PodSet kueue.PodSetReference
}

// AccountOf returns the account of a live pod. ok is false if the pod belongs to no JobSet, no Job and no gang in a queue. A Job may be in no queue.
func AccountOf(pod *corev1.Pod) (account Account, ok bool) {
	owner := metav1.GetControllerOfNoCopy(pod)
	_, names := podgroup.RefOf(pod)
	switch isOfJob := owner != nil && owner.Kind == "Job"; {
	case isOfJob && pod.Labels[jobset.JobSetUIDKey] != "" && owner.Name == pod.Labels[batchv1.JobNameLabel]:
		return Account{types.UID(pod.Labels[jobset.JobSetUIDKey]), kueue.NewPodSetReference(pod.Labels[jobset.ReplicatedJobNameKey])}, true
	case podgroup.IsMember(pod) || names && pod.Labels[apis.QueueLabel] != "":
		return Account{Payer: cmp.Or(podgroup.Payer(pod), pod.UID)}, true
	case isOfJob && string(owner.UID) == pod.Labels[batchv1.ControllerUidLabel]:
		return Account{owner.UID, kueue.DefaultPodSetName}, true
	}
	return Account{}, false
}

// Charged returns what a quota Workload is charged for accelerators now, and for how many pods, by pod set: nothing if it holds no quota.
func Charged(w *kueue.Workload) map[kueue.PodSetReference]Amounts {
	if !quotaworkload.IsCharged(w) {
		return nil
	}
	all := make(map[kueue.PodSetReference]Amounts, len(w.Status.Admission.PodSetAssignments))
	for i := range w.Status.Admission.PodSetAssignments {
		podSet := &w.Status.Admission.PodSetAssignments[i]
		_, needed := podsOf(w, podSet)
		all[podSet.Name] = Amounts{corev1.ResourcePods: needed * 1000}
	}
	for _, c := range ChargesOf(w) {
		if charge.IsAccelerator(c.Resource) {
			all[c.PodSet][c.Resource] += c.Milli()
		}
	}
	return all
}

// An Overrun is an amount of one resource that live pods ask for beyond what is charged for them, in thousandths.
type Overrun struct {
	Account
	Resource       corev1.ResourceName
	Asked, Charged int64
}

// Books are amounts by account.
type Books map[Account]Amounts

// Add adds amounts to an account.
func (b Books) Add(account Account, amounts Amounts) {
	if b[account] == nil {
		b[account] = Amounts{}
	}
	b[account].Add(amounts, 1)
}

// AddCharges adds the charges of a quota Workload to the accounts that it pays for.
func (b Books) AddCharges(w *kueue.Workload) {
	for podSet, amounts := range Charged(w) {
		b.Add(Account{types.UID(w.Labels[apis.JobUIDLabel]), podSet}, amounts)
		b.Add(Account{Payer: w.UID}, amounts)
	}
}

// Overruns returns the accounts that ask for more than is charged, in order.
func Overruns(asked, charged Books) []Overrun {
	var all []Overrun
	for account, amounts := range asked {
		for name, amount := range amounts {
			if paid := charged[account][name]; amount > paid {
				all = append(all, Overrun{account, name, amount, paid})
			}
		}
	}
	slices.SortFunc(all, func(a, b Overrun) int {
		return cmp.Or(cmp.Compare(a.Payer, b.Payer), cmp.Compare(a.PodSet, b.PodSet), cmp.Compare(a.Resource, b.Resource))
	})
	return all
}
