package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	// sweeps is the number of Jobs of Kueue for each team.
	sweeps     = 4
	sweepPods  = 2
	sweepGPUs  = 4
	stageCheck = "stage-safety"
	// takenAfter is the part of the JobSets and Jobs, one in so many, that finish before Tranche takes the cohort over.
	takenAfter = 4
)

// besideScene is the scene beside Kueue's manager.
func besideScene() scene {
	return scene{
		start: setUpBeside, play: playBeside, again: "make demo KUEUE=1 KEEP=1",
		ideas: []string{
			"kubectl create -f config/samples/jobsets/fine-tune-llm.yaml   # stages, which Kueue admits",
			"tranche takeover team-a team-b                                # Tranche admits in their cohort",
			"tranche hand-back team-a team-b                               # Kueue admits again",
		},
	}
}

// setUpBeside starts a control plane with Kueue's manager, and installs Tranche beside it.
func setUpBeside(ctx context.Context) (*testenv.World, error) {
	say("Starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler, JobSet, kwok and Kueue ...")
	began := time.Now()
	w, err := testenv.Start(ctx, controlplane.Config{NodePools: pools(), Kueue: &controlplane.KueueOptions{}})
	if err != nil {
		return nil, err
	}
	if err := w.InstallBeside(ctx); err != nil {
		return nil, stopped(w, err)
	}
	say("Ready after %s, with the manager of Kueue 0.19.2, its CRDs, and the RBAC and admission policies from config/beside.", seconds(time.Since(began)))
	return w, nil
}

// playBeside runs the manager beside Kueue with JobSets and Jobs, takes their cohort over and hands it back, and reports.
func playBeside(ctx context.Context, w *testenv.World) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	script, err := loadScript(ctx, w)
	if err != nil {
		return err
	}
	if err := script.joinCohort(ctx, w); err != nil {
		return err
	}
	if _, err := w.StartManager(ctx, testenv.ManagerOptions{Settings: map[string]any{"mode": "Beside"}}); err != nil {
		return err
	}
	say("The manager runs in mode Beside: it stages JobSets, and AdmissionCheck %s asks it about each stage. Kueue admits.", stageCheck)
	observer, err := observe(ctx, w)
	if err != nil {
		return err
	}
	if err := script.submit(ctx, w); err != nil {
		return err
	}
	jobs, err := script.submitSweeps(ctx, w)
	if err != nil {
		return err
	}
	say("%s in one cohort; and %d Jobs with %d GPUs each, which Kueue manages by itself.\n", script, jobs, sweepPods*sweepGPUs)
	all, display := len(script.jobSets)+jobs, newDisplay(observer)
	if err := display.until(ctx, all/takenAfter); err != nil {
		return err
	}
	if err := script.change(ctx, w, "takeover"); err != nil {
		return err
	}
	if err := display.until(ctx, all); err != nil {
		return err
	}
	if err := script.change(ctx, w, "hand-back"); err != nil {
		return err
	}
	whole, err := script.heldWhole(observer)
	if err != nil {
		return err
	}
	summarizeBeside(observer.totals(), whole, jobs)
	return nil
}

// change runs a command of tranche about the ClusterQueues of all teams, as an administrator would.
func (s *script) change(ctx context.Context, w *testenv.World, verb string) error {
	args := append([]string{verb}, s.teams...)
	say("\n$ tranche %s", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, filepath.Join(w.Root, "bin", "tranche"), append(args, "--yes", "--kubeconfig", w.AdminKubeconfig)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("tranche %s: %w", verb, err)
	}
	say("")
	return nil
}

// jobRow is the line of a Job that Kueue manages, by its quota Workload.
func jobRow(w *kueue.Workload, job *metav1.OwnerReference) row {
	r := row{jobSet: w.Namespace + "/" + job.Name, stage: "Job of Kueue", held: ledger.Sum{}, order: w.CreationTimestamp.UTC().Format(time.RFC3339)}
	r.held.Add(w)
	r.state, r.why = stateOf(w)
	if apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
		r.state, r.why, r.finished = "Completed", "", true
	}
	return r
}

// joinCohort puts the ClusterQueues of the teams into one cohort, and lets our manager judge each reservation of Kueue for a stage.
func (s *script) joinCohort(ctx context.Context, w *testenv.World) error {
	if err := w.Admin.Create(ctx, safetyCheck()); err != nil {
		return fmt.Errorf("create AdmissionCheck %s: %w", stageCheck, err)
	}
	for _, team := range s.teams {
		queue := &kueue.ClusterQueue{}
		if err := w.Admin.Get(ctx, client.ObjectKey{Name: team}, queue); err != nil {
			return fmt.Errorf("read ClusterQueue %s: %w", team, err)
		}
		before := queue.DeepCopy()
		join(queue)
		if err := w.Admin.Patch(ctx, queue, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("put ClusterQueue %s into a cohort: %w", team, err)
		}
	}
	return nil
}

// join puts a ClusterQueue into the cohort.
func join(queue *kueue.ClusterQueue) {
	queue.Spec.CohortName = "teams"
	queue.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: stageCheck}}}
}

func safetyCheck() *kueue.AdmissionCheck {
	return &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: stageCheck}, Spec: kueue.AdmissionCheckSpec{ControllerName: apis.StageSafetyController}}
}

// submitSweeps creates the Jobs that Kueue manages, and returns their number.
func (s *script) submitSweeps(ctx context.Context, w *testenv.World) (int, error) {
	n := 0
	for _, team := range s.teams {
		for i := range sweeps {
			job := newSweep(team, fmt.Sprintf("sweep-%d", i+1))
			if err := w.Admin.Create(ctx, job); err != nil {
				return n, fmt.Errorf("submit Job %s/%s: %w", job.Namespace, job.Name, err)
			}
			n++
		}
	}
	return n, nil
}

func newSweep(namespace, name string) *batchv1.Job {
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), gpu: *resource.NewQuantity(sweepGPUs, resource.DecimalSI)}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "main"}}}
	job.Spec.Parallelism, job.Spec.Completions = new(int32(sweepPods)), new(int32(sweepPods))
	job.Spec.Template.Annotations = map[string]string{controlplane.FakeRunTime: "5"}
	job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: "main", Image: "example.com/sweep", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests},
	}}}
	return job
}

// heldWhole adds up what the JobSets would hold if Kueue admitted each as a whole: from its start, without any wait, until each of its
// ReplicatedJobs ends.
func (s *script) heldWhole(o *observer) (figures, error) {
	var total figures
	for i := range s.jobSets {
		c, err := courseOf(&s.jobSets[i], o)
		if err != nil {
			return total, err
		}
		total.held += c.held
		total.idle += c.held - c.used
	}
	return total, nil
}

func summarizeBeside(staged, whole figures, jobs int) {
	say("\n%-28s %18s %18s", "JobSets", "GPU-seconds held", "of these idle")
	say("%-28s %18.0f %18.0f", "by stage (measured)", staged.held, staged.idle)
	say("%-28s %18.0f %18.0f", "whole JobSets (computed)", whole.held, whole.idle)
	say("First Kueue admitted the stages, and %d Jobs of its own in the same cohort, then Tranche did: all in %s.\n", jobs, seconds(staged.makespan))
}
