package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// keepParameters is the name of the policies and bindings of config/crd that match nothing and stay.
const keepParameters = "tranche-keep-parameters"

// An inventory lists the objects of Tranche on a cluster.
type inventory struct {
	// obstacles name the objects that must be deleted before anything else is cleared, and how.
	obstacles []string
	// pinned are the objects with the finalizer that the manager keeps, quota Workloads first.
	pinned []client.Object
	// queued are the JobSets that the admission policies have held.
	queued []queuedJobSet
	// queuedJobs are the Jobs that wait for quota by themselves, or run on it.
	queuedJobs []*batchv1.Job
	// gated counts the pods that wait for the admission of their gang.
	gated int
	// crds are those of kueue.x-k8s.io.
	crds []metav1.PartialObjectMetadata
	// hasKueue is true if the queues and their CRDs belong to Kueue. dependent describes its ClusterQueues that need the manager.
	hasKueue  bool
	dependent []string
}

// A queuedJobSet is a JobSet that is not finished, and how many of its Jobs are held.
type queuedJobSet struct {
	jobSet *jobsetapi.JobSet
	held   int
}

// runs reports whether the JobSet has started and is not suspended.
func (q *queuedJobSet) runs() bool { return !ptr.Deref(q.jobSet.Spec.Suspend, false) }

