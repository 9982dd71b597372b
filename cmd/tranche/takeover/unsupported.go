package takeover

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
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
	var workloads kueue.WorkloadList
	if err := s.client.List(ctx, &workloads); err != nil {
		return unreadable("Workloads", err)
	}
	s.unsupported = unsupportedOf(s.names, localQueues.Items, workloads.Items)
	return nil
}

// unsupportedOf returns the Workloads in ClusterQueues that Tranche does not admit, in the order of their names. Those that have finished, or were
// deactivated, ask for nothing.
func unsupportedOf(clusterQueues []string, localQueues []kueue.LocalQueue, workloads []kueue.Workload) []Unsupported {
	targets := map[types.NamespacedName]string{}
	for i := range localQueues {
		lq := &localQueues[i]
		targets[types.NamespacedName{Namespace: lq.Namespace, Name: lq.Name}] = string(lq.Spec.ClusterQueue)
	}
	var found []Unsupported
	for i := range workloads {
		w := &workloads[i]
		queue := targets[types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}]
		if w.Status.Admission != nil {
			queue = string(w.Status.Admission.ClusterQueue)
		}
		isDone := apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) || !ptr.Deref(w.Spec.Active, true) && w.Status.Admission == nil
		if isDone || !slices.Contains(clusterQueues, queue) {
			continue
		}
		if problem := admission.Unsupported(w); problem != "" {
			found = append(found, Unsupported{
				Namespace: w.Namespace, Name: w.Name, Owner: ownerOf(w), ClusterQueue: queue, HoldsQuota: w.Status.Admission != nil, Problem: problem,
			})
		}
	}
	slices.SortFunc(found, func(a, b Unsupported) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found
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
