// Package discovery answers which APIs are served, in the place of an API server, for tests of packages that ask when they start.
package discovery

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrUnavailable is the answer for a version whose resources are nil.
var ErrUnavailable = errors.New("no answer")

// Served has the names of the resources of each version that is served.
type Served map[string][]string

// ServerResourcesForGroupVersion returns the resources of a version, with the kinds of those that make gangs.
func (s Served) ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error) {
	names, ok := s[version]
	switch {
	case !ok:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, version)
	case names == nil:
		return nil, ErrUnavailable
	}
	list := &metav1.APIResourceList{}
	for _, name := range names {
		resource, _, _ := strings.Cut(name, "/")
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: name, Kind: map[string]string{"workloads": "Workload", "podgroups": "PodGroup"}[resource],
		})
	}
	return list, nil
}
