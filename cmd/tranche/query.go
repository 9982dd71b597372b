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

// queryFlags select the cluster and the namespace of a command.
type queryFlags struct {
	kubeconfig, namespace string
}

func (f *queryFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; defaults to $KUBECONFIG, then to ~/.kube/config")
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "", "namespace; defaults to the namespace of the kubeconfig's context")
}

// A cluster answers requests of a user.
type cluster struct {
	client.Client
	raw *rest.RESTClient
	// namespace is the default namespace.
	namespace string
}

// loadKubeconfig reads a kubeconfig file. Without a path it reads $KUBECONFIG, ~/.kube/config, or the ServiceAccount of the pod.
func loadKubeconfig(path string) (clientcmd.ClientConfig, *rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("read kubeconfig %q: %w", path, err)
	}
	config.UserAgent = "tranche/" + versionText()
	return loader, config, nil
}

func (f *queryFlags) connect() (*cluster, error) {
	loader, config, err := loadKubeconfig(f.kubeconfig)
	if err != nil {
		return nil, err
	}
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

// A query has the parameters of a request about a queue. Zero means the server's defaults.
type query struct {
	limit, offset int64
	// only picks one quota Workload.
	only types.NamespacedName
}

// pending returns the pending quota Workloads of a LocalQueue, or of a ClusterQueue if the namespace is empty.
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
	// Only Error contains the server's own message.
	result := request.Do(ctx)
	body, _ := result.Raw()
	if err := result.Error(); err != nil {
		return nil, fmt.Errorf("request the pending quota Workloads of %s: %w", what, err)
	}
	var summary visibility.PendingWorkloadsSummary
	if err := json.Unmarshal(body, &summary); err != nil {
		return nil, fmt.Errorf("decode the pending quota Workloads of %s: %w", what, err)
	}
	return &summary, nil
}

// withoutVisibility returns why the visibility API does not answer, and what to do. RBAC also forbids an API that does not exist.
func withoutVisibility(err error) string {
	if apierrors.IsForbidden(err) {
		return "the visibility API is not installed (config/visibility, or visibility.enable of the chart), or you lack the role " +
			"tranche-pending-workloads-localqueue-viewer"
	}
	return "the visibility API is not served: visibility.enable must be true in the manager's configuration, and config/visibility applied"
}

// isUnserved reports whether the API is not served, as opposed to a queue that does not exist.
func isUnserved(err error) bool {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsNotFound(err) {
		return status.ErrStatus.Details == nil || status.ErrStatus.Details.Group == ""
	}
	return apierrors.IsServiceUnavailable(err)
}
