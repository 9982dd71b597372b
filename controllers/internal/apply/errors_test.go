package apply_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/controllers/internal/apply"
)

// Timeline entries are dropped only if the API server will also reject them later.
func TestIsTransient(t *testing.T) {
	jobSets := schema.GroupResource{Group: "jobset.x-k8s.io", Resource: "jobsets"}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"conflict":          {err: apierrors.NewConflict(jobSets, "a", nil), want: true},
		"no answer":         {err: errors.New("connection refused"), want: true},
		"too many requests": {err: apierrors.NewTooManyRequestsError("later"), want: true},
		"unavailable":       {err: apierrors.NewServiceUnavailable("starting"), want: true},
		"timeout":           {err: apierrors.NewServerTimeout(jobSets, "patch", 1), want: true},
		"no room":           {err: apierrors.NewInvalid(schema.GroupKind{Kind: "JobSet"}, "a", nil)},
		"forbidden":         {err: apierrors.NewForbidden(jobSets, "a", nil)},
		"too large":         {err: apierrors.NewRequestEntityTooLargeError("etcd")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := apply.IsTransient(fmt.Errorf("note times of JobSet ns/a: %w", tc.err)); got != tc.want {
				t.Errorf("IsTransient is %t, want %t", got, tc.want)
			}
		})
	}
}

// A refusal is reported to the user. A namespace that is being deleted is no mistake of the user.
func TestIsRefusal(t *testing.T) {
	workloads := schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}
	terminating := apierrors.NewForbidden(workloads, "a", errors.New("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"invalid":               {apierrors.NewInvalid(schema.GroupKind{Kind: "Workload"}, "a", nil), true},
		"forbidden":             {apierrors.NewForbidden(workloads, "a", errors.New("exceeded quota")), true},
		"too large":             {apierrors.NewRequestEntityTooLargeError("etcd"), true},
		"namespace terminating": {terminating, false},
		"conflict":              {apierrors.NewConflict(workloads, "a", nil), false},
		"no answer":             {errors.New("connection refused"), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := fmt.Errorf("create quota Workload ns/a: %w", tc.err)
			if got := apply.IsRefusal(err); got != tc.want {
				t.Errorf("IsRefusal is %t, want %t", got, tc.want)
			}
			if result, failed := apply.Failed(err); name == "namespace terminating" && (failed != nil || !result.IsZero()) {
				t.Errorf("Failed returns %v, %v, want no retry", result, failed)
			}
		})
	}
}
