// Package apiwatch notices when the API server begins or ceases to serve objects that the manager looks for when it starts, such as PodGroups
// whose definition is installed later. The manager then ends so that it is restarted: its watches are fixed while it runs.
package apiwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
)

// every is the time between two checks.
const every = 10 * time.Second

// A Lister lists the resources that an API server serves.
type Lister interface {
	// ServerResourcesForGroupVersion lists the resources of a version, or returns a NotFound error.
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// A Discovery lists all resources that an API server serves, and why some versions are not known. client-go's discovery clients implement it, with two requests.
type Discovery interface {
	GroupsAndMaybeResources() (*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error)
}

// Serves reports whether the API server serves a resource of this kind in a version.
func Serves(lister Lister, groupVersion string, isOfKind func(metav1.APIResource) bool) (bool, error) {
	list, err := lister.ServerResourcesForGroupVersion(groupVersion)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask the API server for %s: %w", groupVersion, err)
	}
	return slices.ContainsFunc(list.APIResources, isOfKind), nil
}

// Watcher is a Lister that remembers its answers, and checks whether they still hold. It is safe for concurrent use.
type Watcher struct {
	discovery Discovery

	mu sync.Mutex
	// known is what the API server served when it was first asked.
	known *served
	// first is the first answer for each version, and last the different answer of the last check, if there was one.
	first, last map[string]string
}

// New returns a Watcher without answers.
func New(d Discovery) *Watcher {
	return &Watcher{discovery: d, first: map[string]string{}, last: map[string]string{}}
}

// served is what an API server serves.
type served struct {
	resources map[schema.GroupVersion]*metav1.APIResourceList
	failed    map[schema.GroupVersion]error
}

func (w *Watcher) ask() (*served, error) {
	_, resources, failed, err := w.discovery.GroupsAndMaybeResources()
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask the API server for its resources: %w", err)
	case resources == nil:
		return nil, errors.New("ask the API server for its resources: it does not serve aggregated discovery, which Kubernetes does since 1.27: update it")
	}
	return &served{resources, failed}, nil
}

// list returns the resources of a version, or a NotFound error.
func (s *served) list(version string) (*metav1.APIResourceList, error) {
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return nil, fmt.Errorf("read the version %q: %w", version, err)
	}
	if err := s.failed[gv]; err != nil {
		return nil, fmt.Errorf("the API server does not know %s at the moment: %w", version, err)
	}
	if list := s.resources[gv]; list != nil {
		return list, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: gv.Group}, gv.Version)
}

// SetupWithManager returns a Watcher of the manager's API server. The manager ends with an error when its answers have changed.
func SetupWithManager(mgr ctrl.Manager) (*Watcher, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("set up discovery: %w", err)
	}
	w := New(client)
	return w, mgr.Add(w)
}

// ServerResourcesForGroupVersion implements Lister.
func (w *Watcher) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil {
		known, err := w.ask()
		if err != nil {
			return nil, err
		}
		w.known = known
	}
	list, err := w.known.list(groupVersion)
	if err != nil && !apierrors.IsNotFound(err) {
		w.known = nil
		return nil, err
	}
	if _, asked := w.first[groupVersion]; !asked {
		w.first[groupVersion] = answerOf(list)
	}
	return list, err
}

// answerOf lists the resources of a version, which the API server may not serve.
func answerOf(list *metav1.APIResourceList) string {
	if list == nil {
		return "nothing"
	}
	names := []string{}
	for i := range list.APIResources {
		names = append(names, list.APIResources[i].Name)
	}
	slices.Sort(names)
	return cmp.Or(strings.Join(names, ", "), "no resources")
}

// Start checks periodically until the context ends, or until something has changed, which is an error.
func (w *Watcher) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, every, false, func(context.Context) (bool, error) { return false, w.Check() })
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the manager ends
	}
	return err
}

// NeedLeaderElection returns false: a replica that waits to lead must notice changes, too.
func (w *Watcher) NeedLeaderElection() bool { return false }

// Check returns an error if a version is served differently than at first, and was already when Check was last called: a starting API server
// knows its own definitions before those that were added, and an administrator may add several definitions one after the other. A failed
// request does not count as a change.
func (w *Watcher) Check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	current, err := w.ask()
	if err != nil {
		return nil // the next check asks again
	}
	var changes []string
	for version, first := range w.first {
		list, err := current.list(version)
		if err != nil && !apierrors.IsNotFound(err) {
			continue
		}
		switch now := answerOf(list); now {
		case first:
			delete(w.last, version)
		case w.last[version]:
			changes = append(changes, fmt.Sprintf("%s now has %s, and had %s", version, now, first))
		default:
			w.last[version] = now
		}
	}
	if len(changes) == 0 {
		return nil
	}
	slices.Sort(changes)
	return fmt.Errorf("the API server serves other resources than when the manager started; the manager exits, and watches them after its restart: %s", strings.Join(changes, "; "))
}
