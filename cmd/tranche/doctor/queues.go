package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// flavors checks that there are nodes with the labels of each ResourceFlavor.
func (e *examination) flavors(ctx context.Context, c *check) error {
	var flavors kueue.ResourceFlavorList
	if err := e.client.List(ctx, &flavors); err != nil {
		return listError(c, "ResourceFlavors", err)
	}
	var nodes corev1.NodeList
	if err := e.client.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for i := range flavors.Items {
		checkFlavor(c, &flavors.Items[i], nodes.Items)
	}
	if c.fine = plural(len(flavors.Items), "ResourceFlavor") + " with nodes"; len(flavors.Items) == 0 {
		c.warn("create one for each kind of nodes, such as those of config/samples/queues", "there is no ResourceFlavor, so no ClusterQueue admits anything")
	}
	return nil
}

// checkFlavor checks that there is a node with the labels of a ResourceFlavor. One without labels is for all nodes.
func checkFlavor(c *check, flavor *kueue.ResourceFlavor, nodes []corev1.Node) {
	selector := labels.SelectorFromSet(flavor.Spec.NodeLabels)
	if slices.ContainsFunc(nodes, func(n corev1.Node) bool { return selector.Matches(labels.Set(n.Labels)) }) {
		return
	}
	var wanted []string
	for _, name := range slices.Sorted(maps.Keys(flavor.Spec.NodeLabels)) {
		wanted = append(wanted, name+"="+flavor.Spec.NodeLabels[name])
	}
	c.warn("kubectl label node NAME "+strings.Join(wanted, " ")+", or change spec.nodeLabels of the ResourceFlavor, unless an autoscaler adds such nodes",
		"ResourceFlavor %s: no node has the labels %s: what is admitted with this flavor stays pending", flavor.Name, strings.Join(wanted, ","))
}

// queues checks which queues admit nothing.
func (e *examination) queues(ctx context.Context, c *check) error {
	var clusterQueues kueue.ClusterQueueList
	if err := e.client.List(ctx, &clusterQueues); err != nil {
		return listError(c, "ClusterQueues", err)
	}
	var localQueues kueue.LocalQueueList
	if err := e.client.List(ctx, &localQueues); err != nil {
		return listError(c, "LocalQueues", err)
	}
	for i := range clusterQueues.Items {
		q := &clusterQueues.Items[i]
		checkQueue(c, "ClusterQueue "+q.Name, q.Status.Conditions, q.Spec.StopPolicy)
	}
	for i := range localQueues.Items {
		q := &localQueues.Items[i]
		checkQueue(c, "LocalQueue "+q.Namespace+"/"+q.Name, q.Status.Conditions, q.Spec.StopPolicy)
	}
	c.fine = fmt.Sprintf("%s and %s are active", plural(len(clusterQueues.Items), "ClusterQueue"), plural(len(localQueues.Items), "LocalQueue"))
	if len(clusterQueues.Items) == 0 || len(localQueues.Items) == 0 {
		c.warn("create them: kubectl apply -k config/samples/queues is an example", "there are %s and %s, so nothing can be queued",
			plural(len(clusterQueues.Items), "ClusterQueue"), plural(len(localQueues.Items), "LocalQueue"))
	}
	return nil
}

// checkQueue checks that a queue is active. One that was stopped on purpose is only a warning, as is one that no manager has looked at.
func checkQueue(c *check, name string, conditions []metav1.Condition, stop *kueue.StopPolicy) {
	condition := apimeta.FindStatusCondition(conditions, kueue.ClusterQueueActive) // LocalQueues have the same name
	switch {
	case stop != nil && *stop != kueue.None:
		c.warn("set spec.stopPolicy to None to continue", "%s is stopped: spec.stopPolicy is %s", name, *stop)
	case condition == nil:
		c.warn("see that a manager leads", "%s: no manager has looked at it yet", name)
	case condition.Status != metav1.ConditionTrue:
		c.fail("see docs/troubleshooting.md for the reason "+condition.Reason, "%s admits nothing: %s: %s", name, condition.Reason, condition.Message)
	}
}

// listError returns an error about a kind, or notes that the API server does not serve it: then its CRD was found missing already.
func listError(c *check, kind string, err error) error {
	if apimeta.IsNoMatchError(err) {
		c.add(Unknown, "", "%s are not served", kind)
		return nil
	}
	return fmt.Errorf("list %s: %w", kind, err)
}
