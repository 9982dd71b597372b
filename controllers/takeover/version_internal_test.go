package takeover

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission"
)

// TestVersionIn finds the version of Kueue's manager among the Deployments of its namespace.
func TestVersionIn(t *testing.T) {
	for image, want := range map[string]string{
		"registry.k8s.io/kueue/kueue:v0.19.2":            "v0.19.2",
		"localhost:5000/kueue:v0.18.1@sha256:0123456789": "v0.18.1",
		"localhost:5000/kueue":                           "",
		"registry.k8s.io/kueue/proxy:v1.0.0":             "",
	} {
		d := appsv1.Deployment{}
		d.Spec.Template.Spec = corev1.PodSpec{ServiceAccountName: "kueue-controller-manager", Containers: []corev1.Container{{Image: image}}}
		if got := versionIn([]appsv1.Deployment{d}, "kueue-controller-manager"); got != want {
			t.Errorf("%s: the version is %q, want %q", image, got, want)
		}
		if got := versionIn([]appsv1.Deployment{d}, "viz"); got != "" {
			t.Errorf("%s: the version of another service account is %q", image, got)
		}
	}
}

// TestVersionProblem takes nothing over from another minor version of Kueue. An unknown version, and a tree that is locked, stay as they are.
func TestVersionProblem(t *testing.T) {
	for version, isBlocked := range map[string]bool{"v0.19.2": false, "": false, "v0.18.1": true, "v0.190.0": true, "latest": true} {
		asks := admission.Takeover{ClusterQueues: []string{"a", "b"}, Obstacles: map[string][]string{}}
		trees := []admission.Takeover{asks}
		blockUnlocked(trees, nil, VersionProblem(version))
		if problem := trees[0].Problem(); (problem != "") != isBlocked || isBlocked && !strings.Contains(problem, "has version "+version) {
			t.Errorf("%q: the problem is %q", version, problem)
		}
	}
	for _, locked := range [][]string{nil, {"a"}} {
		tree := admission.Takeover{ClusterQueues: []string{"a"}, Obstacles: map[string][]string{}}
		if locked == nil {
			tree.Taken = []string{"a"}
		}
		trees := []admission.Takeover{tree}
		if blockUnlocked(trees, locked, VersionProblem("v0.20.0")); len(trees[0].Obstacles) > 0 {
			t.Errorf("locked %v: a tree in which Kueue does not admit is blocked: %v", locked, trees[0].Obstacles)
		}
	}
}
