package quotaaudit

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/internal/informer"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// readLive reads, past the cache, what an account asks for and what is charged to it. The pods are read before and after the quota Workloads, and those count
// that were live both times: they were live when the quota Workloads were read.
func (c *Config) readLive(ctx context.Context, rules *ledger.Rules, account ledger.Account, of *payee, workloads []*kueue.Workload) (asked, charged ledger.Books, err error) {
	before, err := c.livePods(ctx, account, of)
	if err != nil {
		return nil, nil, err
	}
	charged, asked = ledger.Books{}, ledger.Books{}
	paying, err := c.payersOf(ctx, account, of, workloads)
	if err != nil {
		return nil, nil, err
	}
	for i := range paying {
		charged.AddCharges(&paying[i])
	}
	after, err := c.livePods(ctx, account, of)
	if err != nil {
		return nil, nil, err
	}
	claims, err := c.liveClaims(ctx, of.namespace, after)
	if err != nil {
		return nil, nil, err
	}
	for uid, pod := range after {
		if before[uid] != nil {
			asked.Add(account, rules.Accelerators(pod, claims))
		}
	}
	return asked, charged, nil
}

// livePods returns the live pods of an account by UID.
func (c *Config) livePods(ctx context.Context, account ledger.Account, of *payee) (map[types.UID]*corev1.Pod, error) {
	var list corev1.PodList
	if err := c.Live.List(ctx, &list, client.InNamespace(of.namespace), of.selector); err != nil {
		return nil, fmt.Errorf("list pods of namespace %s: %w", of.namespace, err)
	}
	pods := map[types.UID]*corev1.Pod{}
	for i := range list.Items {
		pod := &list.Items[i]
		if its, ok := ledger.AccountOf(pod); ok && its == account && ledger.IsLive(pod) {
			pods[pod.UID] = pod
		}
	}
	return pods, nil
}

// payersOf returns the quota Workloads that pay for an account: those of a JobSet or a Job, or the one that a pod of a gang names by its UID.
func (c *Config) payersOf(ctx context.Context, account ledger.Account, of *payee, workloads []*kueue.Workload) ([]kueue.Workload, error) {
	if account.PodSet != "" {
		var list kueue.WorkloadList
		if err := c.Live.List(ctx, &list, client.InNamespace(of.namespace), client.MatchingLabels{apis.JobUIDLabel: string(account.Payer)}); err != nil {
			return nil, fmt.Errorf("list quota Workloads of namespace %s: %w", of.namespace, err)
		}
		return list.Items, nil
	}
	i := slices.IndexFunc(workloads, func(w *kueue.Workload) bool { return w.UID == account.Payer })
	if i < 0 {
		return nil, nil
	}
	var workload kueue.Workload
	err := c.Live.Get(ctx, client.ObjectKeyFromObject(workloads[i]), &workload)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read quota Workload %s: %w", client.ObjectKeyFromObject(workloads[i]), err)
	}
	if workload.UID != account.Payer {
		return nil, nil // it is gone
	}
	return []kueue.Workload{workload}, nil
}

// liveClaims returns the ResourceClaims of a namespace by name, if pods claim devices.
func (c *Config) liveClaims(ctx context.Context, namespace string, pods map[types.UID]*corev1.Pod) (map[string]device.Claim, error) {
	all := map[string]device.Claim{}
	if len(c.Devices) == 0 || !claimDevices(maps.Values(pods)) {
		return all, nil
	}
	var list resourcev1.ResourceClaimList
	if err := c.Live.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list ResourceClaims of namespace %s: %w", namespace, err)
	}
	for i := range list.Items {
		all[list.Items[i].Name] = claimOf(&list.Items[i])
	}
	return all, nil
}

// cachedClaims returns the ResourceClaims in the cache by namespace and name, if pods claim devices.
func (a *podAuditor) cachedClaims(ctx context.Context, pods []*corev1.Pod) (map[string]map[string]device.Claim, error) {
	all := map[string]map[string]device.Claim{}
	if len(a.config.Devices) == 0 || !claimDevices(slices.Values(pods)) {
		return all, nil
	}
	claims, err := informer.All(ctx, a.config.Cache, &resourcev1.ResourceClaim{})
	if err != nil {
		return nil, err
	}
	for _, claim := range claims {
		if all[claim.Namespace] == nil {
			all[claim.Namespace] = map[string]device.Claim{}
		}
		all[claim.Namespace][claim.Name] = claimOf(claim)
	}
	return all, nil
}

func claimDevices(pods iter.Seq[*corev1.Pod]) bool {
	for pod := range pods {
		if len(pod.Spec.ResourceClaims) > 0 {
			return true
		}
	}
	return false
}

func claimOf(claim *resourcev1.ResourceClaim) device.Claim {
	return device.Claim{Controller: metav1.GetControllerOfNoCopy(claim), Spec: claim.Spec}
}
