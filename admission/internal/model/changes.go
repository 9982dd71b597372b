package model

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Changes are the queues and Cohorts whose views may have changed.
type Changes struct {
	ChangedClusterQueues map[*ClusterQueue]struct{}
	ChangedLocalQueues   map[*LocalQueue]struct{}
	// ChangedCohorts are those whose own object has changed.
	ChangedCohorts map[string]struct{}
}

// Changed returns the queues that exist and whose views may have changed since the last call.
func (ch *Changes) Changed() (clusterQueues []string, localQueues []types.NamespacedName) {
	for q := range ch.ChangedClusterQueues {
		if q.Exists {
			clusterQueues = append(clusterQueues, q.Name)
		}
	}
	for q := range ch.ChangedLocalQueues {
		if q.Exists {
			localQueues = append(localQueues, q.Key)
		}
	}
	slices.Sort(clusterQueues)
	slices.SortFunc(localQueues, CompareKeys)
	clear(ch.ChangedClusterQueues)
	clear(ch.ChangedLocalQueues)
	return clusterQueues, localQueues
}

// NoteChange makes Changed return a ClusterQueue.
func (ch *Changes) NoteChange(q *ClusterQueue) { ch.ChangedClusterQueues[q] = struct{}{} }

// NoteLocalChange makes Changed return a LocalQueue.
func (ch *Changes) NoteLocalChange(q *LocalQueue) { ch.ChangedLocalQueues[q] = struct{}{} }
