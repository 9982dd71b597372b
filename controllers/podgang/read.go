package podgang

import (
	"cmp"
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// snapshot is the snapshot that one reconcile works on. Its objects may belong to a cache and are not changed.
type snapshot struct {
	podgang.Snapshot
	// object is the PodGroup as it was read, or nil.
	object *unstructured.Unstructured
}

// A readers has the readers of one reconcile.
type readers struct {
	// objects and pods are readers; findPods and findWorkloads return the list options for the pods and quota Workloads of a gang.
	objects, pods client.Reader
	findPods      func(podgroup.Ref) []client.ListOption
	findWorkloads func(podgroup.Ref) []client.ListOption
}

// cached reads from the caches.
func (r *Reconciler) cached() readers {
	byIndex := func(ref podgroup.Ref) []client.ListOption {
		return []client.ListOption{client.InNamespace(ref.Namespace), client.MatchingFields{indexGang: ref.String()}}
	}
	return readers{objects: r.client, pods: r.pods, findPods: byIndex, findWorkloads: byIndex}
}

// past returns the readers that bypass the caches.
func (r *Reconciler) past() readers {
	return readers{
		objects: r.live, pods: r.live,
		findPods: func(ref podgroup.Ref) []client.ListOption {
			if ref.Kind == podgroup.Single {
				return []client.ListOption{client.InNamespace(ref.Namespace), podLabels(ref), client.MatchingFields{metav1.ObjectNameField: ref.Name}}
			}
			return []client.ListOption{client.InNamespace(ref.Namespace), podLabels(ref)}
		},
		findWorkloads: func(ref podgroup.Ref) []client.ListOption {
			return []client.ListOption{client.InNamespace(ref.Namespace), client.MatchingLabels{apis.PodGroupKey: ref.Label()}}
		},
	}
}

// podLabels returns labels that all pods of a gang have. Pods of other gangs may have them too, unless a label alone names the gang.
func podLabels(ref podgroup.Ref) client.MatchingLabels {
	all := client.MatchingLabels{apis.PodGroupMemberLabel: apis.PodGroupMemberValue}
	key := map[podgroup.Kind]string{podgroup.Coscheduling: apis.CoschedulingLabel, podgroup.Koordinator: apis.KoordinatorLabel}[ref.Kind]
	if key != "" && len(validation.IsValidLabelValue(ref.Name)) == 0 {
		all[key] = ref.Name
	}
	return all
}

// read returns nil if the namespace is not managed, and the gang has no quota Workload. While it has one in such a namespace, its pods are
// evicted and its quota is released, but no pod is ungated.
func (r *Reconciler) read(ctx context.Context, ref podgroup.Ref, from readers) (*snapshot, error) {
	managed, err := r.isManaged(ctx, ref.Namespace)
	if err != nil {
		return nil, fmt.Errorf("read namespace %q: %w", ref.Namespace, err)
	}
	workloads, err := r.readWorkloads(ctx, ref, from)
	if err != nil {
		return nil, err
	}
	if !managed && len(workloads) == 0 {
		return nil, nil //nolint:nilnil // there is nothing to read
	}
	s, err := r.readGang(ctx, ref, from)
	if err != nil {
		return nil, err
	}
	s.Workloads = workloads
	if !managed {
		s.Problems = append(s.Problems, fmt.Sprintf("namespace %q is no longer managed: add the labels that managedNamespaceSelector requires, or remove the pods from the gang", ref.Namespace))
	}
	r.watch(ref, s.Gang.Peers())
	peers, err := r.readPeers(ctx, s, from)
	if err != nil {
		return nil, err
	}
	if err := r.readPriority(ctx, s); err != nil {
		return nil, err
	}
	if err := r.readPredecessors(ctx, s); err != nil {
		return nil, err
	}
	if err := r.readGone(ctx, s); err != nil {
		return nil, err
	}
	if s.Flavors, err = apply.Flavors(ctx, r.client, workloads); err != nil {
		return nil, err
	}
	s.Backoff = func(count int32) time.Duration { return workloadstatus.Backoff(&r.config.Requeuing, count) }
	s.Retention = r.config.Retention
	if err := r.readCharges(ctx, append(peers, s)...); err != nil {
		return nil, err
	}
	for _, peer := range peers {
		s.Peers = append(s.Peers, podgang.PeerOf(&peer.Snapshot))
	}
	return s, nil
}

// isManaged reports whether a namespace is managed.
func (r *Reconciler) isManaged(ctx context.Context, name string) (bool, error) {
	var namespace corev1.Namespace
	if err := r.client.Get(ctx, types.NamespacedName{Name: name}, &namespace); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return r.config.Namespaces.Matches(labels.Set(namespace.Labels)), nil
}

// readGang reads the PodGroup, the Jobs and the pods of a gang.
func (r *Reconciler) readGang(ctx context.Context, ref podgroup.Ref, from readers) (*snapshot, error) {
	s := &snapshot{}
	var err error
	if s.Jobs, err = r.readJobs(ctx, ref); err != nil {
		return nil, err
	}
	if s.object, err = r.readObject(ctx, ref, from); err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := from.pods.List(ctx, &list, from.findPods(ref)...); err != nil {
		return nil, fmt.Errorf("list pods of gang %s: %w", ref.Full(), err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if named, ok := podgroup.RefOf(&list.Items[i]); ok && named == ref && podgroup.IsMember(&list.Items[i]) {
			pods = append(pods, &list.Items[i])
		}
	}
	var object *podgroup.Object
	if s.object != nil {
		object = objectOf(s.object)
	}
	devices, err := r.readDevices(ctx, ref.Namespace, pods)
	if err != nil {
		return nil, err
	}
	pods, problems := devices.Charge(pods)
	s.Gang, s.Problems = podgroup.New(ref, object, pods, r.config.Gangs)
	s.Problems = append(s.Problems, problems...)
	return s, nil
}

// readJobs reads the Jobs of a gang from the cache, before the pods: what they count must not be newer than these. It only grows, and an event reports
// what the cache lacks.
func (r *Reconciler) readJobs(ctx context.Context, ref podgroup.Ref) ([]*batchv1.Job, error) {
	var list batchv1.JobList
	if err := r.client.List(ctx, &list, client.InNamespace(ref.Namespace), client.MatchingFields{indexGang: ref.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Jobs of gang %s: %w", ref.Full(), err)
	}
	var all []*batchv1.Job
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}

// readObject returns the PodGroup of a gang, or nil if there is none.
func (r *Reconciler) readObject(ctx context.Context, ref podgroup.Ref, from readers) (*unstructured.Unstructured, error) {
	for _, gvk := range r.apis[ref.Kind] {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(gvk)
		err := from.objects.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, object)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read PodGroup %s of %s: %w", ref.Full(), gvk.GroupVersion(), err)
		}
		if object.GetDeletionTimestamp() == nil && !isOfJobSet(object) {
			return object, nil
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

func (r *Reconciler) readWorkloads(ctx context.Context, ref podgroup.Ref, from readers) ([]*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := from.objects.List(ctx, &list, from.findWorkloads(ref)...); err != nil {
		return nil, fmt.Errorf("list quota Workloads of gang %s: %w", ref.Full(), err)
	}
	var all []*kueue.Workload
	for i := range list.Items {
		if of, ok := refOfWorkload(&list.Items[i]); ok && of == ref {
			all = append(all, &list.Items[i])
		}
	}
	return all, nil
}

// readPeers reads the peers of a gang: the gangs that start together with it. It reads their quota Workloads where those of the gang
// itself are read, and their pods from the cache: the pods only count before quota is requested. A gang in a namespace that is not managed
// counts as one that does not exist.
func (r *Reconciler) readPeers(ctx context.Context, s *snapshot, from readers) ([]*snapshot, error) {
	cached := r.cached()
	from.pods, from.findPods = cached.pods, cached.findPods
	var all []*snapshot
	for _, ref := range s.Gang.Peers() {
		managed, err := r.isManaged(ctx, ref.Namespace)
		if err != nil {
			return nil, fmt.Errorf("read namespace %q of gang %s: %w", ref.Namespace, ref.Full(), err)
		}
		if !managed {
			continue
		}
		peer, err := r.readGang(ctx, ref, from)
		if err != nil {
			return nil, err
		}
		if peer.Workloads, err = r.readWorkloads(ctx, ref, from); err != nil {
			return nil, err
		}
		all = append(all, peer)
	}
	return all, nil
}

// readPriority determines the priority: from the named WorkloadPriorityClass, or else from the pods.
func (r *Reconciler) readPriority(ctx context.Context, s *snapshot) error {
	name := s.Gang.PriorityClass
	if name == "" {
		for i, pod := range s.Gang.Pods {
			value, class := workloadstatus.PodPriority(pod.Spec.PriorityClassName, ptr.Deref(pod.Spec.Priority, 0), r.config.MaxPodPriority)
			if i == 0 || value > s.Priority.Value {
				s.Priority = podgang.Priority{Value: value, Class: class}
			}
		}
		return nil
	}
	var class kueue.WorkloadPriorityClass
	err := r.client.Get(ctx, types.NamespacedName{Name: name}, &class)
	if apierrors.IsNotFound(err) {
		s.Problems = append(s.Problems, fmt.Sprintf("label %s names WorkloadPriorityClass %q, which does not exist: create it, or name another",
			apis.PriorityClassLabel, name))
		return nil
	}
	if err != nil {
		return fmt.Errorf("read WorkloadPriorityClass %q: %w", name, err)
	}
	s.Priority = podgang.Priority{Value: class.Value, Class: kueue.NewWorkloadPriorityClassRef(name)}
	return nil
}

// readPredecessors reads the quota Workloads that a pod may take over from pods that are gone or being deleted. The cache is enough: one that has changed
// since cannot be taken over, and of a pod that is not evicted yet there is no replacement. When many pods of a controller are evicted, each that replaces one
// reads all of these: nothing is copied.
func (r *Reconciler) readPredecessors(ctx context.Context, s *snapshot) error {
	if len(s.Workloads) > 0 || len(s.Gang.Pods) != 1 {
		return nil
	}
	inNamespace := client.InNamespace(s.Gang.Namespace)
	for _, controller := range podgang.ControllerOfReplacement(s.Gang.Pods[0]) {
		var list kueue.WorkloadList
		if err := r.client.List(ctx, &list, inNamespace, client.MatchingFields{indexController: controller}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list quota Workloads of the controller of pod %s: %w", s.Gang.Full(), err)
		}
		for i := range list.Items {
			ref, _ := refOfWorkload(&list.Items[i])
			var pods corev1.PodList
			if err := r.pods.List(ctx, &pods, inNamespace, client.MatchingFields{indexGang: ref.String()}, client.UnsafeDisableDeepCopy); err != nil {
				return fmt.Errorf("list pods of gang %s: %w", ref.Full(), err)
			}
			switch {
			case len(pods.Items) == 0:
				s.Predecessors = append(s.Predecessors, podgang.Predecessor{Workload: &list.Items[i]})
			case pods.Items[0].DeletionTimestamp != nil || podgroup.IsTerminal(&pods.Items[0]):
				s.Predecessors = append(s.Predecessors, podgang.Predecessor{Workload: &list.Items[i], Pod: &pods.Items[0]})
			}
		}
		if len(s.Predecessors) > 0 {
			return r.countSiblings(ctx, s, controller)
		}
	}
	return nil
}

// countSiblings counts the older pods of a controller that wait, and have no quota Workload.
func (r *Reconciler) countSiblings(ctx context.Context, s *snapshot, controller string) error {
	own, siblings := s.Gang.Pods[0], corev1.PodList{}
	if err := r.pods.List(ctx, &siblings, client.InNamespace(s.Gang.Namespace), client.MatchingFields{indexController: controller}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list pods of the controller of pod %s: %w", s.Gang.Full(), err)
	}
	if len(siblings.Items) <= len(s.Predecessors) {
		return nil // each can have one
	}
	for i := range siblings.Items {
		sibling := &siblings.Items[i]
		ref, _ := podgroup.RefOf(sibling)
		if cmp.Or(sibling.CreationTimestamp.Compare(own.CreationTimestamp.Time), cmp.Compare(sibling.Name, own.Name)) >= 0 {
			continue
		}
		workloads, err := r.readWorkloads(ctx, ref, r.cached())
		if err != nil {
			return err
		}
		if len(workloads) > 0 {
			continue
		}
		s.OlderSiblings++
		if s.OlderSiblings == len(s.Predecessors) {
			return nil // they take over all
		}
	}
	return nil
}

// readGone checks which quota Workloads of running pods do not exist. It asks the API server only if the gang does not have one of them. A pod also names its
// quota Workload, but a tenant may change that name: only the UID counts.
func (r *Reconciler) readGone(ctx context.Context, s *snapshot) error {
	isKnown := map[types.UID]bool{"": true}
	for _, w := range s.Workloads {
		isKnown[w.UID] = true
	}
	s.Gone = map[types.UID]bool{}
	for _, pod := range s.Gang.All() {
		if uid := podgroup.Payer(pod); !isKnown[uid] && podgroup.IsActive(pod) {
			s.Gone[uid] = true
		}
	}
	if len(s.Gone) == 0 {
		return nil
	}
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("WorkloadList"))
	if err := r.live.List(ctx, &list, client.InNamespace(s.Gang.Namespace)); err != nil {
		return fmt.Errorf("list quota Workloads in namespace %q: %w", s.Gang.Namespace, err)
	}
	for i := range list.Items {
		if _, isNamed := s.Gone[list.Items[i].UID]; isNamed {
			s.Gone[list.Items[i].UID] = false
		}
	}
	return nil
}

// readCharges asks the engine about the quota Workloads of gangs. Only pods of a Workload that the engine charges are ungated.
func (r *Reconciler) readCharges(ctx context.Context, gangs ...*snapshot) error {
	var all []*kueue.Workload
	for _, s := range gangs {
		all = append(all, s.Workloads...)
	}
	charged, err := apply.Charged(ctx, r.config.Runner, all)
	if err != nil {
		return err
	}
	for _, s := range gangs {
		s.Charged = charged
	}
	return nil
}

// readDevices reads what the pods of a gang are charged for: their ResourceClaims, and whether the ResourceClaimTemplates exist from which
// these are created. Pods without resource claims need neither, and where no DeviceClass is mapped neither is read.
func (r *Reconciler) readDevices(ctx context.Context, namespace string, pods []*corev1.Pod) (*podgroup.Devices, error) {
	devices := &podgroup.Devices{Mapping: r.config.Devices, Claims: map[string]device.Claim{}, Templates: map[string]struct{}{}}
	names := map[string]struct{}{}
	for _, pod := range pods {
		for i := range pod.Spec.ResourceClaims {
			names[ptr.Deref(pod.Spec.ResourceClaims[i].ResourceClaimTemplateName, "")] = struct{}{}
		}
	}
	delete(names, "")
	if len(names) == 0 || len(r.config.Devices) == 0 {
		return devices, nil
	}
	var claims resourcev1.ResourceClaimList
	// The cache is enough: the spec of a ResourceClaim never changes, and an event will report a claim that the cache lacks.
	if err := r.client.List(ctx, &claims, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list ResourceClaims in namespace %q: %w", namespace, err)
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		devices.Claims[c.Name] = device.Claim{Controller: metav1.GetControllerOfNoCopy(c), Spec: c.Spec}
	}
	for name := range names {
		var template resourcev1.ResourceClaimTemplate
		err := r.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &template)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read ResourceClaimTemplate %q in namespace %q: %w", name, namespace, err)
		}
		if err == nil {
			devices.Templates[name] = struct{}{}
		}
	}
	return devices, nil
}
