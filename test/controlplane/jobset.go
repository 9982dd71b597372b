package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// JobSetUser is who the JobSet controller is.
const JobSetUser = "system:serviceaccount:jobset-system:jobset-controller-manager"

// webhooks are the webhook configurations of a controller.
type webhooks struct {
	mutating   admissionv1.MutatingWebhookConfiguration
	validating admissionv1.ValidatingWebhookConfiguration
}

// defineJobSet describes the stock JobSet controller and points its webhooks at this machine.
func (p *ControlPlane) defineJobSet() error {
	webhookPort, err := FreePort()
	if err != nil {
		return err
	}
	healthPort, err := FreePort()
	if err != nil {
		return err
	}
	certificate, err := p.authority.server(loopback)
	if err != nil {
		return err
	}
	if err := certificate.write(p.path(JobSet), "tls.crt", "tls.key"); err != nil {
		return err
	}
	if err := p.writeJobSetConfig(webhookPort, healthPort); err != nil {
		return err
	}
	urls, err := p.rewireWebhooks("https://" + address(webhookPort))
	if err != nil {
		return err
	}
	checks := []func(context.Context) error{answers("http://" + address(healthPort) + "/readyz")}
	for _, url := range urls {
		// The server is up before its handlers are there. A handler also answers a GET, with the missing parts.
		checks = append(checks, answers(url))
	}
	return p.addProgram(JobSet, JobSetUser, &program{
		args:  []string{"--config=" + p.path(JobSet, "config.yaml"), "--zap-log-level=info"},
		env:   []string{"TMPDIR=" + p.path(JobSet)},
		ready: func(ctx context.Context) error { return firstError(ctx, checks) },
	})
}

// writeJobSetConfig writes the file for the controller's flag --config.
func (p *ControlPlane) writeJobSetConfig(webhookPort, healthPort int) error {
	content, err := yaml.Marshal(map[string]any{
		"apiVersion":             "config.jobset.x-k8s.io/v1alpha1",
		"kind":                   "Configuration",
		"clientConnection":       map[string]any{"qps": 500, "burst": 1000},
		"featureGates":           p.config.JobSetFeatureGates,
		"health":                 map[string]any{"healthProbeBindAddress": address(healthPort)},
		"internalCertManagement": map[string]any{"enable": false},
		"leaderElection":         map[string]any{"leaderElect": false},
		"metrics":                map[string]any{"bindAddress": "0"},
		"webhook":                map[string]any{"host": loopback, "port": webhookPort, "certDir": p.path(JobSet)},
	})
	if err != nil {
		return fmt.Errorf("encode the configuration of the JobSet controller: %w", err)
	}
	if err := os.WriteFile(p.path(JobSet, "config.yaml"), content, 0o600); err != nil {
		return fmt.Errorf("write the configuration of the JobSet controller: %w", err)
	}
	return nil
}

// rewireWebhooks reads the stock webhook configurations, which name a Service, and points them at the URL of this machine
// instead. It returns the URLs that the controller has to serve.
func (p *ControlPlane) rewireWebhooks(base string) ([]string, error) {
	w := &p.webhooks
	if err := p.readManifest([]any{&w.mutating, &w.validating}, "jobset", "webhooks.yaml"); err != nil {
		return nil, err
	}
	w.mutating.Name, w.validating.Name = "jobset-mutating-webhook-configuration", "jobset-validating-webhook-configuration"
	var urls []string
	w.each(func(_ string, config *admissionv1.WebhookClientConfig, selectors selectors, rules []admissionv1.RuleWithOperations) {
		urls = append(urls, rewire(config, base, p.authority.pair.certificate))
		onPods := func(rule admissionv1.RuleWithOperations) bool { return slices.Contains(rule.Resources, "pods") }
		if slices.ContainsFunc(rules, onPods) {
			// Upstream's kustomization narrows the pod webhooks like this.
			*selectors.object = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "jobset.sigs.k8s.io/jobset-name", Operator: metav1.LabelSelectorOpExists},
			}}
		}
	})
	return urls, nil
}

// selectors are those of one webhook.
type selectors struct{ object, namespace **metav1.LabelSelector }

// each calls a function for each webhook, mutating ones first.
func (w *webhooks) each(do func(name string, config *admissionv1.WebhookClientConfig, selectors selectors, rules []admissionv1.RuleWithOperations)) {
	for i := range w.mutating.Webhooks {
		hook := &w.mutating.Webhooks[i]
		do(hook.Name, &hook.ClientConfig, selectors{&hook.ObjectSelector, &hook.NamespaceSelector}, hook.Rules)
	}
	for i := range w.validating.Webhooks {
		hook := &w.validating.Webhooks[i]
		do(hook.Name, &hook.ClientConfig, selectors{&hook.ObjectSelector, &hook.NamespaceSelector}, hook.Rules)
	}
}

// rewire lets a webhook name the URL of this machine in place of a Service, and returns it.
func rewire(config *admissionv1.WebhookClientConfig, base string, authority []byte) string {
	url := base + *config.Service.Path
	*config = admissionv1.WebhookClientConfig{URL: &url, CABundle: authority}
	return url
}

// readManifest reads the documents of one of the files that the build keeps next to the binaries.
func (p *ControlPlane) readManifest(into []any, elements ...string) error {
	return readManifest(into, filepath.Join(append([]string{p.binDir, "manifests"}, elements...)...))
}

func readManifest(into []any, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read a manifest: %w", err)
	}
	documents := slices.DeleteFunc(strings.Split("\n"+string(content), "\n---\n"), func(document string) bool {
		return strings.TrimSpace(document) == ""
	})
	if len(documents) != len(into) {
		return fmt.Errorf("read %s: it has %d documents, want %d", path, len(documents), len(into))
	}
	for i, document := range documents {
		if err := yaml.UnmarshalStrict([]byte(document), into[i]); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
	}
	return nil
}
