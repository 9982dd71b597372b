package main

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

func TestIsPinned(t *testing.T) {
	pinned := metav1.ObjectMeta{Finalizers: []string{kueue.ResourceInUseFinalizerName}}
	stage := pinned
	stage.Labels = map[string]string{apis.StageLabel: "first"}
	ours := metav1.ObjectMeta{Finalizers: []string{apis.QuotaInUseFinalizer}, Labels: stage.Labels}
	for _, c := range []struct {
		name            string
		object          client.Object
		instead, beside bool
	}{
		{"quota Workload of a stage", &kueue.Workload{ObjectMeta: stage}, true, true},
		{"quota Workload of a stage with the finalizer of Tranche", &kueue.Workload{ObjectMeta: ours}, true, true},
		{"Workload of another job", &kueue.Workload{ObjectMeta: pinned}, true, false},
		{"ClusterQueue", &kueue.ClusterQueue{ObjectMeta: pinned}, true, false},
		{"ClusterQueue with the label of a stage", &kueue.ClusterQueue{ObjectMeta: stage}, true, false},
		{"ResourceFlavor", &kueue.ResourceFlavor{ObjectMeta: pinned}, true, false},
		{"Workload without the finalizer", &kueue.Workload{}, false, false},
	} {
		if got := (&inventory{}).isPinned(c.object); got != c.instead {
			t.Errorf("%s: pinned is %t", c.name, got)
		}
		if got := (&inventory{hasKueue: true}).isPinned(c.object); got != c.beside {
			t.Errorf("%s: pinned is %t beside Kueue", c.name, got)
		}
	}
}

func TestDependentQueues(t *testing.T) {
	queue := func(name string, check kueue.AdmissionCheckReference) kueue.ClusterQueue {
		return kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{
			AdmissionChecksStrategy: &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: check}}},
		}}
	}
	check := func(name, controller string) kueue.AdmissionCheck {
		return kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{ControllerName: controller}}
	}
	taken := kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "c", Annotations: map[string]string{apis.EngineAnnotation: apis.EngineTranche}}}
	got := dependentQueues([]kueue.ClusterQueue{queue("a", "safe"), queue("b", "other"), taken, {}},
		[]kueue.AdmissionCheck{check("safe", apis.StageSafetyController), check("other", "kueue.x-k8s.io/provisioning-request")})
	if len(got) != 2 || !strings.Contains(got[0], "ClusterQueue a: remove AdmissionCheck safe") || !strings.Contains(got[1], "ClusterQueue c: it was taken over") {
		t.Errorf("dependent: %q", got)
	}
}

func TestIsOfKueue(t *testing.T) {
	config := func(resource string) admissionregistrationv1.ValidatingWebhookConfiguration {
		rule := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{APIGroups: []string{"kueue.x-k8s.io"}, Resources: []string{resource}}}
		return admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: []admissionregistrationv1.ValidatingWebhook{{Rules: []admissionregistrationv1.RuleWithOperations{rule}}}}
	}
	if !isOfKueue(config("clusterqueues")) || isOfKueue(config("workloads")) {
		t.Error("Kueue is known by its webhook for ClusterQueues")
	}
	// A manager refuses to run because of Kueue's own webhook only: another one may validate ClusterQueues, too.
	for path, want := range map[string]bool{"/validate-kueue-x-k8s-io-v1beta2-clusterqueue": true, "/validate": false, "": false} {
		c := config("clusterqueues")
		c.Name = "kueue"
		address := "https://127.0.0.1:9443" + path
		for _, at := range []admissionregistrationv1.WebhookClientConfig{{Service: &admissionregistrationv1.ServiceReference{Path: &path}}, {URL: &address}} {
			c.Webhooks[0].ClientConfig = at
			err := checkNoKueue([]admissionregistrationv1.ValidatingWebhookConfiguration{config("workloads"), c})
			if (err != nil) != want || err != nil && !strings.Contains(err.Error(), "ValidatingWebhookConfiguration kueue is that of Kueue's manager") {
				t.Errorf("webhook at %+v: %v", at, err)
			}
			err = checkInstalled([]admissionregistrationv1.ValidatingWebhookConfiguration{config("workloads"), c})
			if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "no ValidatingWebhookConfiguration is that of Kueue's manager") {
				t.Errorf("beside, webhook at %+v: %v", at, err)
			}
		}
	}
}
