package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/test/sample"
)

// A churn is many quota Workloads without a JobSet in the queues of a tree of Cohorts. It runs those that are admitted, as the
// controller of a job would, and submits the next whenever one has finished.
type churn struct {
	namespace string
	queues    int
	rand      *rand.Rand

	mu                             sync.Mutex
	items                          map[types.NamespacedName]*churnItem
	submitted, finished, evictions int
	problems                       []error
	next                           chan struct{} // one for each quota Workload to be submitted
}

// A churnItem is one quota Workload of a churn.
type churnItem struct {
	version string
	runs    time.Duration
	attempt int // grows whenever a run ends
	stage   growth
	evicted bool
	overdue bool // its run has ended, and it has to be written once more
	timer   *time.Timer
}

// A growth is the progress of a quota Workload.
type growth int

const (
	waiting growth = iota
	running
	finished
)

// newChurn makes the queues of a churn: three in each of two Cohorts below a third, which borrow, lend and preempt.
func newChurn(ctx context.Context, seed uint64) *churn {
	GinkgoHelper()
	h := &churn{
		namespace: "churn", queues: 6, rand: rand.New(rand.NewPCG(seed, seed)),
		items: map[types.NamespacedName]*churnItem{}, next: make(chan struct{}, 1<<12),
	}
	Expect(env.CreateNamespace(ctx, h.namespace, nil)).To(Succeed())
	objects := []client.Object{
		cohort("churn", "", "3"), cohort("churn-0", "churn", "2"), cohort("churn-1", "churn", "0"),
	}
	for i := range h.queues {
		queue := clusterQueue("churn-"+strconv.Itoa(i), "8", "0")
		queue.Spec.CohortName = kueue.CohortReference("churn-" + strconv.Itoa(i/3))
		queue.Spec.Preemption = &kueue.ClusterQueuePreemption{
			WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyAny,
		}
		quota := &queue.Spec.ResourceGroups[0].Flavors[0].Resources[0]
		switch i % 3 {
		case 0:
			quota.BorrowingLimit = new(resource.MustParse("7"))
		case 1:
			quota.LendingLimit = new(resource.MustParse("4"))
		}
		objects = append(objects, queue, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: queue.Name},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(queue.Name)},
		})
	}
	for _, object := range objects {
		Expect(env.Admin.Create(ctx, object)).To(Succeed())
	}
	return h
}

func cohort(name, parent, cpus string) *kueue.Cohort {
	c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.ParentName = kueue.CohortReference(parent)
	c.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
		Flavors: []kueue.FlavorQuotas{{Name: "cpu", Resources: []kueue.ResourceQuota{
			{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse(cpus)},
		}}},
	}}
	return c
}

// begin submits so many quota Workloads, this many at most at a time, until the context ends.
func (h *churn) begin(ctx context.Context, total, atOnce int) {
	GinkgoHelper()
	var list kueue.WorkloadList
	Expect(env.Admin.List(ctx, &list, client.InNamespace(h.namespace))).To(Succeed())
	source := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		return env.Admin.Watch(ctx, &kueue.WorkloadList{}, &client.ListOptions{Namespace: h.namespace, Raw: &options})
	}}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, source)
	Expect(err).NotTo(HaveOccurred())
	go func() {
		for event := range watcher.ResultChan() {
			if w, ok := event.Object.(*kueue.Workload); ok && event.Type != watch.Deleted {
				h.see(ctx, w)
			}
		}
	}()
	for range atOnce {
		h.next <- struct{}{}
	}
	go func() {
		for i := range total {
			select {
			case <-ctx.Done():
				return
			case <-h.next:
				h.submit(ctx, i)
			}
		}
	}()
}

// submit creates a quota Workload. Most are small, of low priority and run for long: they are there to be preempted.
func (h *churn) submit(ctx context.Context, i int) {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: fmt.Sprintf("churn-%04d", i)}}
	c, priority, cpus := &churnItem{runs: 400 * time.Millisecond}, int32(0), 1+h.rand.IntN(2)
	switch h.rand.IntN(8) {
	case 0:
		c.runs, priority, cpus = 200*time.Millisecond, 5, 2+h.rand.IntN(3)
	case 1:
		c.runs, priority, cpus = 100*time.Millisecond, 10, 4+h.rand.IntN(4)
	}
	w.Spec.QueueName = kueue.LocalQueueName("churn-" + strconv.Itoa(h.rand.IntN(h.queues)))
	w.Spec.Priority = &priority
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "main", Image: "example.com/churn",
			Resources: corev1.ResourceRequirements{Requests: sample.Amounts("cpu", strconv.Itoa(cpus))},
		}},
	}}}}
	h.mu.Lock()
	h.items[client.ObjectKeyFromObject(w)] = c
	h.submitted++
	h.mu.Unlock()
	h.report(ctx, env.Admin.Create(ctx, w))
}

