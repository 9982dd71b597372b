package apply

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A failed write is retried after firstRetry, then after twice that, and so on. While the webhooks of the JobSet controller are down no
// JobSet can be resumed, and no watch reports that they are up again.
const (
	firstRetry   = 5 * time.Millisecond
	longestRetry = 15 * time.Second
)

// RateLimiter returns the back-off of a controller that writes Steps.
func RateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, longestRetry)
}

// Failed returns the result of a reconcile whose write has failed. A conflict is retried without a log entry. In a namespace that is being
// deleted nothing can be created, and the namespace controller deletes the other objects.
func Failed(err error) (ctrl.Result, error) {
	switch {
	case isNamespaceTerminating(err):
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err):
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // a conflict is retried with the back-off of the queue
	}
	return ctrl.Result{}, err
}

func isNamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// IsRefusal reports whether the content of a write was rejected, by a schema, an admission webhook or policy, a limit of its size, or a
// ResourceQuota. The write fails until a user or administrator changes something.
func IsRefusal(err error) bool {
	isRejected := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
	return isRejected && !isNamespaceTerminating(err)
}

// IsUnserved reports whether objects could not be created because the API server does not serve their API, which it did when the manager
// started: the CRD was deleted, or the API server has another release. The manager restarts when it notices this (controllers/apiwatch).
func IsUnserved(err error) bool { return apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) }

// IsTransient reports whether the same write can succeed later without any change of the object.
func IsTransient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // no answer
	}
	return apierrors.IsConflict(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
}

// Each runs f for 0 to n-1, a bounded number at a time, and joins the errors. The result is a conflict only if all errors are conflicts.
func (w *Writer) Each(ctx context.Context, n int, f func(int) error) error {
	var mu sync.Mutex
	var conflict error
	var others []error
	workqueue.ParallelizeUntil(ctx, w.Parallel, n, func(i int) {
		err := f(i)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case apierrors.IsConflict(err):
			conflict = err
		case err != nil:
			others = append(others, err)
		}
	})
	if len(others) == 0 {
		return conflict
	}
	return errors.Join(others...)
}
