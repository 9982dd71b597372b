package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// AddToScheme registers the types of this package for JobSets of group jobset.x-k8s.io and version v1alpha2. The upstream types cannot be
// in the same scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(jobset.GroupVersion, &JobSet{}, &JobSetList{})
	metav1.AddToGroupVersion(scheme, jobset.GroupVersion)
	return nil
}
