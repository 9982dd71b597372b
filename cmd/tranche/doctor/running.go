package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/snapshot/collect"
)

// A hook is a webhook of either kind.
type hook struct {
	configuration, name string
	service             *admissionregistrationv1.ServiceReference
	rules               []admissionregistrationv1.RuleWithOperations
	failsOpen           bool
}

// webhooks checks that a server answers the webhooks about what Tranche and its users write, and that Kueue's manager is there only in the mode for it.
func (e *examination) webhooks(ctx context.Context, c *check) error {
	hooks, err := e.hooks(ctx)
	if err != nil {
		return err
	}
	answered, concerned, ofKueue := map[string]bool{}, 0, ""
	for i := range hooks {
		h := &hooks[i]
		if h.service != nil && strings.HasPrefix(ptr.Deref(h.service.Path, ""), "/validate-kueue-x-k8s-io-") {
			ofKueue = h.configuration
		}
		if h.failsOpen || h.service == nil || !slices.ContainsFunc(h.rules, concerns) {
			continue
		}
		concerned++
		key := h.service.Namespace + "/" + h.service.Name
		if _, known := answered[key]; !known {
			ready, err := e.readyEndpoints(ctx, h.service.Namespace, h.service.Name)
			if err != nil {
				return err
			}
			answered[key] = ready > 0
		}
		if !answered[key] {
			c.fail("repair what serves it, or delete the configuration if that was uninstalled",
				"webhook %s of %s: Service %s has no endpoint that is ready, so the API server refuses writes of %s", h.name, h.configuration, key, resourcesOf(h.rules))
		}
	}
	switch {
	case ofKueue != "" && e.mode != configapi.ModeBeside:
		c.fail("install config/beside; or, to replace Kueue, stop its manager and delete its webhook configurations", "%s is of Kueue's manager, which admits in the same queues", ofKueue)
	case ofKueue == "" && e.mode == configapi.ModeBeside:
		c.fail("install Kueue 0.19 or later; or, to replace it, install config/default", "the mode is Beside, and Kueue's manager is not installed")
	}
	c.fine = plural(concerned, "webhook") + " of others about JobSets, Jobs, pods and queues"
	return nil
}

func (e *examination) hooks(ctx context.Context) ([]hook, error) {
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := e.client.List(ctx, &validating); err != nil {
		return nil, fmt.Errorf("list ValidatingWebhookConfigurations: %w", err)
	}
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	if err := e.client.List(ctx, &mutating); err != nil {
		return nil, fmt.Errorf("list MutatingWebhookConfigurations: %w", err)
	}
	var hooks []hook
	for i := range validating.Items {
		for _, w := range validating.Items[i].Webhooks {
			hooks = append(hooks, hook{"ValidatingWebhookConfiguration " + validating.Items[i].Name, w.Name, w.ClientConfig.Service, w.Rules, ignores(w.FailurePolicy)})
		}
	}
	for i := range mutating.Items {
		for _, w := range mutating.Items[i].Webhooks {
			hooks = append(hooks, hook{"MutatingWebhookConfiguration " + mutating.Items[i].Name, w.Name, w.ClientConfig.Service, w.Rules, ignores(w.FailurePolicy)})
		}
	}
	return hooks, nil
}

func ignores(policy *admissionregistrationv1.FailurePolicyType) bool {
	return policy != nil && *policy == admissionregistrationv1.Ignore
}

// concerns reports whether a rule is about objects that Tranche or the JobSet controller writes, or that its users do.
func concerns(rule admissionregistrationv1.RuleWithOperations) bool {
	matches := func(names []string, name string) bool {
		return slices.Contains(names, name) || slices.Contains(names, "*")
	}
	for _, one := range []schema.GroupResource{
		{Group: "jobset.x-k8s.io", Resource: "jobsets"},
		{Group: "batch", Resource: "jobs"},
		{Resource: "pods"},
		{Group: "kueue.x-k8s.io", Resource: "workloads"},
		{Group: "kueue.x-k8s.io", Resource: "clusterqueues"},
		{Group: "kueue.x-k8s.io", Resource: "localqueues"},
	} {
		if matches(rule.APIGroups, one.Group) && (matches(rule.Resources, one.Resource) || slices.Contains(rule.Resources, "*/*")) {
			return true
		}
	}
	return false
}

func resourcesOf(rules []admissionregistrationv1.RuleWithOperations) string {
	var names []string
	for i := range rules {
		for _, name := range rules[i].Resources {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return list(names)
}

// readyEndpoints returns how many endpoints of a Service are ready.
func (e *examination) readyEndpoints(ctx context.Context, namespace, name string) (ready int, err error) {
	var slicesOfService discoveryv1.EndpointSliceList
	if err := e.client.List(ctx, &slicesOfService, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: name}); err != nil {
		return 0, fmt.Errorf("list the EndpointSlices of Service %s/%s: %w", namespace, name, err)
	}
	for i := range slicesOfService.Items {
		for _, endpoint := range slicesOfService.Items[i].Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, true) {
				ready++
			}
		}
	}
	return ready, nil
}

