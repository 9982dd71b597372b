package model

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Changes are the queues and Cohorts whose views may have changed.
type Changes struct {
	ChangedClusterQueues []*ClusterQueue
	ChangedLocalQueues   []*LocalQueue
	// ChangedCohorts are those whose own object has changed.
	ChangedCohorts map[string]struct{}
}

// Changed returns the queues that exist and whose views may have changed since the last call.
func (ch *Changes) Changed() (clusterQueues []string, localQueues []types.NamespacedName) {
	for _, q := range ch.ChangedClusterQueues {
		q.isChanged = false
		if q.Exists {
			clusterQueues = append(clusterQueues, q.Name)
		}
	}
	for _, q := range ch.ChangedLocalQueues {
		q.isChanged = false
		if q.Exists {
			localQueues = append(localQueues, q.Key)
		}
	}
	slices.Sort(clusterQueues)
	slices.SortFunc(localQueues, CompareKeys)
	clear(ch.ChangedClusterQueues)
	clear(ch.ChangedLocalQueues)
	ch.ChangedClusterQueues, ch.ChangedLocalQueues = ch.ChangedClusterQueues[:0], ch.ChangedLocalQueues[:0]
	return clusterQueues, localQueues
}

// NoteChange makes Changed return a ClusterQueue.
func (ch *Changes) NoteChange(q *ClusterQueue) {
	if !q.isChanged {
		q.isChanged = true
		ch.ChangedClusterQueues = append(ch.ChangedClusterQueues, q)
	}
}

// NoteLocalChange makes Changed return a LocalQueue.
func (ch *Changes) NoteLocalChange(q *LocalQueue) {
	if !q.isChanged {
		q.isChanged = true
		ch.ChangedLocalQueues = append(ch.ChangedLocalQueues, q)
	}
}
