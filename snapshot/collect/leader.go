package collect

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
)

// maxSkew is by how much the clocks of a user and of the manager may differ without a leader being taken for gone.
const maxSkew = 30 * time.Second

// WhyNoLeader returns since when no manager has led, as the Lease of the manager shows, or "". It returns "" and no error if the user may not read the
// Lease, or there is none of the default name: then nothing is known. An error means that the API server does not answer.
func WhyNoLeader(ctx context.Context, reader client.Reader, now time.Time) (string, error) {
	key := types.NamespacedName{Namespace: apis.SystemNamespace, Name: apis.ManagerServiceAccount}
	var lease coordinationv1.Lease
	switch err := reader.Get(ctx, key, &lease); {
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read Lease %s: %w", key, err)
	case lease.Spec.RenewTime == nil:
		return "", nil
	}
	since := lease.Spec.RenewTime.Time
	if ptr.Deref(lease.Spec.HolderIdentity, "") != "" {
		since = since.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
		if now.Before(since.Add(maxSkew)) {
			return "", nil
		}
	}
	return fmt.Sprintf("no manager has led since %s (Lease %s): until one does, nothing is queued, admitted or released, and no state is updated",
		since.UTC().Format(time.RFC3339), key), nil
}
