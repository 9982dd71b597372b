// Package collect reads the objects of a snapshot from a cluster, with the rights of a user: once for Collect and Read, or as they change for a Follower.
//
// Objects are read page by page and handed on at once. All pages of a kind show the same version of the cluster, unless the API server has
// discarded that version meanwhile: then the kind is read again from its beginning. The versions of two kinds differ by the time between
// their reads.
package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/snapshot"
)

const (
	// ReaderRole is the ClusterRole that grants the right to read every kind.
	ReaderRole = "tranche-snapshot-reader"

	// defaultPageSize is that of kubectl.
	defaultPageSize = 500
	// maxReads is how often a kind is read again because the version of its first page has expired.
	maxReads = 5
)

// A Config configures what is read.
type Config struct {
	// Reader reads from the API server, and Scheme has the kinds.
	Reader client.Reader
	Scheme *runtime.Scheme
	// Namespaces are those whose objects are read. If it is empty, the objects of all namespaces are read.
	Namespaces []string
	// ConfigMap has the configuration of the manager.
	ConfigMap types.NamespacedName
	// NameConfigMap is what a user does to name another ConfigMap. It defaults to that of verbs with the flag --config-map.
	NameConfigMap string
	// AllPods is true if all pods of JobSets and queued Jobs that may run are read, with their nodes. The status of Jobs counts them, so that answers about
	// quota do not depend on them.
	AllPods bool
	// PageSize is how many objects are read at once. It defaults to 500.
	PageSize int64
	// Progress is called after each page with the number of objects that were read of a resource, and an estimate of how many remain. It may
	// be nil.
	Progress func(resource string, read, remaining int64)
}

// A Sink takes the objects. snapshot.Writer and snapshot.Builder are Sinks.
type Sink interface {
	// Configure takes the configuration of the manager.
	Configure(config *configapi.Configuration) error
	// Begin starts a kind. If it was the last one that was started, its objects are dropped.
	Begin(kind *snapshot.Kind) error
	// Add takes an object of the kind.
	Add(object snapshot.Object) error
	// Close takes the description of the complete snapshot.
	Close(about *snapshot.Snapshot) error
}

// Collect reads all objects that the user may read, and returns the description of the snapshot: its Gaps are the kinds that the user may not
// read. An error means that the snapshot is not complete.
func Collect(ctx context.Context, config *Config, version string, sink Sink) (*snapshot.Snapshot, error) {
	c := &collector{
		Config: config, sink: sink, isRunning: map[types.UID]bool{},
		about: &snapshot.Snapshot{TakenAt: time.Now().UTC().Truncate(time.Second), Version: version, OnlyNamespaces: slices.Sorted(slices.Values(config.Namespaces))},
	}
	if err := c.readConfiguration(ctx); err != nil {
		return nil, err
	}
	for _, kind := range snapshot.Kinds() {
		if err := c.readKind(ctx, kind); err != nil {
			return nil, fmt.Errorf("read %s: %w", kind.FullResource(), err)
		}
	}
	return c.about, sink.Close(c.about)
}

// Read returns a snapshot of all objects that the user may read, in memory.
func Read(ctx context.Context, config *Config, version string) (*snapshot.Snapshot, error) {
	b := &snapshot.Builder{}
	if _, err := Collect(ctx, config, version, b); err != nil {
		return nil, err
	}
	return b.Snapshot(), nil
}

// A collector reads one snapshot.
type collector struct {
	*Config
	sink  Sink
	about *snapshot.Snapshot
	// isRunning has the UIDs of all Jobs that were read. The status of those that run counts all their pods.
	isRunning map[types.UID]bool
}

func (c *collector) readConfiguration(ctx context.Context) error {
	var object corev1.ConfigMap
	err := c.Reader.Get(ctx, c.ConfigMap, &object)
	gap := snapshot.Gap{Resource: "configmaps", Namespaces: []string{c.ConfigMap.Namespace}}
	place := fmt.Sprintf("ConfigMap %s", c.ConfigMap)
	switch {
	case apierrors.IsNotFound(err):
		gap.IsAbsent, gap.Reason = true, place+" does not exist"
		gap.Cure = cmp.Or(c.NameConfigMap, "name the ConfigMap of the manager with --config-map") + "; until then the defaults count"
	case apierrors.IsForbidden(err):
		gap.Reason, gap.Cure = ReasonOf(err), cure("get", "configmaps", c.ConfigMap.Namespace, ReaderRole)
	case err != nil:
		return fmt.Errorf("read %s: %w", place, err)
	default:
		config, err := configapi.Decode([]byte(object.Data[snapshot.ConfigKey]))
		if err == nil {
			return c.sink.Configure(config)
		}
		gap.Reason, gap.Cure = fmt.Sprintf("%s: %s", place, err), "use the version of tranche that the manager has; until then the defaults count"
	}
	c.lacks(gap)
	return nil
}

