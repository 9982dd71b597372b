// Package initial reads the objects that exist before a scenario begins.
package initial

import (
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/manifest"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// Manifests are objects that exist before a scenario begins.
type Manifests struct {
	// Skipped names the objects of other kinds, with their files.
	Skipped []string

	namespaces    []*corev1.Namespace
	flavors       []*kueue.ResourceFlavor
	checks        []*kueue.AdmissionCheck
	classes       []*kueue.WorkloadPriorityClass
	cohorts       []*kueue.Cohort
	clusterQueues []*kueue.ClusterQueue
	localQueues   []*kueue.LocalQueue
}

// Read adds the objects in all YAML files of a file system, subdirectories included. It is strict: an unknown field and one that is
// given twice are errors that name the file and the line.
func (m *Manifests) Read(files fs.FS) error {
	names, err := manifest.Files(files)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	for _, name := range names {
		if err := m.readFile(files, name); err != nil {
			return fmt.Errorf("read manifests: %w", err)
		}
	}
	return nil
}

func (m *Manifests) readFile(files fs.FS, name string) error {
	content, err := fs.ReadFile(files, name)
	if err != nil {
		return err
	}
	objects, errs := manifest.Read(name, content)
	if len(errs) > 0 {
		return errs[0]
	}
	for _, object := range objects {
		if err := m.add(object); err != nil {
			return fmt.Errorf("%s: %w", object.At(), err)
		}
	}
	return nil
}

// add decodes one object.
func (m *Manifests) add(o *manifest.Object) error {
	switch {
	case o.GVK.Group == kueue.SchemeGroupVersion.Group && o.GVK.Version != kueue.SchemeGroupVersion.Version:
		return fmt.Errorf("%s has apiVersion %s: write it in %s", o, o.GVK.GroupVersion(), kueue.SchemeGroupVersion)
	case o.GVK == corev1.SchemeGroupVersion.WithKind("Namespace"):
		return decodeInto(o, &m.namespaces)
	case o.GVK.Group == kueue.SchemeGroupVersion.Group:
		return m.addQueueObject(o)
	}
	m.skip(o)
	return nil
}

func (m *Manifests) skip(o *manifest.Object) {
	m.Skipped = append(m.Skipped, fmt.Sprintf("%s (%s)", o, o.File))
}

func (m *Manifests) addQueueObject(o *manifest.Object) error {
	switch o.GVK.Kind {
	case "ResourceFlavor":
		return decodeInto(o, &m.flavors)
	case "AdmissionCheck":
		return decodeInto(o, &m.checks)
	case "WorkloadPriorityClass":
		return decodeInto(o, &m.classes)
	case "Cohort":
		return decodeInto(o, &m.cohorts)
	case "ClusterQueue":
		return decodeInto(o, &m.clusterQueues)
	case "LocalQueue":
		return decodeInto(o, &m.localQueues)
	}
	m.skip(o)
	return nil
}

func decodeInto[T any](o *manifest.Object, list *[]*T) error {
	object := new(T)
	if err := o.DecodeStrict(object); err != nil {
		return err
	}
	*list = append(*list, object)
	return nil
}

// AddTo puts the objects into a store. Of two objects of the same kind and name the later one is used.
func (m *Manifests) AddTo(cl *cluster.Cluster) {
	if m == nil {
		return
	}
	for _, o := range m.namespaces {
		cl.StoreNamespace(o.DeepCopy())
	}
	addAll(cl, m.flavors, func(o *kueue.ResourceFlavor) { cl.Flavors[o.Name] = o })
	addAll(cl, m.checks, func(o *kueue.AdmissionCheck) {
		// The controller of a check reports in its status that it is active, which manifests do not have.
		o.Status = ActiveCheck()
		cl.AdmissionChecks[o.Name] = o
	})
	addAll(cl, m.classes, func(o *kueue.WorkloadPriorityClass) { cl.PriorityClasses[o.Name] = o })
	addAll(cl, m.cohorts, func(o *kueue.Cohort) { cl.Cohorts[o.Name] = o })
	addAll(cl, m.clusterQueues, func(o *kueue.ClusterQueue) {
		if o.Spec.QueueingStrategy == "" {
			o.Spec.QueueingStrategy = kueue.BestEffortFIFO
		}
		cl.ClusterQueues[o.Name] = o
	})
	addAll(cl, m.localQueues, func(o *kueue.LocalQueue) {
		if o.Namespace == "" {
			o.Namespace = metav1.NamespaceDefault
		}
		if _, ok := cl.Namespaces[o.Namespace]; !ok {
			cl.StoreNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Namespace}})
		}
		cl.LocalQueues[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o
	})
}

// ActiveCheck returns the status of an AdmissionCheck whose controller is running.
func ActiveCheck() kueue.AdmissionCheckStatus {
	return kueue.AdmissionCheckStatus{
		Conditions: []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active"}},
	}
}

type copyable[T any] interface {
	metav1.Object
	DeepCopy() T
}

// addAll stamps copies, so that the same manifests can be used again.
func addAll[T copyable[T]](cl *cluster.Cluster, objects []T, put func(T)) {
	for _, o := range objects {
		object := o.DeepCopy()
		object.SetUID("")
		cl.Stamp(object)
		put(object)
	}
}
