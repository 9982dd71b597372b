package collect_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/snapshot/collect"
)

// A leases reader answers with one Lease or an error.
type leases struct {
	client.Reader
	lease *coordinationv1.Lease
	err   error
}

func (l *leases) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if key.String() != "tranche-system/tranche-manager" {
		return errors.New("another Lease is read")
	}
	if lease, is := object.(*coordinationv1.Lease); is && l.err == nil {
		*lease = *l.lease
	}
	return l.err
}

func TestWhyNoLeader(t *testing.T) {
	now := time.Date(2026, 1, 1, 16, 31, 0, 0, time.UTC)
	lease := func(holder string, seconds int32, renewed time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: new(metav1.NewMicroTime(now.Add(-renewed))),
		}}
	}
	resource := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for name, c := range map[string]struct {
		leases  leases
		want    string
		isError bool
	}{
		"a leader":                       {leases: leases{lease: lease("a", 15, time.Second)}},
		"a clock that differs":           {leases: leases{lease: lease("a", 15, 40*time.Second)}},
		"a leader that has died":         {leases: leases{lease: lease("a", 15, time.Minute)}, want: "no manager has led since 2026-01-01T16:30:15Z "},
		"a leader that has stopped":      {leases: leases{lease: lease("", 1, 2*time.Second)}, want: "no manager has led since 2026-01-01T16:30:58Z "},
		"none has led":                   {leases: leases{lease: &coordinationv1.Lease{}}},
		"no Lease of this name":          {leases: leases{err: apierrors.NewNotFound(resource, "tranche-manager")}},
		"no right":                       {leases: leases{err: apierrors.NewForbidden(resource, "tranche-manager", nil)}},
		"the API server does not answer": {leases: leases{err: errors.New("connection refused")}, isError: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := collect.WhyNoLeader(t.Context(), &c.leases, now)
			if (err != nil) != c.isError || !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("%q, %v, want %q", got, err, c.want)
			}
		})
	}
}