func (c *collector) lacks(gap snapshot.Gap) { c.about.Gaps = append(c.about.Gaps, gap) }

// readKind reads a kind until all its objects were read from one version of the cluster.
func (c *collector) readKind(ctx context.Context, kind *snapshot.Kind) error {
	for attempt := 1; ; attempt++ {
		gaps := len(c.about.Gaps)
		if err := c.sink.Begin(kind); err != nil {
			return err
		}
		err := c.readNamespaces(ctx, kind)
		if !apierrors.IsResourceExpired(err) || attempt == maxReads {
			return err
		}
		c.about.Gaps = c.about.Gaps[:gaps]
	}
}

func (c *collector) readNamespaces(ctx context.Context, kind *snapshot.Kind) error {
	count := &progress{resource: kind.FullResource(), report: c.Progress}
	if len(c.Namespaces) == 0 {
		return c.readIn(ctx, kind, "", count)
	}
	if kind.GVK == corev1.SchemeGroupVersion.WithKind("Namespace") {
		return c.readNamed(ctx, kind, count)
	}
	if !kind.IsNamespaced {
		return c.readIn(ctx, kind, "", count)
	}
	for _, namespace := range c.about.OnlyNamespaces {
		if err := c.readIn(ctx, kind, namespace, count); err != nil {
			return err
		}
	}
	return nil
}

// readNamed reads the Namespaces by their names, because a user of few may not list them.
func (c *collector) readNamed(ctx context.Context, kind *snapshot.Kind, count *progress) error {
	for _, name := range c.about.OnlyNamespaces {
		var object corev1.Namespace
		switch err := c.Reader.Get(ctx, types.NamespacedName{Name: name}, &object); {
		case apierrors.IsForbidden(err):
			c.lacks(snapshot.Gap{Resource: kind.FullResource(), Reason: ReasonOf(err), Cure: cure("get", kind.FullResource(), "", ReaderRole)})
		case apierrors.IsNotFound(err):
			return fmt.Errorf("namespace %q does not exist: correct --namespace", name)
		case err != nil:
			return err
		default:
			count.add(1, 0)
			if err := c.sink.Add(&object); err != nil {
				return err
			}
		}
	}
	return nil
}

// readIn reads the objects in a namespace, or all if it is empty. Missing rights become a Gap.
func (c *collector) readIn(ctx context.Context, kind *snapshot.Kind, namespace string, count *progress) error {
	var err error
	for _, options := range c.selections(kind) {
		if err = c.readPages(ctx, kind, append(options, client.InNamespace(namespace)), count); err != nil {
			break
		}
	}
	if gap := gapOf(err, kind, namespace, "list", ReaderRole); gap != nil {
		c.lacks(*gap)
		return nil
	}
	return err
}

// gapOf returns what is missing if a kind cannot be read because of the rights of the user, or is not served. It returns nil for other errors, and for none.
func gapOf(err error, kind *snapshot.Kind, namespace, verb, role string) *snapshot.Gap {
	gap := &snapshot.Gap{Resource: kind.FullResource(), Namespaces: in(namespace)}
	switch {
	case isUnserved(err):
		gap.Reason, gap.IsAbsent = "the API server does not serve "+kind.GVK.GroupVersion().String(), true
	case apierrors.IsForbidden(err):
		gap.Reason, gap.Cure = ReasonOf(err), cure(verb, kind.FullResource(), namespace, role)
	default:
		return nil
	}
	return gap
}

// in returns the namespaces of a Gap.
func in(namespace string) []string {
	if namespace == "" {
		return nil
	}
	return []string{namespace}
}

func (c *collector) readPages(ctx context.Context, kind *snapshot.Kind, options []client.ListOption, count *progress) error {
	for token := ""; ; {
		// Decoding into the list of another page would keep fields of its objects.
		list, err := newList(c.Scheme, kind)
		if err != nil {
			return err
		}
		if err := c.Reader.List(ctx, list, append(options, client.Limit(cmp.Or(c.PageSize, defaultPageSize)), client.Continue(token))...); err != nil {
			return err
		}
		read := int64(0)
		err = meta.EachListItem(list, func(item runtime.Object) error {
			object, isObject := item.(snapshot.Object)
			if !isObject || !c.counts(object) {
				return nil
			}
			read++
			return c.sink.Add(object)
		})
		if err != nil {
			return err
		}
		remaining := int64(0)
		if left := list.GetRemainingItemCount(); left != nil {
			remaining = *left
		}
		count.add(read, remaining)
		if token = list.GetContinue(); token == "" {
			return nil
		}
	}
}

func newList(scheme *runtime.Scheme, kind *snapshot.Kind) (client.ObjectList, error) {
	object, err := scheme.New(kind.GVK.GroupVersion().WithKind(kind.GVK.Kind + "List"))
	if err != nil {
		return nil, err
	}
	list, isList := object.(client.ObjectList)
	if !isList {
		return nil, fmt.Errorf("%T is no list", object)
	}
	return list, nil
}

