package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"
)

const visibilityPath = "/apis/visibility.kueue.x-k8s.io/v1beta2"

// queryFlags say which cluster and which namespace a verb asks about.
type queryFlags struct {
	kubeconfig, namespace string
}

func (f *queryFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; without it, $KUBECONFIG, then ~/.kube/config")
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "", "namespace; without it, that of the kubeconfig's context")
}

// A cluster answers questions of a user.
type cluster struct {
	client.Client
	raw *rest.RESTClient
	// namespace is the one that is meant where none is named.
	namespace string
}

func (f *queryFlags) connect() (*cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %q: %w", f.kubeconfig, err)
	}
	config.UserAgent = "tranche/" + versionText()
	c := &cluster{namespace: f.namespace}
	if c.namespace == "" {
		if c.namespace, _, err = loader.Namespace(); err != nil {
			return nil, fmt.Errorf("read the namespace of kubeconfig %q: %w", f.kubeconfig, err)
		}
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	if c.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	plain := rest.CopyConfig(config)
	plain.GroupVersion, plain.NegotiatedSerializer = &visibility.SchemeGroupVersion, serializer.NewCodecFactory(scheme).WithoutConversion()
	if c.raw, err = rest.UnversionedRESTClientFor(plain); err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return c, nil
}

// A query is what may be asked of a queue beside its name. Zero asks for the server's defaults.
type query struct {
	limit, offset int64
	// only picks one quota Workload.
	only types.NamespacedName
}

// pending asks who waits in a queue: in a LocalQueue, or in a ClusterQueue if the namespace is empty.
func (c *cluster) pending(ctx context.Context, queue types.NamespacedName, q query) (*visibility.PendingWorkloadsSummary, error) {
	what, path := "ClusterQueue "+queue.Name, []string{visibilityPath, "clusterqueues", queue.Name, "pendingworkloads"}
	if queue.Namespace != "" {
		what, path = "LocalQueue "+queue.String(), []string{visibilityPath, "namespaces", queue.Namespace, "localqueues", queue.Name, "pendingworkloads"}
	}
	request := c.raw.Get().AbsPath(path...)
	for name, value := range map[string]int64{"limit": q.limit, "offset": q.offset} {
		if value != 0 {
			request.Param(name, strconv.FormatInt(value, 10))
		}
	}
	if q.only.Name != "" {
		request.Param("fieldSelector", "metadata.namespace="+q.only.Namespace+",metadata.name="+q.only.Name)
	}
	// Only Error reads what the server says of itself.
	result := request.Do(ctx)
	body, _ := result.Raw()
	switch err := result.Error(); {
	case err != nil:
		return nil, fmt.Errorf("ask who is pending in %s: %w", what, err)
	}
	var summary visibility.PendingWorkloadsSummary
	if err := json.Unmarshal(body, &summary); err != nil {
		return nil, fmt.Errorf("read who is pending in %s: %w", what, err)
	}
	return &summary, nil
}

// withoutVisibility says why nothing answers a question to the visibility API, and what to do instead. RBAC forbids an API that does not
// exist, too.
func withoutVisibility(err error) string {
	if apierrors.IsForbidden(err) {
		return "the visibility API is not installed (config/visibility, or visibility.enable of the chart), or you lack the role " +
			"tranche-pending-workloads-localqueue-viewer"
	}
	return "the visibility API is not served: visibility.enable must be true in the manager's configuration, and config/visibility applied"
}

// isUnserved tells that nobody answers for the API, as against that there is no such queue.
func isUnserved(err error) bool {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsNotFound(err) {
		return status.ErrStatus.Details == nil || status.ErrStatus.Details.Group == ""
	}
	return apierrors.IsServiceUnavailable(err)
}
