package access

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A right is what a user may do with objects of a resource.
type right struct{ verb, group, version, resource string }

// The rights that the Model asks about.
var (
	// listWorkloads shows the namespace: its quota Workloads and LocalQueues.
	listWorkloads = right{"list", kueue.SchemeGroupVersion.Group, kueue.SchemeGroupVersion.Version, "workloads"}
	// listJobSets shows the names and states of its JobSets.
	listJobSets = right{"list", jobset.GroupVersion.Group, jobset.GroupVersion.Version, "jobsets"}
	// getJobSet shows one JobSet.
	getJobSet = right{"get", jobset.GroupVersion.Group, jobset.GroupVersion.Version, "jobsets"}
	// getClusterQueue shows a ClusterQueue.
	getClusterQueue = right{"get", kueue.SchemeGroupVersion.Group, kueue.SchemeGroupVersion.Version, "clusterqueues"}
)

// A question asks whether a user has a right in a namespace, or to a name. No namespace stands for all namespaces, no name for all names.
type question struct {
	user            key
	right           right
	namespace, name string
}

// spec returns the question as the API server is asked it.
func (q question) spec(info *authenticationv1.UserInfo) *authorizationv1.SubjectAccessReviewSpec {
	spec := &authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: q.namespace, Name: q.name, Verb: q.right.verb, Group: q.right.group, Version: q.right.version, Resource: q.right.resource,
		},
		User: info.Username, UID: info.UID, Groups: info.Groups, Extra: map[string]authorizationv1.ExtraValue{},
	}
	for name, values := range info.Extra {
		spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	return spec
}