// see applies an event of the watch to one quota Workload.
func (h *churn) see(ctx context.Context, w *kueue.Workload) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := client.ObjectKeyFromObject(w)
	c := h.items[key]
	if c == nil || c.stage == finished {
		return
	}
	c.version = w.ResourceVersion
	isEvicted := apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadEvicted)
	if isEvicted && !c.evicted {
		h.evictions++
	}
	c.evicted = isEvicted
	if isEvicted && w.Status.Admission != nil {
		go h.release(ctx, w.DeepCopy())
	}
	runs := apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted) && !isEvicted
	switch {
	case apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished):
		c.stage = finished
		h.finished++
		h.next <- struct{}{}
	case runs && c.stage == waiting:
		c.stage, c.overdue = running, false
		attempt := c.attempt
		c.timer = time.AfterFunc(c.runs, func() { h.finish(ctx, key, attempt) })
	case !runs && c.stage == running:
		c.stage = waiting
		c.attempt++
		c.timer.Stop()
	case c.stage == running && c.overdue:
		c.overdue = false
		go h.finish(ctx, key, c.attempt)
	}
}

// release releases the quota of an evicted quota Workload, as the controller of a job does once its pods have terminated. If that is
// refused because of a write that has not been observed yet, the next event of the watch causes another try.
func (h *churn) release(ctx context.Context, w *kueue.Workload) {
	released := &kueue.Workload{
		TypeMeta:   metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload"},
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, ResourceVersion: w.ResourceVersion},
		Status:     workloadstatus.QuotaReleased(w, time.Now()),
	}
	if err := h.apply(ctx, released, apis.AdmissionFieldManager); !apierrors.IsConflict(err) {
		h.report(ctx, err)
	}
}

// finish writes that a run has finished, unless it has been evicted meanwhile. If that is refused because of a write that has not been
// observed yet, the next event of the watch decides.
func (h *churn) finish(ctx context.Context, key types.NamespacedName, attempt int) {
	h.mu.Lock()
	c := h.items[key]
	version, isMine := c.version, c.stage == running && c.attempt == attempt
	h.mu.Unlock()
	if !isMine {
		return
	}
	condition := metav1.Condition{
		Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: kueue.WorkloadFinishedReasonSucceeded,
		Message: "Succeeded", LastTransitionTime: metav1.Now(),
	}
	w := &kueue.Workload{
		TypeMeta:   metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload"},
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, ResourceVersion: version},
		Status:     kueue.WorkloadStatus{Conditions: []metav1.Condition{condition}},
	}
	err := h.apply(ctx, w, "kueue-job-controller-Finished")
	if !apierrors.IsConflict(err) {
		h.report(ctx, err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.version == version {
		c.overdue = true
	} else if c.stage == running && c.attempt == attempt {
		go h.finish(ctx, key, attempt)
	}
}

// apply writes a part of a status under a field manager.
func (h *churn) apply(ctx context.Context, w *kueue.Workload, owner client.FieldOwner) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w)
	if err != nil {
		return err
	}
	return env.Admin.Status().Apply(ctx, applied(fields), owner, client.ForceOwnership)
}

// report keeps an error for the end. Errors caused by the end of the spec are ignored.
func (h *churn) report(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems = append(h.problems, err)
}

// tally is the progress of a churn.
type tally struct {
	submitted, finished, evictions int
	problems                       []error
}

func (h *churn) tally() tally {
	h.mu.Lock()
	defer h.mu.Unlock()
	return tally{h.submitted, h.finished, h.evictions, append([]error(nil), h.problems...)}
}

// unfinished names the quota Workloads that have not finished.
func (h *churn) unfinished(ctx context.Context) string {
	var list kueue.WorkloadList
	if err := env.Admin.List(ctx, &list, client.InNamespace(h.namespace)); err != nil {
		return err.Error()
	}
	text := ""
	for i := range list.Items {
		w := &list.Items[i]
		if !apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
			text += fmt.Sprintf("%s: %+v\n", w.Name, w.Status.Conditions)
		}
	}
	return text
}
