package controlplane

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	// KueueNamespace is where Kueue's manager is installed.
	KueueNamespace = "kueue-system"
	// KueueUser is who Kueue's manager is.
	KueueUser = "system:serviceaccount:" + KueueNamespace + ":kueue-controller-manager"

	// kueueConversions is where Kueue's manager converts the versions of its objects.
	kueueConversions = "/convert"
	// kueueAuthority is the name that Kueue's manager expects in the certificate of the authority that signed its own.
	kueueAuthority = "kueue-ca"
	kueueWebhooks  = "kueue-webhook-service"
	kueueSecret    = "kueue-webhook-server-cert"
)

// KueueOptions configure Kueue's manager. The zero value is what a cluster has in which Tranche admits or stages JobSets: the integrations
// batch/job and pod.
type KueueOptions struct {
	// Settings are merged over the fields of its configuration file, the topmost ones.
	Settings map[string]any
}

// kueueSetup is what Kueue's manager is started with, if there is Kueue.
type kueueSetup struct {
	dir    string         // of its binaries and manifests
	url    string         // of its webhooks
	base   map[string]any // its configuration file without the options
	ca     []byte         // by which their certificate is signed
	secret *corev1.Secret
	hooks  webhooks
}

// defineKueue describes Kueue's manager and points its webhooks at this machine.
func (p *ControlPlane) defineKueue() error {
	if p.config.Kueue == nil {
		return nil
	}
	var ports [2]int
	for i := range ports {
		var err error
		if ports[i], err = FreePort(); err != nil {
			return err
		}
	}
	webhookPort, healthPort := ports[0], ports[1]
	if err := p.certifyKueue(); err != nil {
		return err
	}
	p.kueue.base = p.kueueConfig(webhookPort, healthPort)
	if err := p.writeKueueConfig(*p.config.Kueue); err != nil {
		return err
	}
	p.kueue.url = "https://" + address(webhookPort)
	urls, err := p.rewireKueueWebhooks()
	if err != nil {
		return err
	}
	checks := []func(context.Context) error{answers("http://" + address(healthPort) + "/readyz")}
	for _, url := range urls {
		checks = append(checks, answers(url))
	}
	err = p.addProgram(Kueue, KueueUser, &program{
		args:  []string{"--config=" + p.path(Kueue, "config.yaml"), "--zap-log-level=2"},
		env:   []string{"TMPDIR=" + p.path(Kueue)},
		ready: func(ctx context.Context) error { return firstError(ctx, checks) },
	})
	if err != nil {
		return err
	}
	kueue := p.components[len(p.components)-1].(*program) //nolint:forcetypeassert // it was just added
	kueue.path = filepath.Join(p.kueue.dir, Kueue)
	return nil
}

// certifyKueue writes the certificates of Kueue's webhooks, and prepares the Secret in which its manager keeps them: with a valid one it makes no
// other, which would be for the name of a Service that nothing resolves here. That leaves its own management of certificates on, since the
// certificate of its metrics could otherwise be in one directory of the machine only.
func (p *ControlPlane) certifyKueue() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048) // it takes no key of another kind
	if err != nil {
		return fmt.Errorf("make the key of Kueue's certificate authority: %w", err)
	}
	signer, err := newAuthorityWith(key, kueueAuthority)
	if err != nil {
		return err
	}
	certificate, err := signer.server(loopback, kueueWebhooks+"."+KueueNamespace+".svc")
	if err != nil {
		return err
	}
	p.kueue.ca = signer.pair.certificate
	p.kueue.secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: KueueNamespace, Name: kueueSecret},
		Data: map[string][]byte{
			"ca.crt": signer.pair.certificate, "ca.key": pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
			"tls.crt": certificate.certificate, "tls.key": certificate.key,
		},
	}
	return certificate.write(p.path(Kueue), "tls.crt", "tls.key")
}

// RestartKueue ends Kueue's manager and starts it with other options.
func (p *ControlPlane) RestartKueue(ctx context.Context, options KueueOptions) error {
	if err := p.StopComponent(Kueue); err != nil {
		return err
	}
	if err := p.writeKueueConfig(options); err != nil {
		return err
	}
	return p.StartComponent(ctx, Kueue)
}

// kueueConfig is the configuration file of the manager for the zero options.
func (p *ControlPlane) kueueConfig(webhookPort, healthPort int) map[string]any {
	return map[string]any{
		"apiVersion":             "config.kueue.x-k8s.io/v1beta2",
		"kind":                   "Configuration",
		"namespace":              KueueNamespace,
		"clientConnection":       map[string]any{"qps": 500, "burst": 1000},
		"featureGates":           map[string]any{"VisibilityOnDemand": false},
		"health":                 map[string]any{"healthProbeBindAddress": address(healthPort)},
		"integrations":           map[string]any{"frameworks": []string{"batch/job", "pod"}},
		"internalCertManagement": map[string]any{"enable": true, "webhookServiceName": kueueWebhooks, "webhookSecretName": kueueSecret},
		"leaderElection":         map[string]any{"leaderElect": false},
		"metrics":                map[string]any{"bindAddress": "0"},
		"webhook":                map[string]any{"host": loopback, "port": webhookPort, "certDir": p.path(Kueue)},
	}
}

