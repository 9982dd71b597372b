package apiwatch

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/metrics"
)

// JobSetCRDName is the name of the CRD of JobSets.
const JobSetCRDName = "jobsets.jobset.x-k8s.io"

// JobSetCRD returns an object that stands for the CRD of JobSets in the cache.
func JobSetCRD() *unstructured.Unstructured {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	crd.SetName(JobSetCRDName)
	return crd
}

// missingField is where a stripped CRD has the fields that it lacks.
const missingField = "missing"

// StripCRD reduces a CRD of JobSets to the fields of Tranche that it lacks. An informer may transform an object again.
func StripCRD(object any) (any, error) {
	crd, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	if _, isStripped := crd.Object[missingField]; isStripped {
		return object, nil
	}
	stripped := JobSetCRD()
	stripped.SetName(crd.GetName())
	stripped.SetUID(crd.GetUID())
	stripped.SetResourceVersion(crd.GetResourceVersion())
	return stripped, unstructured.SetNestedStringSlice(stripped.Object, MissingFields(crd), missingField)
}

// MissingFields returns the fields of Tranche that a CRD of JobSets lacks.
func MissingFields(crd *unstructured.Unstructured) []string {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	missing := []string{}
	for _, field := range []string{"startupPolicy.rules", "gangConfig", "groupSchedulingConfig", "replicatedJobs[*].gangConfig"} {
		if !slices.ContainsFunc(versions, func(version any) bool { return hasField(version, field) }) {
			missing = append(missing, "spec."+field)
		}
	}
	return missing
}

// hasField reports whether the version of JobSets that Tranche reads has a field of the spec.
func hasField(version any, field string) bool {
	object, ok := version.(map[string]any)
	if !ok || object["name"] != jobset.GroupVersion.Version {
		return false
	}
	path := []string{"schema", "openAPIV3Schema", "properties", "spec"}
	for name := range strings.SplitSeq(field, ".") {
		property, isList := strings.CutSuffix(name, "[*]")
		path = append(path, "properties", property)
		if isList {
			path = append(path, "items")
		}
	}
	_, found, err := unstructured.NestedFieldNoCopy(object, path...)
	return found && err == nil
}

// JobSetFields reports whether the API server drops the fields of Tranche from JobSets, because another CRD of JobSets was applied over Tranche's. A cluster
// that never had Tranche's CRD does without them on purpose.
type JobSetFields struct {
	cache   client.Reader
	metrics *metrics.Metrics
	// wereServed is true if the fields were served since the manager started.
	wereServed atomic.Bool
	// known is the last answer of Missing, or nil. Only the leader asks again and again.
	known atomic.Pointer[[]string]
}

// NewJobSetFields returns JobSetFields that read the CRD, stripped by StripCRD, and JobSets from the cache.
func NewJobSetFields(cache client.Reader, counts *metrics.Metrics) *JobSetFields {
	return &JobSetFields{cache: cache, metrics: counts}
}

// SetupWithManager reports while fields are missing: by a readiness check, an Event and the metric.
func (f *JobSetFields) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.AddReadyzCheck("jobset-fields", f.ready); err != nil {
		return fmt.Errorf("set up the readiness check: %w", err)
	}
	find := func(ctx context.Context) (events.Event, error) {
		missing, err := f.Missing(ctx)
		if err != nil || len(missing) == 0 {
			return events.Event{}, err
		}
		return events.JobSetFieldsMissing(missing), nil
	}
	return mgr.Add(&ProblemWatch{Find: find, Recorder: mgr.GetEventRecorder("tranche")})
}

// Missing returns the fields that are dropped although the cluster has had them, as the manager has seen itself or as a JobSet records.
func (f *JobSetFields) Missing(ctx context.Context) ([]string, error) {
	crd := JobSetCRD()
	if err := f.cache.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinition %s: %w", JobSetCRDName, err)
	}
	missing, _, err := unstructured.NestedStringSlice(crd.Object, missingField)
	if err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinition %s: %w", JobSetCRDName, err)
	}
	if len(missing) == 0 {
		f.wereServed.Store(true)
	}
	if len(missing) > 0 && !f.wereServed.Load() {
		isRecorded, err := f.isRecorded(ctx)
		if err != nil {
			return nil, err
		}
		if !isRecorded {
			missing = nil
		}
	}
	f.known.Store(&missing)
	f.metrics.JobSetFieldsMissing(len(missing))
	return missing, nil
}

// isRecorded reports whether a JobSet has lost fields.
func (f *JobSetFields) isRecorded(ctx context.Context) (bool, error) {
	var list jobsetapi.JobSetList
	if err := f.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list JobSets: %w", err)
	}
	for i := range list.Items {
		js := &list.Items[i]
		if _, lost := stageplan.Restored(js); len(lost) > 0 || stageplan.RulesRecord(&js.Spec) != "" {
			return true, nil
		}
	}
	return false, nil
}

// ready is a readiness check. It does not wait for the cache, which a replica on standby may not have.
func (f *JobSetFields) ready(*http.Request) error {
	if missing := f.known.Load(); missing != nil && len(*missing) > 0 {
		return fmt.Errorf("the CRD of JobSets lacks %s: apply Tranche's CRD again", strings.Join(*missing, ", "))
	}
	return nil
}
