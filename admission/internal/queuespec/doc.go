// Package queuespec has the part of the spec of a ClusterQueue that the Engine uses, and whether the ClusterQueue is active with it.
package queuespec