// selections returns the options of the lists that have the objects of a kind: Jobs of JobSets and queued Jobs, pods of gangs, and pods of JobSets that may
// run. With AllPods these are pods of all Jobs.
func (c *collector) selections(kind *snapshot.Kind) [][]client.ListOption {
	switch kind.GVK {
	case batchv1.SchemeGroupVersion.WithKind("Job"):
		isNoChild, _ := labels.NewRequirement(jobset.JobSetNameKey, selection.DoesNotExist, nil) // constants are valid
		isQueued, _ := labels.NewRequirement(apis.HoldLabel, selection.Equals, []string{apis.HoldQueued})
		return [][]client.ListOption{
			{client.HasLabels{jobset.JobSetNameKey}}, {client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*isNoChild, *isQueued)}},
		}
	case corev1.SchemeGroupVersion.WithKind("Pod"):
		mayRun := fields.AndSelectors(
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
		)
		isNoMember, _ := labels.NewRequirement(apis.PodGroupMemberLabel, selection.NotEquals, []string{apis.PodGroupMemberValue}) // constants are valid
		key := jobset.JobSetUIDKey
		if c.AllPods {
			key = batchv1.ControllerUidLabel
		}
		isOfJob, _ := labels.NewRequirement(key, selection.Exists, nil)
		ofJobs := labels.NewSelector().Add(*isOfJob, *isNoMember)
		return [][]client.ListOption{
			{client.MatchingLabels{apis.PodGroupMemberLabel: apis.PodGroupMemberValue}},
			{client.MatchingLabelsSelector{Selector: ofJobs}, client.MatchingFieldsSelector{Selector: mayRun}},
		}
	default:
		return [][]client.ListOption{nil}
	}
}

// counts reports whether an object of a selection belongs to the snapshot. Jobs are read before pods.
func (c *collector) counts(object snapshot.Object) bool {
	switch object := object.(type) {
	case *batchv1.Job:
		c.isRunning[object.UID] = object.DeletionTimestamp == nil && (object.Spec.Suspend == nil || !*object.Spec.Suspend)
	case *corev1.Pod:
		if object.Labels[apis.PodGroupMemberLabel] == apis.PodGroupMemberValue {
			return true
		}
		var job types.UID
		if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
			job = owner.UID
		}
		isRunning, isKnown := c.isRunning[job]
		// Jobs that are in no queue were not read. Those of a JobSet may have been deleted before their pods.
		isQueued := isKnown || object.Labels[jobset.JobSetUIDKey] != ""
		return isQueued && (c.AllPods || object.DeletionTimestamp != nil || !isRunning)
	}
	return true
}

// isUnserved reports whether the API server does not serve a kind.
func isUnserved(err error) bool {
	_, isUndiscovered := errors.AsType[*apiutil.ErrResourceDiscoveryFailed](err)
	return isUndiscovered || meta.IsNoMatchError(err) || apierrors.IsNotFound(err)
}

// ReasonOf returns the message of the API server about a missing right, without the resource, which the Gap names.
func ReasonOf(err error) string {
	text := err.Error()
	if status, isStatus := errors.AsType[*apierrors.StatusError](err); isStatus {
		text = status.ErrStatus.Message
	}
	if _, who, isLong := strings.Cut(text, " is forbidden: "); isLong {
		return who
	}
	return text
}

// WithoutVisibility returns why the visibility API does not answer, and what to do. RBAC also forbids an API that does not exist.
func WithoutVisibility(err error) string {
	if apierrors.IsForbidden(err) {
		return "the visibility API is not installed (config/visibility, or visibility.enable of the chart), or you lack the role " +
			"tranche-pending-workloads-localqueue-viewer"
	}
	if apierrors.IsServiceUnavailable(err) {
		return "no manager serves the visibility API: none may be running"
	}
	return "the visibility API is not served: visibility.enable must be true in the manager's configuration, and config/visibility applied"
}

// IsUnserved reports whether the visibility API is not served, as opposed to a queue that does not exist.
func IsUnserved(err error) bool {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsNotFound(err) {
		return status.ErrStatus.Details == nil || status.ErrStatus.Details.Group == ""
	}
	return apierrors.IsServiceUnavailable(err)
}

// cure returns what to do about a missing right.
func cure(verb, resource, namespace, role string) string {
	if namespace != "" {
		return fmt.Sprintf("ask for the right to %s %s in namespace %s, for example by a RoleBinding to the ClusterRole %s", verb, resource, namespace, role)
	}
	return fmt.Sprintf("ask for the right to %s %s, for example by a ClusterRoleBinding to the ClusterRole %s", verb, resource, role)
}

// A progress counts the objects of one kind.
type progress struct {
	resource string
	report   func(resource string, read, remaining int64)
	read     int64
}

func (p *progress) add(read, remaining int64) {
	p.read += read
	if p.report != nil {
		p.report(p.resource, p.read, remaining)
	}
}
