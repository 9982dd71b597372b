// Package query connects verbs with a cluster, and asks its visibility API.
package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
)

const visibilityPath = "/apis/visibility.kueue.x-k8s.io/v1beta2"

// Flags select the cluster and the namespace of a command.
type Flags struct {
	Kubeconfig, Namespace string
	// Version is that of the program. It is part of the user agent.
	Version string
}

// Add adds the flags to a command.
func (f *Flags) Add(cmd *cobra.Command) {
	f.AddKubeconfig(cmd)
	cmd.Flags().StringVarP(&f.Namespace, "namespace", "n", "", "namespace; defaults to the namespace of the kubeconfig's context")
	f.CompleteFlag(cmd, "namespace", Namespaces)
}

// AddKubeconfig adds the flag that selects the cluster.
func (f *Flags) AddKubeconfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig file; defaults to $KUBECONFIG, then to ~/.kube/config")
}

// A Cluster answers requests of a user.
type Cluster struct {
	client.Client
	raw *rest.RESTClient
	// Namespace is the default namespace.
	Namespace string
}

// NewScheme returns a scheme with every kind that the manager and the verbs read or write.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme, jobsetapi.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// LoadKubeconfig reads a kubeconfig file. Without a path it reads $KUBECONFIG, ~/.kube/config, or the ServiceAccount of the pod. The version of the
// program becomes part of the user agent. Errors are bad input.
func LoadKubeconfig(path, version string) (clientcmd.ClientConfig, *rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) && path == "" {
		return nil, nil, exitcode.AsBadInput(errors.New("read kubeconfig: no configuration has been provided: name a file with --kubeconfig or $KUBECONFIG"))
	}
	if err != nil {
		return nil, nil, exitcode.AsBadInput(fmt.Errorf("read kubeconfig %q: %w", path, err))
	}
	config.UserAgent = "tranche/" + version
	return loader, config, nil
}

// Connect returns a client of the selected cluster.
func (f *Flags) Connect() (*Cluster, error) {
	loader, config, err := LoadKubeconfig(f.Kubeconfig, f.Version)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Namespace: f.Namespace}
	if c.Namespace == "" {
		if c.Namespace, _, err = loader.Namespace(); err != nil {
			return nil, fmt.Errorf("read the namespace of kubeconfig %q: %w", f.Kubeconfig, err)
		}
	}
	scheme, err := NewScheme()
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

// ConnectToRead returns a client without a limit of its own: the API server limits what it serves to each user.
func (f *Flags) ConnectToRead() (client.Client, error) {
	_, config, err := LoadKubeconfig(f.Kubeconfig, f.Version)
	if err != nil {
		return nil, err
	}
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return c, nil
}

// Parameters are those of a request about a queue. Zero means the server's defaults.
type Parameters struct {
	Limit, Offset int64
	// Only picks one quota Workload.
	Only types.NamespacedName
}

// Pending returns the pending quota Workloads of a LocalQueue, or of a ClusterQueue if the namespace is empty.
func (c *Cluster) Pending(ctx context.Context, queue types.NamespacedName, q Parameters) (*visibility.PendingWorkloadsSummary, error) {
	what, path := "ClusterQueue "+queue.Name, []string{visibilityPath, "clusterqueues", queue.Name, "pendingworkloads"}
	if queue.Namespace != "" {
		what, path = "LocalQueue "+queue.String(), []string{visibilityPath, "namespaces", queue.Namespace, "localqueues", queue.Name, "pendingworkloads"}
	}
	request := c.raw.Get().AbsPath(path...)
	for name, value := range map[string]int64{"limit": q.Limit, "offset": q.Offset} {
		if value != 0 {
			request.Param(name, strconv.FormatInt(value, 10))
		}
	}
	if q.Only.Name != "" {
		request.Param("fieldSelector", "metadata.namespace="+q.Only.Namespace+",metadata.name="+q.Only.Name)
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
