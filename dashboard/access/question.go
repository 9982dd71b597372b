package access

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// A right is what a user may do.
type right int

const (
	// listWorkloads shows the namespace: its quota Workloads and LocalQueues.
	listWorkloads right = iota
	// listJobSets shows the names and states of its JobSets.
	listJobSets
	// getJobSet shows one JobSet.
	getJobSet
	// getClusterQueue shows a ClusterQueue.
	getClusterQueue
)

// A question asks whether a user has a right in a namespace, or to a name. No namespace stands for all namespaces, no name for all names.
type question struct {
	user            key
	right           right
	namespace, name string
}

// spec returns the question as the API server is asked it.
func (q question) spec(info *authenticationv1.UserInfo) *authorizationv1.SubjectAccessReviewSpec {
	attributes := &authorizationv1.ResourceAttributes{Namespace: q.namespace, Name: q.name, Group: "kueue.x-k8s.io", Version: "v1beta2", Verb: "get"}
	switch q.right {
	case listWorkloads:
		attributes.Verb, attributes.Resource = "list", "workloads"
	case listJobSets:
		attributes.Verb, attributes.Group, attributes.Version, attributes.Resource = "list", "jobset.x-k8s.io", "v1alpha2", "jobsets"
	case getJobSet:
		attributes.Group, attributes.Version, attributes.Resource = "jobset.x-k8s.io", "v1alpha2", "jobsets"
	case getClusterQueue:
		attributes.Resource = "clusterqueues"
	}
	spec := &authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: attributes, User: info.Username, UID: info.UID, Groups: info.Groups, Extra: map[string]authorizationv1.ExtraValue{},
	}
	for name, values := range info.Extra {
		spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	return spec
}
