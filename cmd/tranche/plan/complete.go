package plan

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// completionTimeout is how long a person waits for completions.
const completionTimeout = 3 * time.Second

// completeQuota completes the part of a quota before its amount: the names that the ClusterQueues of the snapshot or cluster have.
func (f *flags) completeQuota(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	queues, err := f.clusterQueues(cmd.Context())
	if err != nil {
		cobra.CompError(err.Error())
		return nil, cobra.ShellCompDirectiveError
	}
	return quotaNames(queues, args, begin), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// clusterQueues returns those of the snapshot, or of the cluster. Standard input is the terminal of a shell that completes a word.
func (f *flags) clusterQueues(ctx context.Context) ([]*kueue.ClusterQueue, error) {
	if f.snapshot.Path == snapshotfile.Stream {
		return nil, nil
	}
	if f.snapshot.Path != "" {
		s, err := f.snapshot.Read(strings.NewReader(""), io.Discard)
		if err != nil {
			return nil, err
		}
		return s.ClusterQueues, nil
	}
	reader, err := f.cluster.ConnectToRead()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	var list kueue.ClusterQueueList
	if err := reader.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list ClusterQueues: %w", err)
	}
	all := make([]*kueue.ClusterQueue, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}

// quotaNames returns the names of the nominal quotas that begin with a text, but not those that an argument already has.
func quotaNames(queues []*kueue.ClusterQueue, args []string, begin string) []cobra.Completion {
	var names []cobra.Completion
	for _, q := range queues {
		for fr := range ledger.QuotasOf(q.Spec.ResourceGroups) {
			name := fmt.Sprintf("%s/%s/%s=", q.Name, fr.Flavor, fr.Resource)
			isNamed := slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, name) })
			if strings.HasPrefix(name, begin) && !isNamed {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}
