// Package soak_test lets tenants run staged JobSets, JobSets with gangs, groups that start together, gangs of pods and queued Jobs on a real control plane,
// with fair sharing between their queues and an AdmissionCheck on one of them, while processes are killed, objects are deleted and quotas change.
// Then it looks for what is wrong, stuck or left over.
//
// SOAK_DURATION sets the duration (one minute), SOAK_SEED repeats what was done in an earlier run as far as the timing allows,
// SOAK_DIR keeps the logs, SOAK_BINARY names the binary of the manager (bin/tranche), and SOAK_CHAOS what may happen, separated by commas (everything).
package soak_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/invariants"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	// submissionsPerMinute makes 375 JobSets, gangs of pods and queued Jobs in 15 minutes.
	submissionsPerMinute = 25

	poll = 100 * time.Millisecond
	// stuckAfter is for how long no JobSet, gang or Job may finish after the chaos.
	stuckAfter = 3 * time.Minute
	// auditTimeout is how long the auditor may take to catch up.
	auditTimeout = time.Minute
)

// A soak is one run. One goroutine does everything but what outside plays.
type soak struct {
	t       *testing.T
	env     *testenv.World
	admin   client.Client
	auditor *invariants.Auditor
	outside *outside
	random  *rand.Rand
	began   time.Time

	manager *testenv.Manager // nil while it is down
	jobSets []client.ObjectKey
	// pods are the gangs of pods, and begun those of which something was created, by their numbers.
	pods  []client.ObjectKey
	begun map[int]*pods
	// jobs are the Jobs that are queued by themselves.
	jobs []client.ObjectKey
	// doomed are the JobSets that fail in their first attempt.
	doomed map[client.ObjectKey]bool
	// most is how many pods each stage of a JobSet may have.
	most map[client.ObjectKey]int
	// deleted are the JobSets, gangs of pods and queued Jobs that the chaos has deleted.
	deleted map[client.ObjectKey]bool
	strikes map[string]int
}

func TestSoak(t *testing.T) {
	duration := setting(t, "SOAK_DURATION", time.Minute, time.ParseDuration)
	seed := setting(t, "SOAK_SEED", rand.Uint64(), func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) })
	t.Logf("soak for %s with SOAK_SEED=%d", duration, seed)
	s := newSoak(t, seed)
	s.stir(duration, max(int(duration.Minutes()*submissionsPerMinute), 1))
	s.settle()
	s.expectEnd()
	s.log("all JobSets, gangs of pods and queued Jobs have completed")
	s.expectFewRestarts()
	s.expectJobs()
	s.expectNothingHeld()
	s.expectNothingLeft()
	s.log("nothing is left over")
	s.expectNoViolations()
	t.Logf("%d JobSets, %d gangs of pods and %d queued Jobs in %s, %d deleted by the chaos, strikes: %v, AdmissionCheck: %d Ready, %d Retry", len(s.jobSets), len(s.pods), len(s.jobs),
		time.Since(s.began).Round(time.Second), len(s.deleted), s.strikes, s.outside.readies.Load(), s.outside.retries.Load())
}

// setting reads an environment variable.
func setting[T any](t *testing.T, name string, fallback T, parse func(string) (T, error)) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	value, err := parse(text)
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	return value
}

