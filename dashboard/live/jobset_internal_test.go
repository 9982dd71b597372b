package live

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An API that is not installed is said to be that, with the cure, and not to fail.
func TestWhyUnanswered(t *testing.T) {
	queues := schema.GroupResource{Group: "visibility.kueue.x-k8s.io", Resource: "localqueues"}
	unserved := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Message: "the server could not find the requested resource"}}
	for want, err := range map[string]error{
		"the visibility API is not served: visibility.enable must be true":                                     unserved,
		"the visibility API is not installed (config/visibility, or visibility.enable of the chart), or you l": apierrors.NewForbidden(queues, "main", errors.New("no")),
		"no manager serves the visibility API":                                                                 apierrors.NewServiceUnavailable("no endpoints"),
		"the visibility API does not answer: connection refused":                                               errors.New("connection refused"),
		`the visibility API does not answer: localqueues.visibility.kueue.x-k8s.io "ma`:                        apierrors.NewNotFound(queues, "main"),
	} {
		if got := whyUnanswered(err); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}
