package doctor

import (
	"embed"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/config/crd"
	"github.com/tranche-dev/tranche/config/policies"
	"github.com/tranche-dev/tranche/config/rbac"
)

// The API server adds defaults, and leaves out what is empty. All else is a difference.
func TestDiffers(t *testing.T) {
	object := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "Policy", "apiVersion": "v1", "metadata": map[string]any{}, "spec": spec}}
	}
	wanted := object(map[string]any{"rules": []any{map[string]any{"verbs": []any{"get"}}}, "failurePolicy": "Fail", "selector": map[string]any{}, "count": int64(1)})
	for name, c := range map[string]struct {
		got     map[string]any
		differs bool
	}{
		"the same":        {map[string]any{"rules": []any{map[string]any{"verbs": []any{"get"}}}, "failurePolicy": "Fail", "selector": map[string]any{}, "count": int64(1)}, false},
		"with defaults":   {map[string]any{"rules": []any{map[string]any{"verbs": []any{"get"}, "scope": "*"}}, "failurePolicy": "Fail", "count": int64(1)}, false},
		"another value":   {map[string]any{"rules": []any{map[string]any{"verbs": []any{"get"}}}, "failurePolicy": "Ignore", "count": int64(1)}, true},
		"another number":  {map[string]any{"rules": []any{map[string]any{"verbs": []any{"get"}}}, "failurePolicy": "Fail", "count": int64(2)}, true},
		"an item more":    {map[string]any{"rules": []any{map[string]any{"verbs": []any{"get", "list"}}}, "failurePolicy": "Fail", "count": int64(1)}, true},
		"an item less":    {map[string]any{"rules": []any{}, "failurePolicy": "Fail", "count": int64(1)}, true},
		"a field is gone": {map[string]any{"rules": []any{map[string]any{"verbs": []any{"get"}}}, "count": int64(1)}, true},
		"nothing":         {nil, true},
	} {
		if got := differs(object(c.got), wanted); got != c.differs {
			t.Errorf("%s: differs is %t", name, got)
		}
	}
}

func TestManifests(t *testing.T) {
	kinds := map[string]int{}
	for _, files := range []embed.FS{crd.Files, policies.Files, rbac.Files} {
		all, err := manifests(files)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range all {
			kinds[object.GetKind()]++
		}
	}
	for _, kind := range []string{"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "ClusterRole", "ClusterRoleBinding", "Role"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s among %v", kind, kinds)
		}
	}
}

func TestKubernetes(t *testing.T) {
	for answer, want := range map[string]Level{
		`{"major":"1","minor":"36","gitVersion":"v1.36.3"}`:        OK,
		`{"major":"1","minor":"37+","gitVersion":"v1.37.0-gke.1"}`: OK,
		`{"major":"1","minor":"35","gitVersion":"v1.35.1"}`:        Error,
		`{"major":"1"}`: Unknown,
		`busy`:          Unknown,
	} {
		c := newCheck("Kubernetes")
		checkKubernetes(c, []byte(answer))
		if got := c.findings()[0]; got.Level != want || got.Message == "" {
			t.Errorf("%s: %v, want %s", answer, got, want)
		}
	}
}

func TestQueuesAndFlavors(t *testing.T) {
	condition := func(status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: "Active", Status: status, Reason: "FlavorNotFound", Message: "x is missing"}}
	}
	nodes := []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "a", "zone": "z"}}}}
	flavor := func(labels map[string]string) *kueue.ResourceFlavor {
		return &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: labels}}
	}
	for name, c := range map[string]struct {
		check func(*check)
		level Level
		text  string
	}{
		"active":             {func(c *check) { checkQueue(c, "q", condition(metav1.ConditionTrue), nil) }, OK, ""},
		"inactive":           {func(c *check) { checkQueue(c, "q", condition(metav1.ConditionFalse), new(kueue.None)) }, Error, "q admits nothing: FlavorNotFound: x is missing"},
		"stopped":            {func(c *check) { checkQueue(c, "q", condition(metav1.ConditionFalse), new(kueue.Hold)) }, Warning, "q is stopped: spec.stopPolicy is Hold"},
		"not looked at":      {func(c *check) { checkQueue(c, "q", nil, nil) }, Warning, "no manager has looked at it"},
		"with nodes":         {func(c *check) { checkFlavor(c, flavor(map[string]string{"pool": "a"}), nodes) }, OK, ""},
		"for all nodes":      {func(c *check) { checkFlavor(c, flavor(nil), nodes) }, OK, ""},
		"without nodes":      {func(c *check) { checkFlavor(c, flavor(map[string]string{"pool": "b", "gpu": "x"}), nodes) }, Warning, "no node has the labels gpu=x,pool=b"},
		"one label is wrong": {func(c *check) { checkFlavor(c, flavor(map[string]string{"pool": "a", "zone": "y"}), nodes) }, Warning, "no node has the labels"},
	} {
		one := newCheck(name)
		c.check(one)
		if got := one.findings()[0]; got.Level != c.level || !strings.Contains(got.Message, c.text) || (got.Level != OK) != (got.Cure != "") {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestConcerns(t *testing.T) {
	for name, c := range map[string]struct {
		groups, resources []string
		want              bool
	}{
		"Jobs":              {[]string{"batch"}, []string{"jobs"}, true},
		"all of all groups": {[]string{"*"}, []string{"*/*"}, true},
		"all resources":     {[]string{"jobset.x-k8s.io"}, []string{"*"}, true},
		"pods":              {[]string{""}, []string{"pods"}, true},
		"CronJobs":          {[]string{"batch"}, []string{"cronjobs"}, false},
		"other jobs":        {[]string{"example.com"}, []string{"jobs"}, false},
	} {
		rule := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{APIGroups: c.groups, Resources: c.resources}}
		if got := concerns(rule); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestManagerPods(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "tranche-manager-x"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "registry.example.com/tranche:v1"}}}}
	if got := whyNotReady(&pod); got != "" {
		t.Errorf("a pod without conditions is not ready: %s", got)
	}
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("tranche-manager-x_123"), AcquireTime: new(metav1.NewMicroTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))),
	}}
	if got, want := leaderText(lease, []corev1.Pod{pod, {}}), "tranche-manager-x leads since 2026-01-01T00:00:00Z, with image registry.example.com/tranche:v1; 2 pods in all"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady"}}
	if got := whyNotReady(&pod); got != "ContainersNotReady" {
		t.Errorf("not ready because of %q", got)
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
	if got := whyNotReady(&pod); got != "ImagePullBackOff: no such image" {
		t.Errorf("not ready because of %q", got)
	}
}

func TestText(t *testing.T) {
	for want, findings := range map[string][]Finding{
		"OK  CRDs  9 are served\n\nNo problems.\n":                                       {{Check: "CRDs", Level: OK, Message: "9 are served"}},
		"Error  CRDs  none\n             -> apply config/crd\n\n1 error.\n":              {{Check: "CRDs", Level: Error, Message: "none", Cure: "apply config/crd"}},
		"Warning  A  x\nWarning  B  y\nUnknown  C  z\n\n2 warnings, 1 check not made.\n": {{Check: "A", Level: Warning, Message: "x"}, {Check: "B", Level: Warning, Message: "y"}, {Check: "C", Level: Unknown, Message: "z"}},
	} {
		var b strings.Builder
		if err := writeText(&b, &Report{Findings: findings}); err != nil || b.String() != want {
			t.Errorf("%v\n%q, want\n%q", err, b.String(), want)
		}
	}
}
