package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
	samples "github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	// jobSetsPerWorkloads is for how many quota Workloads there is a JobSet of two stages besides.
	jobSetsPerWorkloads = 20
	// leaseDuration is the default of the configuration.
	leaseDuration = 15 * time.Second
	// probeQueue is a ClusterQueue with free quota, and its namespace.
	probeQueue = "probe"
	// observedFor is how long the memory of a manager is observed.
	observedFor = time.Minute
	// probeTimeout limits how long a manager takes to its first decision.
	probeTimeout = 5 * time.Minute
)

// measureStart fills a cluster with quota Workloads and staged JobSets. Then it starts a manager, and a second one that takes over when the first is killed.
func measureStart(ctx context.Context, o *options) (figures []figure, err error) {
	load := backlog(o.workloads)
	probe := clusterQueue(load, 0)
	probe.Name, probe.Finalizers, probe.Spec.CohortName = probeQueue, []string{kueue.ResourceInUseFinalizerName}, ""
	probe.Spec.ResourceGroups[0].Flavors[0].Resources[0].BorrowingLimit = nil
	queues := append(
		backlogQueues(load), probe, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: probeQueue}},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: probeQueue, Name: localQueueName(0)}, Spec: kueue.LocalQueueSpec{ClusterQueue: probeQueue}},
	)
	err = (&site{queues: queues}).open(ctx, o, func(r *run) error {
		s := &starts{r}
		s.shape = load
		if err := s.fill(ctx, o.workloads/jobSetsPerWorkloads); err != nil {
			return err
		}
		figures, err = s.measure(ctx)
		return err
	})
	return figures, err
}

// starts measures managers that start one after the other on the same objects.
type starts struct{ *run }

// fill creates all objects, and lets a manager create the quota Workloads of the JobSets.
func (s *starts) fill(ctx context.Context, jobSets int) error {
	if err := s.createBacklog(ctx); err != nil {
		return err
	}
	if err := s.createJobSets(ctx, jobSets); err != nil {
		return err
	}
	// Without the limit of its client: what it writes here is not measured.
	manager, err := s.launch(map[string]any{"qps": 2000, "burst": 4000})
	if err != nil {
		return err
	}
	return errors.Join(s.awaitPlanned(ctx, jobSets), manager.Stop())
}

// createJobSets creates JobSets of two stages, of which the second waits for the first to complete.
func (s *starts) createJobSets(ctx context.Context, count int) error {
	return inParallel(count, func(i int) error {
		js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: queueName(i % s.shape.Queues()), Name: fmt.Sprintf("staged-%04d", i), Labels: map[string]string{apis.QueueLabel: localQueueName(0)},
		}}
		prepare := samples.ReplicatedJob("prepare", 1, samples.Amounts("cpu", "1"), nil)
		train := samples.ReplicatedJob("train", 4, samples.Amounts("cpu", "2"), nil)
		train.DependsOn = []jobset.DependsOn{{Name: "prepare", Status: jobset.DependencyComplete}}
		js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{prepare, train}
		return s.world.Admin.Create(ctx, js)
	})
}

// launch starts a manager that leads as soon as no other one does, and does not wait until it is ready.
func (s *starts) launch(connection map[string]any) (*testenv.Manager, error) {
	manager, err := s.world.LaunchManager(testenv.ManagerOptions{Settings: map[string]any{
		"clientConnection": connection, "leaderElection": map[string]any{"leaderElect": true},
	}})
	if err != nil {
		return nil, err
	}
	s.managerMetrics, s.manager = manager.Metrics, manager.PID()
	return manager, nil
}

// awaitPlanned waits until all JobSets have the quota Workloads of their stages.
func (s *starts) awaitPlanned(ctx context.Context, jobSets int) error {
	want := s.shape.Queues()*perQueue(s.shape) + 2*jobSets
	err := wait.PollUntilContextTimeout(ctx, quietFor, backlogTimeout, true, func(ctx context.Context) (bool, error) {
		list := metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("WorkloadList"))
		err := s.world.Admin.List(ctx, &list, client.Limit(1))
		remaining := int64(0)
		if list.RemainingItemCount != nil {
			remaining = *list.RemainingItemCount
		}
		return len(list.Items)+int(remaining) >= want, err
	})
	if err != nil {
		return fmt.Errorf("wait for the quota Workloads of %d JobSets: %w", jobSets, err)
	}
	return nil
}

