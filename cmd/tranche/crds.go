package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// A crdCheck asks the API server whether it serves the kinds that the manager requires.
type crdCheck struct {
	client *discovery.DiscoveryClient
	// cure says how to install them.
	cure string
}

// neededResources has, by group and version, the kinds of config/crd that the manager watches or writes.
func neededResources() map[string][]string {
	return map[string][]string{
		"kueue.x-k8s.io/v1beta2": {
			"admissionchecks", "clusterqueues", "cohorts", "localqueues", "resourceflavors", "workloadpriorityclasses", "workloads",
		},
		"jobset.x-k8s.io/v1alpha2": {"jobsets"},
	}
}

func newCRDCheck(restConfig *rest.Config, mode configapi.Mode) (*crdCheck, error) {
	client, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		return nil, fmt.Errorf("set up discovery: %w", err)
	}
	cure := "apply config/crd"
	if mode == configapi.ModeBeside {
		cure = "install Kueue 0.19 or later for those of kueue.x-k8s.io, and apply config/beside/crd for those of jobset.x-k8s.io"
	}
	return &crdCheck{client, cure}, nil
}

// missing returns an error that names the kinds that the API server does not serve, or nil if the API server does not answer.
func (c *crdCheck) missing() error {
	var names []string
	for groupVersion, resources := range neededResources() {
		group, _, _ := strings.Cut(groupVersion, "/")
		list, err := c.client.ServerResourcesForGroupVersion(groupVersion)
		if err != nil && !apierrors.IsNotFound(err) {
			continue
		}
		for _, name := range resources {
			isServed := list != nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
			if !isServed {
				names = append(names, name+"."+group)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("the cluster has no CRD for %s: %s", strings.Join(names, ", "), c.cure)
}

// ready is the readiness check.
func (c *crdCheck) ready(*http.Request) error { return c.missing() }
