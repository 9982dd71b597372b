package load

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Submitter submits jobs to a cluster while the manager runs.
type Submitter struct{ loader *loader }

// NewSubmitter returns a Submitter for a cluster that was filled with a snapshot. The configuration has its defaults.
func NewSubmitter(cl *cluster.Cluster, s *snapshot.Snapshot, config *configapi.Configuration) *Submitter {
	l := newLoader(cl, s, config, 0)
	l.indexPodRules()
	return &Submitter{l}
}

// Held returns a JobSet as the admission policies change it when it is created: suspended, and with held Jobs.
func Held(js *jobsetapi.JobSet) *jobsetapi.JobSet {
	created := js.DeepCopy()
	for _, written := range []string{apis.StartedAnnotation, apis.PausedAnnotation, apis.FinishedStagesAnnotation, apis.TimelineAnnotation} {
		delete(created.Annotations, written)
	}
	created.Status, created.DeletionTimestamp, created.Finalizers = jobset.JobSetStatus{}, nil, nil
	created.Spec.Suspend = new(true)
	for i := range created.Spec.ReplicatedJobs {
		metav1.SetMetaDataLabel(&created.Spec.ReplicatedJobs[i].Template.ObjectMeta, apis.HoldLabel, apis.HoldValue)
	}
	return created
}

// Refusal says why the manager would refuse a held JobSet or not manage it, or returns "".
func (b *Submitter) Refusal(js *jobsetapi.JobSet) (why string) {
	if why = b.loader.unmanaged(js); why == "" {
		_, why = b.loader.userJob(js)
	}
	return why
}

// JobSet creates a held JobSet. It returns why the manager would refuse it.
func (b *Submitter) JobSet(js *jobsetapi.JobSet) (why string) {
	j, why := b.loader.userJob(js)
	if why != "" {
		return why
	}
	b.loader.NeedNamespace(js.Namespace)
	b.loader.UserJobs[j.Key()] = j
	b.loader.PutJobSet(js)
	b.loader.PutPlan(j)
	return ""
}

// Job returns the submission of a job of another kind that has this quota Workload.
func (b *Submitter) Job(w *kueue.Workload) *cluster.UserJob {
	created := w.DeepCopy()
	created.Status = kueue.WorkloadStatus{}
	j := b.loader.plainJob(created)
	j.IsDeleted = false
	b.loader.NeedNamespace(w.Namespace)
	b.loader.PlainJobs[types.NamespacedName{Namespace: w.Namespace, Name: w.Name}] = j
	return j
}
