package query

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A person waits for completions: they come soon, or not at all, and are not more than a person reads.
const (
	completionTimeout = 3 * time.Second
	maxCompletions    = 500
)

// A Kind is a kind whose names are completed.
type Kind struct {
	gvk          schema.GroupVersionKind
	isNamespaced bool
}

// Kinds of the arguments and flags of verbs.
var (
	Namespaces    = Kind{corev1.SchemeGroupVersion.WithKind("Namespace"), false}
	ClusterQueues = Kind{kueue.SchemeGroupVersion.WithKind("ClusterQueue"), false}
	LocalQueues   = Kind{kueue.SchemeGroupVersion.WithKind("LocalQueue"), true}
	Workloads     = Kind{kueue.SchemeGroupVersion.WithKind("Workload"), true}
	Jobs          = Kind{batchv1.SchemeGroupVersion.WithKind("Job"), true}
	JobSets       = Kind{jobset.GroupVersion.WithKind("JobSet"), true}
)

// Complete returns a function that completes a word with the names of objects: it lists them on the selected cluster, in the selected namespace,
// with the rights of the user. It completes only the first argument of a command.
func (f *Flags) Complete(kinds ...Kind) cobra.CompletionFunc {
	complete := f.CompleteEach(kinds...)
	return func(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, begin)
	}
}

// CompleteEach is like Complete, but completes every argument, with names that the other arguments do not have.
func (f *Flags) CompleteEach(kinds ...Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := f.Connect()
		if err != nil {
			cobra.CompError(err.Error())
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		var names []string
		for _, kind := range kinds {
			found, err := c.namesOf(ctx, kind)
			if err != nil {
				cobra.CompError(err.Error())
			}
			names = append(names, found...)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, begin) || slices.Contains(args, name) })
		slices.Sort(names)
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteFlag completes the value of a flag with the names of objects.
func (f *Flags) CompleteFlag(cmd *cobra.Command, flag string, kind Kind) {
	complete := f.Complete(kind)
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return complete(cmd, nil, begin)
	})
	if err != nil {
		panic(err) // the command has no such flag
	}
}

// namesOf returns the names of the objects of a kind.
func (c *Cluster) namesOf(ctx context.Context, kind Kind) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.gvk.GroupVersion().WithKind(kind.gvk.Kind + "List"))
	options := []client.ListOption{client.Limit(maxCompletions)}
	if kind.isNamespaced {
		options = append(options, client.InNamespace(c.Namespace))
	}
	if err := c.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("list names of the kind %s: %w", kind.gvk.Kind, err)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names, nil
}
