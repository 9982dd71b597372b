// Package detail reads what the Model of the dashboard does not keep, when a user asks for it: the pods and the Events of a JobSet, and objects as YAML. Its
// reader decides what the user may read.
package detail

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/lifecycle/podstate"
)

// maxObjects is how many objects are read for one answer.
const maxObjects = 10_000

// A truncatedError is the error of a list that was not read to its end.
type truncatedError struct{ read int }

func (e truncatedError) Error() string {
	return fmt.Sprintf("there are more than the %d that were read", e.read)
}

// Each calls visit for the objects of a kind, which it reads in parts. list is an empty list of that kind. It returns an error after the first 10,000 objects if
// there are more.
func Each[T client.Object](ctx context.Context, c client.Reader, list client.ObjectList, visit func(T), options ...client.ListOption) error {
	read := 0
	pages := pager.New(func(ctx context.Context, page metav1.ListOptions) (runtime.Object, error) {
		part, _ := list.DeepCopyObject().(client.ObjectList) // objects of earlier parts may be in use
		return part, c.List(ctx, part, append(slices.Clone(options), client.Limit(page.Limit), client.Continue(page.Continue))...)
	})
	pages.PageBufferSize = 0 // it would read ahead of the last object
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		if read == maxObjects {
			return truncatedError{read}
		}
		if object, isOfKind := item.(T); isOfKind {
			visit(object)
		}
		read++
		return nil
	})
}

// Explain returns why pods are not ready or missing, a sentence for each reason, as far as the Events can be read. The error is why some cannot.
func Explain(ctx context.Context, c client.Reader, pods *podstate.Reasons, jobs *podstate.Lacking) ([]string, error) {
	var failures []error
	warning := func(kind string, object client.Object, fields client.MatchingFields) string {
		text, err := lastWarning(ctx, c, kind, object, fields)
		if err != nil {
			failures = []error{err} // one tells enough
		}
		return text
	}
	sentences := pods.Sentences(func(pod *corev1.Pod) string { return warning("Pod", pod, nil) })
	sentences = append(sentences, jobs.Sentences(func(job *batchv1.Job) string {
		return warning("Job", job, client.MatchingFields{"reason": "FailedCreate"})
	})...)
	return sentences, errors.Join(failures...)
}

// lastWarning returns the last Event about an object that is a warning and has some more fields, or "".
func lastWarning(ctx context.Context, c client.Reader, kind string, object client.Object, fields client.MatchingFields) (string, error) {
	about := client.MatchingFields{"involvedObject.kind": kind, "involvedObject.uid": string(object.GetUID()), "type": corev1.EventTypeWarning}
	maps.Copy(about, fields)
	var last *corev1.Event
	err := Each(ctx, c, &corev1.EventList{}, func(event *corev1.Event) {
		if last == nil || dashboard.LastSeen(event).After(dashboard.LastSeen(last)) {
			last = event
		}
	}, client.InNamespace(object.GetNamespace()), about)
	if last == nil {
		return "", err
	}
	return strings.Join(strings.Fields(last.Reason+": "+last.Message), " "), nil
}