func (c *cluster) takeInventory(ctx context.Context) (*inventory, error) {
	found := &inventory{}
	for _, look := range []func(context.Context, *inventory) error{
		c.findKueue, c.findManager, c.findPolicies, c.findVisibility, c.findPinned, c.findJobSets, c.findQueuedJobs, c.findGatedPods, c.findCRDs, c.findChecked,
	} {
		if err := look(ctx, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (c *cluster) findManager(ctx context.Context, found *inventory) error {
	var list appsv1.DeploymentList
	if err := c.List(ctx, &list, client.InNamespace(apis.SystemNamespace)); err != nil {
		return fmt.Errorf("list the Deployments of namespace %s: %w", apis.SystemNamespace, err)
	}
	for i := range list.Items {
		d := &list.Items[i]
		if d.Spec.Selector.MatchLabels["app.kubernetes.io/name"] == "tranche" && ptr.Deref(d.Spec.Replicas, 1) > 0 {
			found.obstacles = append(found.obstacles, fmt.Sprintf("Deployment %s/%s runs the manager, which would add the finalizers again", d.Namespace, d.Name))
		}
	}
	var pods corev1.PodList
	err := c.List(ctx, &pods, client.InNamespace(apis.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/name": "tranche"})
	if err != nil {
		return fmt.Errorf("list the pods of namespace %s: %w", apis.SystemNamespace, err)
	}
	if n := len(pods.Items); n > 0 && len(found.obstacles) == 0 {
		found.obstacles = append(found.obstacles, fmt.Sprintf("%s of the manager in namespace %s: not terminated yet", count(n, "pod"), apis.SystemNamespace))
	}
	return nil
}

// findPolicies looks for bindings, which put policies into effect.
func (c *cluster) findPolicies(ctx context.Context, found *inventory) error {
	var names []string
	for _, list := range []client.ObjectList{&admissionregistrationv1.MutatingAdmissionPolicyBindingList{}, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}} {
		if err := c.List(ctx, list); err != nil {
			return fmt.Errorf("list the bindings of admission policies: %w", err)
		}
		for _, object := range objectsOf(list) {
			if name := object.GetName(); strings.HasPrefix(name, "tranche-") && name != keepParameters {
				names = append(names, name)
			}
		}
	}
	if len(names) > 0 {
		found.obstacles = append(found.obstacles, fmt.Sprintf("%s of Tranche: would hold JobSets and Jobs without a manager to release them: %s",
			count(len(names), "admission policy binding"), strings.Join(names, ", ")))
	}
	return nil
}

func (c *cluster) findVisibility(ctx context.Context, found *inventory) error {
	if found.hasKueue {
		return nil
	}
	service := metadataOf("apiregistration.k8s.io", "v1", "APIService")
	err := c.Get(ctx, client.ObjectKey{Name: "v1beta2.visibility.kueue.x-k8s.io"}, service)
	if err == nil {
		found.obstacles = append(found.obstacles, "APIService "+service.Name+" has no server without the manager, and blocks the deletion of namespaces")
	}
	return ignoreUnserved(err)
}

func (c *cluster) findPinned(ctx context.Context, found *inventory) error {
	for _, list := range []client.ObjectList{&kueue.WorkloadList{}, &kueue.ClusterQueueList{}, &kueue.ResourceFlavorList{}, &kueue.AdmissionCheckList{}} {
		if err := c.List(ctx, list); err != nil {
			if isUnknownKind(err) {
				continue
			}
			return fmt.Errorf("list the objects of kueue.x-k8s.io: %w", err)
		}
		for _, object := range objectsOf(list) {
			if found.isPinned(object) {
				found.pinned = append(found.pinned, object)
			}
		}
	}
	return nil
}

func (c *cluster) findJobSets(ctx context.Context, found *inventory) error {
	var list jobsetapi.JobSetList
	if err := c.List(ctx, &list); err != nil {
		if isUnknownKind(err) {
			return nil
		}
		return fmt.Errorf("list the JobSets: %w", err)
	}
	for i := range list.Items {
		js := &list.Items[i]
		isHeld := slices.ContainsFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool { return r.Template.Labels[apis.HoldLabel] != "" })
		if !isHeld && !jobsetstate.IsMarked(js) || js.Status.TerminalState != "" {
			continue
		}
		held, err := c.heldJobs(ctx, js)
		if err != nil {
			return err
		}
		found.queued = append(found.queued, queuedJobSet{jobSet: js, held: held})
	}
	return nil
}

func (c *cluster) findQueuedJobs(ctx context.Context, found *inventory) error {
	var jobs batchv1.JobList
	if err := c.List(ctx, &jobs, client.MatchingLabels{apis.HoldLabel: apis.HoldQueued}); err != nil {
		return fmt.Errorf("list the queued Jobs: %w", err)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if !childjob.IsFinished(job, batchv1.JobComplete) && !childjob.IsFinished(job, batchv1.JobFailed) {
			found.queuedJobs = append(found.queuedJobs, job)
		}
	}
	return nil
}

func (c *cluster) findGatedPods(ctx context.Context, found *inventory) error {
	if found.hasKueue {
		return nil
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.MatchingLabels{apis.PodGroupMemberLabel: apis.PodGroupMemberValue}); err != nil {
		return fmt.Errorf("list the pods of gangs: %w", err)
	}
	for i := range pods.Items {
		if slices.ContainsFunc(pods.Items[i].Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == apis.PodAdmissionGate }) {
			found.gated++
		}
	}
	return nil
}

func (c *cluster) findCRDs(ctx context.Context, found *inventory) error {
	if found.hasKueue {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
	if err := c.List(ctx, list); err != nil {
		return fmt.Errorf("list the CRDs: %w", err)
	}
	for i := range list.Items {
		if strings.HasSuffix(list.Items[i].Name, "."+kueue.SchemeGroupVersion.Group) {
			list.Items[i].SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
			found.crds = append(found.crds, list.Items[i])
		}
	}
	return nil
}

// write lists the objects that were found, and the outcome.
func (found *inventory) write(out io.Writer, outcome []string) error {
	lines := []string{}
	if len(found.obstacles) > 0 {
		lines = append(lines, "Delete first (kubectl delete -k config/default, or helm uninstall tranche --namespace "+apis.SystemNamespace+"):")
		for _, obstacle := range found.obstacles {
			lines = append(lines, "  "+obstacle)
		}
	}
	if len(found.pinned) > 0 {
		lines = append(lines, fmt.Sprintf("%s: the finalizer %s will be removed", countKinds(found.pinned), namesOfFinalizers(found.pinned)))
	}
	lines = append(append(lines, outcome...), found.kueueOutcome()...)
	if found.gated > 0 {
		lines = append(lines, fmt.Sprintf("%s of gangs: the scheduling gate %s stays until it is removed, or the pod is deleted", count(found.gated, "pod"), apis.PodAdmissionGate))
	}
	if len(lines) == 0 {
		lines = append(lines, "Nothing of Tranche is left on this cluster.")
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

// kept describes what happens to JobSets that stay.
func (found *inventory) kept() []string {
	running, waiting, held := 0, 0, 0
	for i := range found.queued {
		if found.queued[i].runs() {
			running++
			held += found.queued[i].held
		} else {
			waiting++
		}
	}
	var lines []string
	if running > 0 {
		line := count(running, "JobSet") + " with running stages: running pods are not interrupted"
		if held > 0 {
			line += fmt.Sprintf("; the JobSet controller will start %s without quota", count(held, "held Job"))
		}
		lines = append(lines, line)
	}
	if waiting > 0 {
		lines = append(lines, count(waiting, "JobSet")+" pending or suspended: will stay suspended until a user sets spec.suspend to false")
	}
	waitingJobs := 0
	for _, job := range found.queuedJobs {
		if ptr.Deref(job.Spec.Suspend, false) {
			waitingJobs++
		}
	}
	if runningJobs := len(found.queuedJobs) - waitingJobs; runningJobs > 0 {
		lines = append(lines, count(runningJobs, "queued Job")+" running: will not be interrupted")
	}
	if waitingJobs > 0 {
		lines = append(lines, count(waitingJobs, "queued Job")+" pending or suspended: will stay suspended until a user sets spec.suspend to false")
	}
	return lines
}

// deleted describes what --everything deletes.
func (found *inventory) deleted() []string {
	var lines []string
	if len(found.queued) > 0 {
		names := make([]string, len(found.queued))
		for i := range found.queued {
			names[i] = client.ObjectKeyFromObject(found.queued[i].jobSet).String()
		}
		lines = append(lines, fmt.Sprintf("%s will be deleted: %s", count(len(names), "JobSet"), strings.Join(names, ", ")))
	}
	if len(found.queuedJobs) > 0 {
		names := make([]string, len(found.queuedJobs))
		for i, job := range found.queuedJobs {
			names[i] = client.ObjectKeyFromObject(job).String()
		}
		lines = append(lines, fmt.Sprintf("%s will be deleted: %s", count(len(names), "queued Job"), strings.Join(names, ", ")))
	}
	if len(found.crds) > 0 {
		lines = append(lines, fmt.Sprintf("%s of kueue.x-k8s.io will be deleted with all their objects", count(len(found.crds), "CRD")))
	}
	return lines
}

// objectsOf returns the objects of a list.
func objectsOf(list client.ObjectList) []client.Object {
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil // every list of the scheme has items
	}
	objects := make([]client.Object, 0, len(items))
	for _, item := range items {
		if object, ok := item.(client.Object); ok {
			objects = append(objects, object)
		}
	}
	return objects
}

// metadataOf returns an empty object of a kind that the scheme need not know.
func metadataOf(group, version, kind string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	return object
}

// isUnknownKind reports whether the API server does not serve a kind.
func isUnknownKind(err error) bool {
	_, isUndiscovered := errors.AsType[*apiutil.ErrResourceDiscoveryFailed](err)
	return isUndiscovered || meta.IsNoMatchError(err) || apierrors.IsNotFound(err)
}

// ignoreUnserved returns nil for the error of a kind that the API server does not serve.
func ignoreUnserved(err error) error {
	if isUnknownKind(err) {
		return nil
	}
	return err
}

// count returns a number with a noun, such as "3 JobSets".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// countKinds counts objects by kind, such as "2 ClusterQueues, 5 Workloads".
func countKinds(objects []client.Object) string {
	counts := map[string]int{}
	for _, object := range objects {
		counts[kindOf(object)]++
	}
	parts := []string{}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, count(counts[kind], kind))
	}
	return strings.Join(parts, ", ")
}

// kindOf returns the kind of an object. Objects that were read one by one do not contain it.
func kindOf(object client.Object) string {
	if kind := object.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	name := fmt.Sprintf("%T", object)
	return name[strings.LastIndex(name, ".")+1:]
}
