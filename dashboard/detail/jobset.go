package detail

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/snapshot/collect"
)

// ErrNoStage is the error of a name that no stage has.
var ErrNoStage = errors.New("the JobSet has no such stage")

// Pods returns a page of the pods of a stage of a JobSet, or of all stages if it is empty, with their counts and why pods are missing or not ready.
func Pods(ctx context.Context, c client.Reader, key types.NamespacedName, stage string, w dashboard.Window) (*dashboard.PodsAnswer, error) {
	js, err := readJobSet(ctx, c, key)
	if err != nil {
		return nil, err
	}
	pods := dashboard.NewPods(js, stage)
	if pods == nil {
		return nil, fmt.Errorf("stage %q: %w", stage, ErrNoStage)
	}
	options := []client.ListOption{client.InNamespace(key.Namespace), client.MatchingLabelsSelector{Selector: selectorOf(js.Name, pods.ReplicatedJobs())}}
	var gaps gaps
	isShown := gaps.note("Pods are not shown", Each(ctx, c, &corev1.PodList{}, pods.Add, options...))
	answer := pods.Answer(w)
	if isShown {
		gaps.note("Jobs without all their pods are not shown", Each(ctx, c, &batchv1.JobList{}, pods.AddJob, options...))
		var failure error
		answer.Why, failure = Explain(ctx, c, &pods.Reasons, &pods.Lacking)
		gaps.note("What Events report about pods is not shown", failure)
	}
	answer.Gaps = gaps.texts
	return &answer, gaps.failure
}

// selectorOf selects the pods and the Jobs of ReplicatedJobs of a JobSet.
func selectorOf(jobSet string, replicatedJobs []string) labels.Selector {
	selector := labels.SelectorFromSet(labels.Set{jobset.JobSetNameKey: jobSet})
	if in, err := labels.NewRequirement(jobset.ReplicatedJobNameKey, selection.In, replicatedJobs); err == nil {
		return selector.Add(*in)
	}
	return selector // there are none, or names that no label can have
}

// Events returns a page of the Events of a type about a JobSet, its quota Workloads and its Jobs, or of all types. workloadsOf returns the quota Workloads.
func Events(ctx context.Context, c client.Reader, key types.NamespacedName, workloadsOf func(jobSet types.UID) []types.NamespacedName, f EventFilter) (*dashboard.EventsAnswer, error) {
	js, err := readJobSet(ctx, c, key)
	if err != nil {
		return nil, err
	}
	events := dashboard.NewEvents(js, workloadsOf(js.UID))
	var gaps gaps
	for _, kind := range dashboard.EventKinds() {
		// The API server has no index of Events: one request for each kind costs it less than one for each object.
		err := Each(ctx, c, &corev1.EventList{}, events.Add, client.InNamespace(key.Namespace), client.MatchingFields{"involvedObject.kind": kind})
		if !gaps.note(fmt.Sprintf("Events about a %s are not shown", kind), err) {
			break // nor may those about others be read
		}
	}
	answer := events.Answer(f.Type, f.Window)
	answer.Gaps = gaps.texts
	return &answer, gaps.failure
}

// An EventFilter selects Events of a type, or of all types if it is empty.
type EventFilter struct {
	Type string
	dashboard.Window
}

func readJobSet(ctx context.Context, c client.Reader, key types.NamespacedName) (*jobsetapi.JobSet, error) {
	js := &jobsetapi.JobSet{}
	if err := c.Get(ctx, key, js); err != nil {
		return nil, fmt.Errorf("read JobSet %s: %w", key, err)
	}
	return js, nil
}

// gaps are why something is not shown. The failure is an error that is no gap.
type gaps struct {
	texts   []string
	failure error
}

// note notes why something could not be read, if there is an error, and reports whether something was read.
func (g *gaps) note(what string, err error) bool {
	truncated, isTruncated := errors.AsType[truncatedError](err)
	switch {
	case err == nil:
		return true
	case isTruncated:
		g.texts = append(g.texts, fmt.Sprintf("Not all is shown: %s", truncated))
		return true
	case apierrors.IsForbidden(err):
		g.add(fmt.Sprintf("%s: %s; the ClusterRole %s allows it", what, collect.ReasonOf(err), dashboard.ReaderRole))
	case apierrors.IsMethodNotSupported(err):
		g.add(fmt.Sprintf("%s: %s", what, collect.ReasonOf(err)))
	case g.failure == nil:
		g.failure = err
	}
	return false
}

func (g *gaps) add(text string) {
	if !slices.Contains(g.texts, text) {
		g.texts = append(g.texts, text)
	}
}
