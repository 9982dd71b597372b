package apply_test

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