// writeKueueConfig writes the file for the manager's flag --config.
func (p *ControlPlane) writeKueueConfig(options KueueOptions) error {
	settings := maps.Clone(p.kueue.base)
	maps.Copy(settings, options.Settings)
	content, err := yaml.Marshal(settings)
	if err != nil {
		return fmt.Errorf("encode the configuration of Kueue: %w", err)
	}
	if err := os.WriteFile(p.path(Kueue, "config.yaml"), content, 0o600); err != nil {
		return fmt.Errorf("write the configuration of Kueue: %w", err)
	}
	return nil
}

// rewireKueueWebhooks reads Kueue's webhook configurations and points them at this machine. It returns the URLs that the manager has to serve.
func (p *ControlPlane) rewireKueueWebhooks() ([]string, error) {
	w := &p.kueue.hooks
	if err := p.readKueueManifest([]any{&w.mutating, &w.validating}, "webhooks.yaml"); err != nil {
		return nil, err
	}
	w.mutating.Name, w.validating.Name = "kueue-mutating-webhook-configuration", "kueue-validating-webhook-configuration"
	var urls []string
	w.each(func(_ string, config *admissionv1.WebhookClientConfig, selectors selectors, rules []admissionv1.RuleWithOperations) {
		urls = append(urls, rewire(config, p.kueue.url, p.kueue.ca))
		onQueues := func(rule admissionv1.RuleWithOperations) bool {
			return slices.Contains(rule.APIGroups, "kueue.x-k8s.io")
		}
		if !slices.ContainsFunc(rules, onQueues) {
			// Upstream's kustomization leaves the namespaces of the system out of the webhooks of all jobs.
			*selectors.namespace = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{metav1.NamespaceSystem, KueueNamespace},
			}}}
		}
	})
	return urls, nil
}

// kueueCRDs are Kueue's CRDs, as its kustomization patches them: its manager converts some.
func (p *ControlPlane) kueueCRDs() ([]*apiextensions.CustomResourceDefinition, error) {
	files, err := filepath.Glob(filepath.Join(p.kueue.dir, "manifests", Kueue, "crd", "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(fmt.Errorf("find Kueue's CRDs in %s", p.kueue.dir), err)
	}
	converted := []string{"LocalQueue", "ClusterQueue", "Cohort", "Workload", "MultiKueueCluster"}
	var crds []*apiextensions.CustomResourceDefinition
	for _, file := range files {
		crd := &apiextensions.CustomResourceDefinition{}
		if err := p.readKueueManifest([]any{crd}, "crd", filepath.Base(file)); err != nil {
			return nil, err
		}
		if slices.Contains(converted, crd.Spec.Names.Kind) {
			url := p.kueue.url + kueueConversions
			crd.Spec.Conversion = &apiextensions.CustomResourceConversion{Strategy: apiextensions.WebhookConverter, Webhook: &apiextensions.WebhookConversion{
				ClientConfig:             &apiextensions.WebhookClientConfig{URL: &url, CABundle: p.kueue.ca},
				ConversionReviewVersions: []string{"v1"},
			}}
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// kueueObjects are what Kueue's manager needs before it starts: its namespace, its permissions and no others, its webhooks and its Secret.
func (p *ControlPlane) kueueObjects() ([]client.Object, error) {
	if p.config.Kueue == nil {
		return nil, nil
	}
	manager, metrics := &rbacv1.ClusterRole{}, &rbacv1.ClusterRole{}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: KueueNamespace}}, p.kueue.secret, &p.kueue.hooks.mutating, &p.kueue.hooks.validating,
	}
	for file, role := range map[string]*rbacv1.ClusterRole{"role.yaml": manager, "metrics_auth_role.yaml": metrics} {
		if err := p.readKueueManifest([]any{role}, file); err != nil {
			return nil, err
		}
		role.Name = "kueue-" + role.Name
		for i := range role.Rules {
			for j, name := range role.Rules[i].ResourceNames {
				if slices.Contains([]string{"mutating-webhook-configuration", "validating-webhook-configuration"}, name) {
					role.Rules[i].ResourceNames[j] = "kueue-" + name
				}
			}
		}
		objects = append(objects, role, bind(role.Name, KueueUser))
	}
	for _, file := range []string{"leader_election_role.yaml", "manager_secrets_role.yaml", "manager_clusterprofiles_role.yaml"} {
		role := &rbacv1.Role{}
		if err := p.readKueueManifest([]any{role}, file); err != nil {
			return nil, err
		}
		role.Namespace, role.Name = KueueNamespace, "kueue-"+role.Name
		everywhere := bind(role.Name, KueueUser)
		binding := &rbacv1.RoleBinding{RoleRef: everywhere.RoleRef, Subjects: everywhere.Subjects}
		binding.Namespace, binding.Name, binding.RoleRef.Kind = role.Namespace, role.Name, "Role"
		objects = append(objects, role, binding)
	}
	return objects, nil
}

func (p *ControlPlane) readKueueManifest(into []any, elements ...string) error {
	return readManifest(into, filepath.Join(append([]string{p.kueue.dir, "manifests", Kueue}, elements...)...))
}

func firstError(ctx context.Context, checks []func(context.Context) error) error {
	for _, check := range checks {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}
