package install_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// doctor runs tranche doctor until its report has some texts, and the exit code is 0 or not.
func (c *cluster) doctor(t *testing.T, isHealthy bool, wanted ...string) {
	t.Helper()
	var last string
	report := func(ctx context.Context) (bool, error) {
		out, err := c.try(ctx, "bin/tranche", "doctor")
		if ctx.Err() == nil {
			last = out
		}
		return (err == nil) == isHealthy && !slices.ContainsFunc(wanted, func(want string) bool { return !strings.Contains(out, want) }), nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), poll, patience, true, report); err != nil {
		t.Fatalf("tranche doctor does not report %q: %v\n%s", wanted, err, last)
	}
}

// examinesItself damages the installation in many ways, one after the other, and expects that tranche doctor finds each of them and nothing else.
func (c *cluster) examinesItself(t *testing.T) {
	const fine = "No problems."
	c.doctor(t, true, "Service tranche-system/tranche-metrics has no endpoint that is ready", "1 warning.")
	c.addressManagers(t)
	c.doctor(t, true, fine, "Kubernetes", " leads since ", "1 ClusterQueue and 1 LocalQueue are active")
	for name, damage := range map[string]struct {
		do, undo []string
		// isError is true if the exit code is 1 then.
		isError bool
		want    []string
	}{
		"a binding is gone": {
			[]string{"delete", "validatingadmissionpolicybinding", "tranche-guard-jobs"},
			[]string{"apply", "--server-side", "-k", "config/policies"},
			true,
			[]string{"1 object missing: ValidatingAdmissionPolicyBinding tranche-guard-jobs", "-> apply config/policies again", "1 error."},
		},
		"a policy was changed": {
			[]string{"patch", "validatingadmissionpolicy", "tranche-guard-jobs", "--type=merge", "-p", `{"spec":{"failurePolicy":"Ignore"}}`},
			[]string{"apply", "--server-side", "--force-conflicts", "-k", "config/policies"},
			false,
			[]string{"1 object different from this version: ValidatingAdmissionPolicy tranche-guard-jobs", "1 warning."},
		},
		"a right is gone": {
			[]string{"delete", "clusterrolebinding", "tranche-manager"},
			[]string{"apply", "--server-side", "-k", "config/rbac"},
			true,
			[]string{"1 object missing: ClusterRoleBinding tranche-manager", "1 error."},
		},
		"a LocalQueue is stopped": {
			[]string{"patch", "localqueue", "-n", "team", "main", "--type=merge", "-p", `{"spec":{"stopPolicy":"Hold"}}`},
			[]string{"patch", "localqueue", "-n", "team", "main", "--type=merge", "-p", `{"spec":{"stopPolicy":"None"}}`},
			false,
			[]string{"LocalQueue team/main is stopped: spec.stopPolicy is Hold", "1 warning."},
		},
		"a flavor has no nodes": {
			[]string{"patch", "resourceflavor", "cpu", "--type=merge", "-p", `{"spec":{"nodeLabels":{"pool":"none"}}}`},
			[]string{"patch", "resourceflavor", "cpu", "--type=json", "-p", `[{"op":"remove","path":"/spec/nodeLabels"}]`},
			false,
			[]string{"ResourceFlavor cpu: no node has the labels pool=none", "-> kubectl label node NAME pool=none", "1 warning."},
		},
		"the metrics have no Service": {
			[]string{"delete", "service", "-n", "tranche-system", "tranche-metrics"},
			[]string{"apply", "--server-side", "-f", "config/manager/metrics_service.yaml"},
			false,
			[]string{"Service tranche-system/tranche-metrics does not exist", "1 warning."},
		},
		"the visibility API has no server": {
			[]string{"apply", "--server-side", "-k", "config/visibility"},
			[]string{"delete", "-k", "config/visibility"},
			true,
			[]string{"APIService v1beta2.visibility.kueue.x-k8s.io is not available", "no namespace can be deleted until then", "1 error."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.kubectl(t, damage.do...)
			c.doctor(t, !damage.isError, damage.want...)
			c.kubectl(t, damage.undo...)
			c.doctor(t, true, fine)
		})
	}
	t.Run("a ClusterQueue names a flavor that does not exist", func(t *testing.T) {
		q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{Name: "nowhere", Resources: []kueue.ResourceQuota{{Name: "cpu"}}}},
		}}}}
		if err := c.Admin.Create(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		c.doctor(t, false, "ClusterQueue broken admits nothing: FlavorNotFound", "1 error.")
		c.kubectl(t, "delete", "clusterqueue", "broken")
		c.doctor(t, true, fine)
	})
	t.Run("a webhook of others is in the way", func(t *testing.T) {
		none := admissionregistrationv1.SideEffectClassNone
		err := c.Admin.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "gone"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "jobs.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "team", Name: "uninstalled"}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"none": "has-it"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"batch"}, APIVersions: []string{"v1"}, Resources: []string{"jobs"}},
			}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		c.doctor(t, false, "webhook jobs.example.com of ValidatingWebhookConfiguration gone: Service team/uninstalled has no endpoint", "writes of jobs", "1 error.")
		c.kubectl(t, "delete", "validatingwebhookconfiguration", "gone")
		c.doctor(t, true, fine)
	})
	t.Run("a user without rights", func(t *testing.T) {
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		if err := c.Plane.Kubeconfig(kubeconfig, "tenant"); err != nil {
			t.Fatal(err)
		}
		out, err := c.try(t.Context(), "bin/tranche", "doctor", "-o", "json", "--kubeconfig", kubeconfig)
		if err != nil || !strings.Contains(out, `"level": "Unknown"`) || strings.Contains(out, `"level": "Error"`) {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// addressManagers gives the pods of the Deployment addresses, which fake nodes do not: without them a Service has no endpoints.
func (c *cluster) addressManagers(t *testing.T) {
	t.Helper()
	var pods corev1.PodList
	if err := c.Admin.List(t.Context(), &pods, client.InNamespace(apis.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		status := &pods.Items[i].Status
		status.PodIP = fmt.Sprintf("192.0.2.%d", i+1)
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
		if err := c.Admin.Status().Update(t.Context(), &pods.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
}