// managerLabels select the pods of the manager, as in config/manager and the chart.
var managerLabels = client.MatchingLabels{"app.kubernetes.io/name": "tranche", "app.kubernetes.io/component": "manager"}

// manager checks the pods of the manager and its Lease.
func (e *examination) manager(ctx context.Context, c *check) error {
	var pods corev1.PodList
	if err := e.client.List(ctx, &pods, client.InNamespace(apis.SystemNamespace), managerLabels); err != nil {
		return fmt.Errorf("list the pods of namespace %s: %w", apis.SystemNamespace, err)
	}
	for i := range pods.Items {
		if why := whyNotReady(&pods.Items[i]); why != "" {
			c.warn(fmt.Sprintf("kubectl -n %s logs %s, or kubectl -n %[1]s describe pod %[2]s", apis.SystemNamespace, pods.Items[i].Name), "pod %s is not ready: %s", pods.Items[i].Name, why)
		}
	}
	if !e.isElected {
		c.fine = plural(len(pods.Items), "pod") + " without leader election"
		return nil
	}
	if why, err := collect.WhyNoLeader(ctx, e.client, e.now); err != nil || why != "" {
		c.fail(fmt.Sprintf("start a manager, or see why none runs: kubectl -n %s get pods", apis.SystemNamespace), "%s", why)
		return err
	}
	var lease coordinationv1.Lease
	key := client.ObjectKey{Namespace: apis.SystemNamespace, Name: apis.ManagerServiceAccount}
	switch err := e.client.Get(ctx, key, &lease); {
	case apierrors.IsNotFound(err) || err == nil && lease.Spec.RenewTime == nil:
		c.fail(fmt.Sprintf("start a manager, or see why none runs: kubectl -n %s get pods", apis.SystemNamespace), "no manager has led yet (Lease %s)", key)
		return nil
	case err != nil:
		return fmt.Errorf("read Lease %s: %w", key, err)
	}
	c.fine = leaderText(&lease, pods.Items)
	return nil
}

// leaderText says who leads, since when, and with which image.
func leaderText(lease *coordinationv1.Lease, pods []corev1.Pod) string {
	holder, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	text := holder + " leads"
	if since := lease.Spec.AcquireTime; since != nil {
		text += " since " + since.UTC().Format(time.RFC3339)
	}
	leads := func(pod corev1.Pod) bool { return pod.Name == holder && len(pod.Spec.Containers) > 0 }
	if i := slices.IndexFunc(pods, leads); i >= 0 {
		text += ", with image " + pods[i].Spec.Containers[0].Image
	}
	if len(pods) > 0 {
		text += "; " + plural(len(pods), "pod") + " in all"
	}
	return text
}

// whyNotReady returns why a pod is not ready, or "".
func whyNotReady(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil {
			return strings.TrimSuffix(waiting.Reason+": "+waiting.Message, ": ")
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Status != corev1.ConditionTrue && (condition.Type == corev1.PodReady || condition.Type == corev1.PodScheduled) {
			return strings.TrimSuffix(condition.Reason+": "+condition.Message, ": ")
		}
	}
	return ""
}

const (
	metricsService        = "tranche-metrics"
	visibilityAPIService  = "v1beta2.visibility.kueue.x-k8s.io"
	visibilityDescription = "the visibility API"
)

// services checks that the metrics and the visibility API can be reached.
func (e *examination) services(ctx context.Context, c *check) error {
	c.fine = "metrics"
	key := client.ObjectKey{Namespace: apis.SystemNamespace, Name: metricsService}
	switch err := e.client.Get(ctx, key, &corev1.Service{}); {
	case apierrors.IsNotFound(err):
		c.warn("apply config/manager/metrics_service.yaml", "Service %s does not exist: Prometheus finds no metrics", key)
	case err != nil:
		return fmt.Errorf("read Service %s: %w", key, err)
	default:
		ready, err := e.readyEndpoints(ctx, key.Namespace, key.Name)
		if err != nil {
			return err
		}
		if ready == 0 {
			c.warn("see why no pod of the manager is ready", "Service %s has no endpoint that is ready: Prometheus finds no metrics", key)
		}
	}
	service := &unstructured.Unstructured{}
	service.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	service.SetName(visibilityAPIService)
	got, err := e.get(ctx, service)
	switch {
	case err != nil:
		return err
	case got == nil:
		c.fine += "; " + visibilityDescription + " is not installed, so commands read the objects instead"
	default:
		checkVisibility(c, got)
	}
	return nil
}

// checkVisibility checks that the APIService of the visibility API is available. Namespaces cannot be deleted while it is not.
func checkVisibility(c *check, service *unstructured.Unstructured) {
	conditions, _, _ := unstructured.NestedSlice(service.Object, "status", "conditions")
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == "Available" && fields["status"] != string(metav1.ConditionTrue) {
			c.fail("set visibility.enable in the configuration of the manager, or delete the APIService: no namespace can be deleted until then",
				"APIService %s is not available: %v", service.GetName(), fields["message"])
			return
		}
	}
	c.fine += " and " + visibilityDescription
}
