package takeover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// maxUnsupported is how many Workloads the text names. The output in JSON has all.
const maxUnsupported = 10

// An Unsupported is a Workload of a ClusterQueue that Tranche does not admit: what Tranche does not support is not an obstacle to a takeover, because any
// tenant may submit it.
type Unsupported struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Owner is the kind and the name of the job, if one object controls the Workload.
	Owner        string `json:"owner,omitempty"`
	ClusterQueue string `json:"clusterQueue"`
	// HoldsQuota is true if the Workload has quota, which it keeps until it is evicted or finishes.
	HoldsQuota bool `json:"holdsQuota"`
	// Problem is what Tranche does not support, and the cure.
	Problem string `json:"problem"`
}

// readUnsupported finds the Workloads of the ClusterQueues that Tranche does not admit.
func (s *state) readUnsupported(ctx context.Context) error {
	var localQueues kueue.LocalQueueList
	if err := s.client.List(ctx, &localQueues); err != nil {
		return unreadable("LocalQueues", err)
	}
	targets := targetsOf(localQueues.Items)
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		var page kueue.WorkloadList
		err := s.client.List(ctx, &page, client.Limit(options.Limit), client.Continue(options.Continue))
		return &page, err
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		w, isWorkload := object.(*kueue.Workload)
		if !isWorkload {
			return fmt.Errorf("%T is no Workload", object)
		}
		if found, isUnsupported := unsupportedOf(s.names, targets, w); isUnsupported {
			s.unsupported = append(s.unsupported, found)
		}
		return nil
	})
	if err != nil {
		return unreadable("Workloads", err)
	}
	return nil
}

// targetsOf returns the ClusterQueues of LocalQueues.
func targetsOf(localQueues []kueue.LocalQueue) map[types.NamespacedName]string {
	targets := map[types.NamespacedName]string{}
	for i := range localQueues {
		lq := &localQueues[i]
		targets[types.NamespacedName{Namespace: lq.Namespace, Name: lq.Name}] = string(lq.Spec.ClusterQueue)
	}
	return targets
}

// unsupportedOf returns a Workload of one of some ClusterQueues that Tranche does not admit. It is not ok for another one, nor if the Workload has finished or
// was deactivated: then it asks for nothing. targets has the ClusterQueues of LocalQueues.
func unsupportedOf(clusterQueues []string, targets map[types.NamespacedName]string, w *kueue.Workload) (u Unsupported, ok bool) {
	queue := targets[types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}]
	if w.Status.Admission != nil {
		queue = string(w.Status.Admission.ClusterQueue)
	}
	isDone := apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) || !ptr.Deref(w.Spec.Active, true) && w.Status.Admission == nil
	problem := admission.Unsupported(w)
	if isDone || problem == "" || !slices.Contains(clusterQueues, queue) {
		return u, false
	}
	return Unsupported{
		Namespace: w.Namespace, Name: w.Name, Owner: ownerOf(w), ClusterQueue: queue, HoldsQuota: w.Status.Admission != nil, Problem: problem,
	}, true
}

// ownerOf returns the kind and the name of the controller of a Workload, or nothing.
func ownerOf(w *kueue.Workload) string {
	owner := metav1.GetControllerOf(w)
	if owner == nil {
		return ""
	}
	return owner.Kind + " " + owner.Name
}

// writeUnsupported prints the Workloads that Tranche does not admit for users.
func writeUnsupported(text *strings.Builder, all []Unsupported) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(text, "Workloads that Tranche does not admit: %d. Those that wait do so until the ClusterQueues are handed back, and those that run are not admitted again after an eviction:\n", len(all))
	for i := range all[:min(len(all), maxUnsupported)] {
		text.WriteString("- " + all[i].text() + "\n")
	}
	if more := len(all) - maxUnsupported; more > 0 {
		fmt.Fprintf(text, "and %d more: see -o json\n", more)
	}
}

// text returns a Workload for users.
func (u *Unsupported) text() string {
	text := fmt.Sprintf("Workload %s/%s", u.Namespace, u.Name)
	if u.Owner != "" {
		text += " of " + u.Owner
	}
	state := "waits"
	if u.HoldsQuota {
		state = "has quota"
	}
	return fmt.Sprintf("%s, which %s: %s", text, state, u.Problem)
}
