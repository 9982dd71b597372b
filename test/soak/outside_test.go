package soak_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
)

const (
	checkName       = "budget"
	checkController = "soak.example.com/budget"

	barrierContainer = "group-scheduling-init"
	configMapSuffix  = "-group-scheduling"

	// outsideEvery is how often the simulated outside components read the cluster.
	outsideEvery = 250 * time.Millisecond
)

// An outside simulates components that are neither part of Tranche nor run by the control plane: the controller of an AdmissionCheck, and
// the work of kubelets beyond the fake nodes. It retries after an error: the API server may be down.
type outside struct {
	admin  client.Client
	random *rand.Rand
	// isCalm makes the check Ready for all.
	isCalm atomic.Bool
	// retries and readies count the answers of the check.
	retries, readies atomic.Int64
}

// run plays until the context ends.
func (o *outside) run(ctx context.Context) {
	tick := time.NewTicker(outsideEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_ = o.activateCheck(ctx)
		var workloads kueue.WorkloadList
		if o.admin.List(ctx, &workloads) == nil {
			for i := range workloads.Items {
				_ = o.answer(ctx, &workloads.Items[i])
			}
		}
		var pods corev1.PodList
		if o.admin.List(ctx, &pods) == nil {
			for i := range pods.Items {
				_ = o.playKubelet(ctx, &pods.Items[i])
			}
		}
	}
}

// activateCheck reports that the controller of the AdmissionCheck runs.
func (o *outside) activateCheck(ctx context.Context) error {
	var check kueue.AdmissionCheck
	if err := o.admin.Get(ctx, client.ObjectKey{Name: checkName}, &check); err != nil {
		return err
	}
	active := metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", ObservedGeneration: check.Generation}
	if !apimeta.SetStatusCondition(&check.Status.Conditions, active) {
		return nil
	}
	return o.admin.Status().Update(ctx, &check)
}

// answer decides about a quota Workload that waits for the AdmissionCheck: it is Ready, or is to be tried again. Rarely it is to be tried again
// after it was Ready.
func (o *outside) answer(ctx context.Context, w *kueue.Workload) error {
	i := slices.IndexFunc(w.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.Name == checkName })
	if i < 0 || w.Status.Admission == nil || apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
		return nil
	}
	answer := kueue.AdmissionCheckState{Name: checkName, LastTransitionTime: metav1.Now()}
	switch state, dice := w.Status.AdmissionChecks[i].State, o.random.IntN(100); {
	case state == kueue.CheckStatePending && (o.isCalm.Load() || dice < 40):
		answer.State, answer.Message = kueue.CheckStateReady, "there is money"
		o.readies.Add(1)
	case !o.isCalm.Load() && (state == kueue.CheckStatePending && dice < 55 || state == kueue.CheckStateReady && dice < 1):
		answer.State, answer.Message = kueue.CheckStateRetry, "there is no money now"
		if o.random.IntN(2) == 0 {
			answer.RequeueAfterSeconds = new(int32(1))
		}
		o.retries.Add(1)
	default:
		return nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&kueue.WorkloadStatus{AdmissionChecks: []kueue.AdmissionCheckState{answer}})
	if err != nil {
		return err
	}
	patch := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	patch.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	patch.SetNamespace(w.Namespace)
	patch.SetName(w.Name)
	patch.SetResourceVersion(w.ResourceVersion)
	return o.admin.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), client.FieldOwner(checkController), client.ForceOwnership)
}

// playKubelet ends the init container of a pod whose group may start, as that container would, and lets deleted pods of Jobs that wait for
// that fail, as a kubelet does.
func (o *outside) playKubelet(ctx context.Context, pod *corev1.Pod) error {
	switch {
	case pod.Status.Phase != corev1.PodPending && pod.Status.Phase != corev1.PodRunning:
		return nil
	case pod.DeletionTimestamp != nil && pod.Labels[apis.PodGroupMemberLabel] != "":
		pod.Status.Phase = corev1.PodFailed
		return o.admin.Status().Update(ctx, pod)
	case pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodPending || pod.Annotations[controlplane.FakeInit] == "" || !isWaiting(pod):
		return nil
	}
	var notice corev1.ConfigMap
	if err := o.admin.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Labels[jobset.JobSetNameKey] + configMapSuffix}, &notice); err != nil {
		return err
	}
	signal := pod.Labels[batchv1.ControllerUidLabel] + "." + pod.Annotations[apis.ReleaseAnnotation]
	if !slices.Contains(strings.Fields(notice.Data["released"]), signal) {
		return nil
	}
	start(pod)
	return o.admin.Status().Update(ctx, pod)
}

func isWaiting(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == barrierContainer && s.State.Running != nil })
}

// start lets the main containers of a pod run.
func start(pod *corev1.Pod) {
	now := metav1.Now()
	pod.Status.Phase = corev1.PodRunning
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		status.Ready, status.State = true, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: now}}
	}
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, Started: new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
}
