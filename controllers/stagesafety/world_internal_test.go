package stagesafety

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

const (
	checkName = "stages"
	gpu       = corev1.ResourceName("nvidia.com/gpu")
)

// A direct runner runs everything on an engine at once.
type direct struct {
	engine *admission.Engine
	woken  func(admission.Owner)
}

func (d *direct) Observe(event admission.Event) { d.engine.Apply(event) }

func (d *direct) Ask(_ context.Context, f func(*admission.Engine)) error {
	f(d.engine)
	return nil
}

func (d *direct) OnWoken(f func(admission.Owner)) { d.woken = f }

func (d *direct) OnRevoked(func(admission.StageKey)) {}

// wake reports the owners that the engine has woken.
func (d *direct) wake() {
	for _, owner := range d.engine.Woken() {
		d.woken(owner)
	}
}

// newDirect returns an engine beside Kueue's manager with the ClusterQueue q of 8 GPUs, whose AdmissionCheck is that of this controller.
func newDirect(t *testing.T) *direct {
	t.Helper()
	engine, err := admission.New(admission.Config{Leader: admission.LedByKueue})
	if err != nil {
		t.Fatal(err)
	}
	d := &direct{engine: engine}
	check, _ := activated(newCheck(apis.StageSafetyController))
	engine.Apply(admission.NamespaceObserved{Name: "ns"})
	engine.Apply(admission.CheckObserved{AdmissionCheck: check})
	engine.Apply(admission.FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "flavor"}}})
	d.queue(checked())
	return d
}

func checked() *kueue.AdmissionChecksStrategy {
	return &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: checkName}}}
}

func newCheck(controller string) *kueue.AdmissionCheck {
	return &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: checkName, UID: "check", Generation: 3}, Spec: kueue.AdmissionCheckSpec{ControllerName: controller}}
}

func (d *direct) queue(checks *kueue.AdmissionChecksStrategy) { d.queueOf("8", checks) }

// queueOf lets the engine observe the ClusterQueue q with so many GPUs.
func (d *direct) queueOf(gpus string, checks *kueue.AdmissionChecksStrategy) {
	d.engine.Apply(admission.ClusterQueueObserved{ClusterQueue: &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: "q", UID: "queue"},
		Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{}, AdmissionChecksStrategy: checks,
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{gpu},
				Flavors:          []kueue.FlavorQuotas{{Name: "a", Resources: []kueue.ResourceQuota{{Name: gpu, NominalQuota: resource.MustParse(gpus)}}}},
			}},
		},
	}})
	d.engine.Apply(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lq", UID: "lq"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q"},
	}})
}

// submit lets the engine observe a JobSet whose launcher keeps its 4 GPUs while the workers wait for 4 more.
func (d *direct) submit(t *testing.T, name string) (*jobsetapi.JobSet, *stageplan.Plan) {
	t.Helper()
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{apis.QueueLabel: "lq"},
	}}
	for _, job := range []string{"launcher", "workers"} {
		r := jobsetapi.ReplicatedJob{}
		r.Name, r.Replicas = job, 1
		r.Template = batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{gpu: resource.MustParse("4")}},
		}}}}}}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, r)
	}
	js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "launcher", Status: jobset.DependencyReady}}
	plan, err := stageplan.New(&js.Spec)
	if err != nil {
		t.Fatal(err)
	}
	d.engine.Apply(admission.PlanObserved{
		Owner: admission.Owner{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: "ns", Name: name}}, UID: js.UID, Plan: plan,
	})
	return js, plan
}

// launcher returns the quota Workload of the first stage of a JobSet, whose reservation waits for the check.
func launcher(js *jobsetapi.JobSet, plan *stageplan.Plan) *kueue.Workload {
	podSet := &plan.Stages[0].PodSets[0]
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: js.Name + "-launcher", UID: "wl-" + js.UID, ResourceVersion: "1", Labels: map[string]string{apis.StageIndexLabel: "0"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "JobSet", Name: js.Name, UID: js.UID, Controller: new(true)}},
		},
		Spec: kueue.WorkloadSpec{
			QueueName: "lq", PodSets: []kueue.PodSet{{Name: kueue.PodSetReference(podSet.Name), Count: podSet.Count, Template: *podSet.Template}},
		},
		Status: kueue.WorkloadStatus{
			Conditions:      []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}},
			AdmissionChecks: []kueue.AdmissionCheckState{{Name: checkName, State: kueue.CheckStatePending}},
			Admission: &kueue.Admission{ClusterQueue: "q", PodSetAssignments: []kueue.PodSetAssignment{{
				Name: kueue.PodSetReference(podSet.Name), Count: new(int32(1)), ResourceUsage: corev1.ResourceList{gpu: resource.MustParse("4")},
				Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "a"},
			}}},
		},
	}
}
