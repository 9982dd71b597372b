package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// connections is the number of connections of the writes, so that no write waits for another one in this process.
const connections = 8

// An api writes quota Workloads. It neither limits its requests nor reads what the API server answers to those that succeed.
type api struct {
	clients []rest.Interface
	turn    atomic.Uint64

	mu    sync.Mutex
	wrote counts // by verb and resource
}

func newAPI(config *rest.Config, scheme *runtime.Scheme) (*api, error) {
	a := &api{wrote: counts{}}
	for range connections {
		c := rest.CopyConfig(config)
		version := kueue.SchemeGroupVersion
		c.GroupVersion, c.APIPath = &version, "/apis"
		c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		c.Dial = (&net.Dialer{}).DialContext // a client with a dialer of its own gets connections of its own
		client, err := rest.RESTClientFor(c)
		if err != nil {
			return nil, fmt.Errorf("make client of the driver: %w", err)
		}
		a.clients = append(a.clients, client)
	}
	return a, nil
}

// next returns the client for a request that it counts.
func (a *api) next(request string) rest.Interface {
	a.mu.Lock()
	a.wrote[request]++
	a.mu.Unlock()
	return a.clients[a.turn.Add(1)%connections]
}

// written is how many writes have been sent, by verb and resource.
func (a *api) written() counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.wrote)
}

// create creates a quota Workload.
func (a *api) create(ctx context.Context, w *kueue.Workload) error {
	body, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("render quota Workload %s: %w", w.Name, err)
	}
	err = a.next("POST workloads").Post().Namespace(w.Namespace).Resource("workloads").
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("create quota Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

// apply writes the part of a quota Workload's status that a field manager owns. It is refused if the object has changed since
// resourceVersion, where that is not empty.
func (a *api) apply(ctx context.Context, key types.NamespacedName, resourceVersion, manager string, status *kueue.WorkloadStatus) error {
	metadata := map[string]any{"namespace": key.Namespace, "name": key.Name}
	if resourceVersion != "" {
		metadata["resourceVersion"] = resourceVersion
	}
	body, err := json.Marshal(map[string]any{"apiVersion": kueue.SchemeGroupVersion.String(), "kind": "Workload", "metadata": metadata, "status": status})
	if err != nil {
		return fmt.Errorf("render status of quota Workload %s: %w", key, err)
	}
	err = a.next("APPLY workloads/status").Patch(types.ApplyYAMLPatchType).Namespace(key.Namespace).Resource("workloads").Name(key.Name).SubResource("status").
		Param("fieldManager", manager).Param("force", "true").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write status of quota Workload %s: %w", key, err)
	}
	return nil
}
