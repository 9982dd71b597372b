package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// AddToScheme makes JobSets of group jobset.x-k8s.io and version v1alpha2 be read as the types of this package. It excludes the
// upstream types from the same scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(jobset.GroupVersion, &JobSet{}, &JobSetList{})
	metav1.AddToGroupVersion(scheme, jobset.GroupVersion)
	return nil
}
