package dashboard

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// HasJobSet reports whether a JobSet was observed.
func (m *Model) HasJobSet(key types.NamespacedName) bool { return m.jobSetsByKey[key] != nil }

// HasClusterQueue reports whether a ClusterQueue was observed.
func (m *Model) HasClusterQueue(key types.NamespacedName) bool {
	q := m.clusterQueues[key.Name]
	return q != nil && q.exists
}

// HasLocalQueue reports whether a LocalQueue was observed.
func (m *Model) HasLocalQueue(key types.NamespacedName) bool {
	q := m.localQueues[key]
	return q != nil && q.exists
}

// HasNamespace reports whether a namespace has observed objects.
func (m *Model) HasNamespace(name string) bool {
	return m.namespaces[name] != nil || m.queueNamespaces[name] > 0
}

// WorkloadsOf returns the names of the quota Workloads of a JobSet in its namespace, in the order of their names.
func (m *Model) WorkloadsOf(namespace string, jobSet types.UID) []types.NamespacedName {
	var keys []types.NamespacedName
	if o := m.owners[ownerKey{namespace, jobSet}]; o != nil {
		for w := range o.members {
			keys = append(keys, w.key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}