// newSoak brings everything up, with the tenants and their queues.
func newSoak(t *testing.T, seed uint64) *soak {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	env, err := testenv.Start(ctx, controlplane.Config{
		NodePools: nodePools(), WorkDir: os.Getenv("SOAK_DIR"), JobSetFeatureGates: map[string]bool{"ElasticJobSet": true},
		// An unschedulable gang would be tried hundreds of times per second.
		FeatureGates:  []string{"GenericWorkload=true", "GangScheduling=true", "SchedulerPopFromBackoffQ=false"},
		RuntimeConfig: []string{"scheduling.k8s.io/v1alpha2=true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &soak{
		t: t, env: env, admin: env.Admin, random: rand.New(rand.NewPCG(seed, seed)), began: time.Now(), begun: map[int]*pods{},
		outside: &outside{admin: env.Admin, random: rand.New(rand.NewPCG(seed, 1))},
		doomed:  map[client.ObjectKey]bool{}, most: map[client.ObjectKey]int{}, deleted: map[client.ObjectKey]bool{}, strikes: map[string]int{},
	}
	s.prepareGangs(ctx)
	s.createTenants(ctx)
	if s.auditor, err = invariants.Start(ctx, env.Admin); err != nil {
		t.Fatal(err)
	}
	if s.manager, err = env.StartManager(ctx, managerOptions()); err != nil {
		t.Fatal(err)
	}
	go s.outside.run(ctx)
	t.Cleanup(func() {
		if s.manager != nil {
			_ = s.manager.Stop()
		}
	})
	return s
}

// managerOptions are those of the manager: gangs are placed by the scheduler of Kubernetes, and ClusterQueues share fairly what they borrow.
func managerOptions() testenv.ManagerOptions {
	return testenv.ManagerOptions{Binary: os.Getenv("SOAK_BINARY"), Settings: map[string]any{
		"gang":             map[string]any{"provider": "Kube", "diagnoseAfter": "5s"},
		"fairSharing":      map[string]any{"preemptionStrategies": []string{"LessThanOrEqualToFinalShare", "LessThanInitialShare"}},
		"waitForPodsReady": map[string]any{"requeuingStrategy": map[string]any{"backoffBaseSeconds": 1, "backoffMaxSeconds": 2}},
	}}
}

// prepareGangs installs the PodGroups of Coscheduling, and makes the policies send gangs of JobSets to the scheduler of Kubernetes.
func (s *soak) prepareGangs(ctx context.Context) {
	s.t.Helper()
	if err := s.env.InstallPodGroups("scheduling.x-k8s.io"); err != nil {
		s.t.Fatal(err)
	}
	guards := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap}}
	if err := s.admin.Patch(ctx, guards, client.RawPatch(types.MergePatchType, []byte(`{"data":{"gangProvider":"Kube"}}`))); err != nil {
		s.t.Fatal(err)
	}
	s.await("wait until the policies know who places gangs", func(ctx context.Context) error {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "probe",
			Labels:      map[string]string{apis.HoldLabel: apis.HoldValue, jobset.JobSetNameKey: "probe", jobset.JobSetUIDKey: "0f"},
			Annotations: map[string]string{apis.GangGroupAnnotation: "all", apis.GroupStartAnnotation: "1"},
		}}
		job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "example.com/probe"}}}
		if err := s.admin.Create(ctx, job, client.DryRunAll); err != nil {
			return err
		}
		if template := &job.Spec.Template.Spec; template.SchedulingGroup == nil || len(template.InitContainers) == 0 {
			return errors.New("a Job in a gang and a group is created without them")
		}
		return nil
	})
}

// stir submits JobSets, gangs of pods and queued Jobs during the first half of the time, and strikes all the time.
func (s *soak) stir(duration time.Duration, submissions int) {
	s.t.Helper()
	end := time.Now().Add(duration)
	pending := s.random.Perm(submissions)
	kinds := s.kinds()
	for time.Now().Before(end) && !s.t.Failed() {
		due := int(float64(submissions) * 2 * (1 - float64(time.Until(end))/float64(duration)))
		for len(pending) > 0 && submissions-len(pending) <= due && s.submit(pending[0]) {
			pending = pending[1:]
		}
		s.strike(kinds[s.random.IntN(len(kinds))])
		s.revive()
		// The chaos keeps time, it waits for nothing.
		<-time.After(time.Duration(100+s.random.IntN(900)) * time.Millisecond)
	}
	for _, i := range pending {
		s.await("submit", func(context.Context) error {
			s.revive()
			if !s.submit(i) {
				return errors.New("refused")
			}
			return nil
		})
	}
}

// kinds are the kinds of chaos, each as often as it should happen.
func (s *soak) kinds() []kind {
	s.t.Helper()
	all := map[string]int{
		killManager: 3, killJobSet: 2, killAPIServer: 1, deleteJob: 4, deletePod: 4, cutQuota: 3, restoreQuota: 3,
		suspendJobSet: 4, resumeJobSet: 4, resizeJobSet: 8, deleteJobSet: 1, deletePods: 1, deleteWorkload: 1,
		suspendQueuedJob: 3, resumeQueuedJob: 3, resizeQueuedJob: 6, deleteQueuedJob: 1,
	}
	wanted := os.Getenv("SOAK_CHAOS")
	var kinds []kind
	for _, k := range []string{
		killManager, killJobSet, killAPIServer, deleteJob, deletePod, cutQuota, restoreQuota, suspendJobSet, resumeJobSet, resizeJobSet, deleteJobSet,
		deletePods, deleteWorkload, suspendQueuedJob, resumeQueuedJob, resizeQueuedJob, deleteQueuedJob,
	} {
		if wanted == "" || strings.Contains(","+wanted+",", ","+k+",") {
			for range all[k] {
				kinds = append(kinds, k)
			}
		}
	}
	if len(kinds) == 0 {
		s.t.Fatalf("SOAK_CHAOS=%q names no kind of chaos", wanted)
	}
	return kinds
}

// await tries until there is no error, and fails the test after a while.
func (s *soak) await(what string, try func(context.Context) error) {
	s.t.Helper()
	deadline := time.Now().Add(stuckAfter)
	for {
		err := try(s.t.Context())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: %v", what, err)
		}
		<-time.After(poll)
	}
}
