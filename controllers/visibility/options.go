package visibility

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
)

const (
	defaultLimit = 1000
	// mostLimit limits how long one request may occupy the engine.
	mostLimit = 10_000
)

// A question has the query parameters of a request: those of Kueue's PendingWorkloadOptions, and the selection of one quota Workload.
type question struct {
	metav1.TypeMeta `json:",inline"`

	// Offset is the position of the first returned item, 0 by default.
	Offset int64 `json:"offset,omitempty"`
	// Limit is the maximum number of returned items, 1000 by default.
	Limit int64 `json:"limit,omitempty"`
	// FieldSelector selects one item by metadata.name, and by metadata.namespace where the queue has none.
	FieldSelector string `json:"fieldSelector,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (q *question) DeepCopyObject() runtime.Object {
	other := *q
	return &other
}

// read parses the query of a request.
func (q *question) read(query url.Values) error {
	var err error
	if q.Offset, err = number(query, "offset", 0); err != nil {
		return err
	}
	if q.Limit, err = number(query, "limit", defaultLimit); err != nil {
		return err
	}
	q.FieldSelector = query.Get("fieldSelector")
	return nil
}

// number parses a parameter. As in Kueue, a limit of 0 means no limit given.
func number(query url.Values, name string, otherwise int64) (int64, error) {
	text := query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%s: %q must be a whole number of 0 or more", name, text)
	}
	return cmp.Or(int64(n), otherwise), nil
}

func (q *question) page() (admission.Page, error) {
	if q.Limit > mostLimit {
		return admission.Page{}, fmt.Errorf("limit: %d must be at most %d; use offset to read more", q.Limit, mostLimit)
	}
	return admission.Page{Offset: int(q.Offset), Limit: int(q.Limit)}, nil
}

// only returns the selected quota Workload, in the given namespace if it is not empty; ok is false if all are requested.
func (q *question) only(namespace string) (key types.NamespacedName, ok bool, err error) {
	if q.FieldSelector == "" {
		return key, false, nil
	}
	selector, err := fields.ParseSelector(q.FieldSelector)
	if err != nil {
		return key, false, fmt.Errorf("fieldSelector: %w", err)
	}
	key.Namespace = namespace
	for _, r := range selector.Requirements() {
		switch {
		case r.Operator != selection.Equals && r.Operator != selection.DoubleEquals:
			return key, false, fmt.Errorf("fieldSelector: %q: the operator must be =", q.FieldSelector)
		case r.Field == "metadata.name":
			key.Name = r.Value
		case r.Field == "metadata.namespace" && (namespace == "" || namespace == r.Value):
			key.Namespace = r.Value
		case r.Field == "metadata.namespace":
			return key, false, fmt.Errorf("fieldSelector: metadata.namespace is %q, but the LocalQueue is in namespace %q", r.Value, namespace)
		default:
			return key, false, fmt.Errorf("fieldSelector: the field is %q, but must be metadata.name or metadata.namespace", r.Field)
		}
	}
	if key.Name == "" || key.Namespace == "" {
		return key, false, fmt.Errorf("fieldSelector: %q must give metadata.name, and metadata.namespace for a ClusterQueue", q.FieldSelector)
	}
	return key, true, nil
}