// observe reads what the manager uses, with the most memory that it uses in a minute in which it writes why all these stages wait, and what the servers use.
func (s *starts) observe(ctx context.Context, found *startFound) (err error) {
	var most int64
	for deadline := time.Now().Add(observedFor); time.Now().Before(deadline); {
		if found.leading, err = readUsage(s.manager); err != nil {
			return err
		}
		most = max(most, found.leading.resident)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	found.leading.resident = most
	if found.servers, err = s.readServers(); err != nil {
		return err
	}
	found.stored, err = stored(ctx, s.metrics)
	return err
}

// measure times the first decision of a manager that starts, and of one that takes over.
func (s *starts) measure(ctx context.Context) (_ []figure, err error) {
	var found startFound
	if found.read, err = s.readAll(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	first, err := s.launch(nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, first.Kill()) }()
	if found.cold, err = s.probe(ctx, "cold", began); err != nil {
		return nil, err
	}
	if err := s.awaitCounted(ctx); err != nil {
		return nil, err
	}
	if err := s.observe(ctx, &found); err != nil {
		return nil, err
	}
	second, err := s.launch(nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, second.Stop()) }()
	if err := second.WaitReady(ctx); err != nil {
		return nil, err
	}
	if found.standby, err = readUsage(s.manager); err != nil {
		return nil, err
	}
	began = time.Now()
	if err := first.Kill(); err != nil {
		return nil, err
	}
	if found.takeover, err = s.probe(ctx, "takeover", began); err != nil {
		return nil, err
	}
	return found.figures(), nil
}

// A startFound is what a run has measured: the times to the first decisions, and what processes have used.
type startFound struct {
	cold, takeover time.Duration
	// read is how long it takes to receive all quota Workloads.
	read             time.Duration
	leading, standby usage
	servers          reading
	// stored is how many bytes etcd has.
	stored int64
}

func (f *startFound) figures() []figure {
	return []figure{
		seconds("bound/read", f.read), seconds("cold/first-decision", f.cold), seconds("takeover/first-decision", f.takeover), seconds("takeover/after-lease", f.takeover-leaseDuration),
		mebibytes("manager/rss", f.leading.resident), mebibytes("manager/peak-rss", f.leading.peak), mebibytes("standby/peak-rss", f.standby.peak),
		mebibytes("apiserver/peak-rss", f.servers.apiserver.peak), mebibytes("etcd/stored", f.stored),
	}
}

// readAll returns how long it takes to receive all quota Workloads by a watch, as the cache of a manager does, and to do nothing with them. No manager that fills
// its cache in that way can decide earlier.
func (s *starts) readAll(ctx context.Context) (_ time.Duration, err error) {
	began := time.Now()
	stream, err := s.api.clients[0].Get().Resource("workloads").Param("watch", "true").Param("sendInitialEvents", "true").
		Param("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan)).Param("allowWatchBookmarks", "true").Stream(ctx)
	if err != nil {
		return 0, fmt.Errorf("watch all quota Workloads: %w", err)
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	for events := bufio.NewReader(stream); ; {
		event, err := events.ReadBytes('\n')
		switch {
		case err != nil:
			return 0, fmt.Errorf("receive all quota Workloads: %w", err)
		case bytes.Contains(event, []byte(metav1.InitialEventsAnnotationKey)):
			return time.Since(began), nil
		}
	}
}

// probe creates a quota Workload that fits, and returns how long after a time it was admitted.
func (s *starts) probe(ctx context.Context, name string, since time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	news, err := s.world.Admin.Watch(ctx, &kueue.WorkloadList{}, client.InNamespace(probeQueue))
	if err != nil {
		return 0, fmt.Errorf("watch the probe: %w", err)
	}
	defer news.Stop()
	if err := s.api.create(ctx, quotaWorkload(probeQueue, name, localQueueName(0), &shape.Class{CPU: resource.MustParse("1")})); err != nil {
		return 0, err
	}
	for event := range news.ResultChan() {
		seen, isWorkload := event.Object.(*kueue.Workload)
		if isWorkload && seen.Name == name && meta.IsStatusConditionTrue(seen.Status.Conditions, kueue.WorkloadQuotaReserved) {
			return time.Since(since), nil
		}
	}
	return 0, errors.Join(fmt.Errorf("the probe %s was not admitted within %s", name, probeTimeout), ctx.Err())
}
