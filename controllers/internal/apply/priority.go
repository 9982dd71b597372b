package apply

import (
	"context"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// Priority determines the priority of quota Workloads: from the WorkloadPriorityClass that the label of their owner names, else from the PriorityClass of
// its pods, else from the default of the cluster. PriorityClasses count up to a limit. In Kueue those of Kubernetes itself count, too.
func Priority(ctx context.Context, c client.Reader, workloadClass, podClass string, limit int32) (int32, *kueue.PriorityClassRef, error) {
	switch {
	case workloadClass != "":
		var class kueue.WorkloadPriorityClass
		if err := c.Get(ctx, types.NamespacedName{Name: workloadClass}, &class); err != nil {
			return 0, nil, fmt.Errorf("read WorkloadPriorityClass %q named by label %s: %w", workloadClass, apis.PriorityClassLabel, err)
		}
		return class.Value, kueue.NewWorkloadPriorityClassRef(workloadClass), nil
	case podClass != "":
		var class schedulingv1.PriorityClass
		if err := c.Get(ctx, types.NamespacedName{Name: podClass}, &class); err != nil {
			return 0, nil, fmt.Errorf("read PriorityClass %q of the pods: %w", podClass, err)
		}
		value, ref := workloadstatus.PodPriority(podClass, class.Value, limit)
		return value, ref, nil
	}
	var classes schedulingv1.PriorityClassList
	if err := c.List(ctx, &classes); err != nil {
		return 0, nil, fmt.Errorf("list PriorityClasses: %w", err)
	}
	for i := range classes.Items {
		if classes.Items[i].GlobalDefault {
			value, ref := workloadstatus.PodPriority(classes.Items[i].Name, classes.Items[i].Value, limit)
			return value, ref, nil
		}
	}
	return 0, nil, nil
}
