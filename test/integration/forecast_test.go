package integration_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

// The manager writes on a JobSet when its first waiting stage is expected to start.
var _ = Describe("An expected start", Ordered, func() {
	var (
		t       *tenant
		manager *testenv.Manager
		holder  *kueue.Workload
		first   time.Time
	)
	start := func(ctx context.Context) {
		GinkgoHelper()
		var err error
		manager, err = env.StartManager(ctx, testenv.ManagerOptions{Settings: map[string]any{
			"expectedStart": map[string]any{"interval": "1s", "writesPerSecond": 100},
		}})
		Expect(err).NotTo(HaveOccurred())
	}
	// limited makes a quota Workload that may run for a time, as JobSets do by a label.
	limited := func(name, cpus string, seconds, priority int32) *kueue.Workload {
		w := t.urgent(name, cpus, priority)
		w.Spec.MaximumExecutionTimeSeconds = &seconds
		return w
	}
	submit := func(ctx context.Context, name, cpus string) {
		GinkgoHelper()
		js := newQueued(t.namespace, name, "main")
		js.Labels[apis.QueueLabel], js.Labels[apis.MaxExecTimeLabel] = "queue", "600"
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
		Expect(env.adminClient.Create(ctx, js)).To(Succeed())
	}
	read := func(ctx context.Context, g Gomega, name string) *jobsetapi.JobSet {
		var js jobsetapi.JobSet
		g.Expect(env.adminClient.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: name}, &js)).To(Succeed())
		return &js
	}
	// awaits waits until a JobSet is expected to start by a time, at a position.
	awaits := func(ctx context.Context, name string, by time.Time, position int) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			e := jobsetstatus.ExpectedStartOf(read(ctx, g, name))
			g.Expect(e).NotTo(BeNil())
			g.Expect(e.Computed).To(BeTemporally("~", time.Now(), time.Minute))
			e.Computed = time.Time{}
			g.Expect(e).To(Equal(&jobsetstatus.ExpectedStart{Stage: "main", Certainty: jobsetstatus.StartBy, By: by, ClusterQueue: t.clusterQueue.Name, Position: position}))
		}).WithContext(ctx).Should(Succeed())
	}

	BeforeAll(func(ctx SpecContext) {
		createFlavors(ctx)
		start(ctx)
		DeferCleanup(func() error { return manager.Stop() })
		t = newQueue(ctx)
		t.onlyOnDemand(ctx, "4", func(*kueue.ClusterQueueSpec) {})
		DeferCleanup(func(ctx SpecContext) {
			Expect(env.adminClient.DeleteAllOf(ctx, &jobsetapi.JobSet{}, client.InNamespace(t.namespace))).To(Succeed())
		})
		holder = expect(ctx, create(ctx, limited("holder", "4", 3600, 0)), "Admitted=True Admitted")
		first = find(holder, kueue.WorkloadAdmitted).LastTransitionTime.Add(time.Hour).UTC()
		submit(ctx, "a", "3")
		expect(ctx, t.stageOf(ctx, "a", "main"), "tranche.dev/Waiting=True WaitingForQuota")
	})

	It("follows from the limits of the holder and of those before", func(ctx SpecContext) {
		awaits(ctx, "a", first, 0)
		submit(ctx, "b", "4")
		awaits(ctx, "b", first.Add(10*time.Minute), 1)
	})

	It("is what explain says about a snapshot, and kubectl describe shows it", func(ctx SpecContext) {
		awaits(ctx, "a", first, 0)
		taken := takeSnapshot(ctx, "")
		explained, err := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), "explain", "--snapshot", taken.dir, "-n", t.namespace, "-o", "json", "a").Output()
		Expect(err).NotTo(HaveOccurred())
		var report struct {
			Workloads []struct {
				Position      struct{ InClusterQueue int }
				ExpectedStart struct {
					Certainty jobsetstatus.Certainty
					By, About time.Time
				}
			}
		}
		Expect(json.Unmarshal(explained, &report)).To(Succeed(), "%s", explained)
		e := jobsetstatus.ExpectedStartOf(read(ctx, Default, "a"))
		Expect(report.Workloads).To(HaveLen(1))
		said := &report.Workloads[0]
		Expect([]any{said.ExpectedStart.Certainty, said.ExpectedStart.By, said.ExpectedStart.About, said.Position.InClusterQueue}).
			To(Equal([]any{e.Certainty, e.By, e.About, e.Position}), "%s", explained)
		Eventually(func(g Gomega) {
			shown, err := env.KubectlOutput(ctx, "describe", "jobset", "-n", t.namespace, "a")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(shown)).To(And(ContainSubstring("WaitingForQuota"), ContainSubstring("waits for quota in ClusterQueue "+t.clusterQueue.Name),
				ContainSubstring("Position 0 in "), ContainSubstring(`Stage "main": expected to start by `+e.By.Format(time.RFC3339))))
		}).WithContext(ctx).Should(Succeed())
	})

	It("is what explain and pending say about the cluster, also to a user who may only read the namespace", func(ctx SpecContext) {
		awaits(ctx, "a", first, 0)
		tranche := func(kubeconfig string, args ...string) string {
			out, _ := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), append(args, "-n", t.namespace, "--kubeconfig", kubeconfig)...).CombinedOutput()
			return string(out)
		}
		start := "by " + first.Format("2006-01-02 15:04:05Z")
		// No visibility API is served here.
		Expect(tranche(env.AdminKubeconfig, "explain", "a")).To(And(
			ContainSubstring("\n  expected start: "+start+"\n"), ContainSubstring("any one of these would let it in now"), Not(ContainSubstring("not shown"))))
		Expect(tranche(env.AdminKubeconfig, "pending")).To(MatchRegexp(`(?m)^0 +0 .* JobSet/a +main +` + start + `$`))
		allow(ctx, t.namespace, "onlooker", "edit")
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(env.Plane.Kubeconfig(kubeconfig, "onlooker")).To(Succeed())
		Eventually(func() string { return tranche(kubeconfig, "explain", "a") }).WithContext(ctx).Should(And(
			ContainSubstring("WaitingForQuota"), ContainSubstring("\n  expected start: "+start+"\n"),
			ContainSubstring("What would let it in is not shown: this needs the right to list "),
		))
	}, SpecTimeout(patience))

	It("is what pending says about a Job and a gang of pods, too, on which no manager writes it", func(ctx SpecContext) {
		other := newQueue(ctx)
		other.onlyOnDemand(ctx, "4", func(*kueue.ClusterQueueSpec) {})
		holds := other.workload("holds", "4")
		holds.Spec.MaximumExecutionTimeSeconds = new(int32(3600))
		ends := find(expect(ctx, create(ctx, holds), "Admitted=True Admitted"), kueue.WorkloadAdmitted).LastTransitionTime.Add(time.Hour).UTC()
		job := newQueuedJob(other.namespace, "job") // of two pods
		job.Labels[apis.QueueLabel], job.Labels[apis.MaxExecTimeLabel] = "queue", "600"
		job.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		objects := []client.Object{job}
		for _, name := range []string{"pod-0", "pod-1"} {
			pod := newPod(other.namespace, name)
			pod.Labels[apis.QueueLabel], pod.Labels[apis.PodGroupNameLabel] = "queue", "gang"
			pod.Annotations[apis.PodGroupTotalCountAnnotation] = "2"
			objects = append(objects, pod)
		}
		for _, object := range objects {
			Expect(env.adminClient.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) {
				Expect(env.adminClient.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
			})
			if object == job { // the gang comes after it: in a later second, since two of the same have no certain order
				Eventually(func(g Gomega) {
					var all kueue.WorkloadList
					g.Expect(env.adminClient.List(ctx, &all, client.InNamespace(other.namespace), client.MatchingLabels{apis.JobLabel: job.Name})).To(Succeed())
					g.Expect(all.Items).To(HaveLen(1))
					g.Expect(time.Since(all.Items[0].CreationTimestamp.Time)).To(BeNumerically(">", time.Second))
				}).WithContext(ctx).Should(Succeed())
			}
		}
		starts := func(after time.Duration) string { return "by " + ends.Add(after).Format("2006-01-02 15:04:05Z") }
		Eventually(func() string {
			out, _ := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), "pending", "-n", other.namespace, "--kubeconfig", env.AdminKubeconfig).CombinedOutput()
			return string(out)
		}).WithContext(ctx).Should(And(
			MatchRegexp(`(?m)^0 +0 +\S+ +job-job-\S+ .* Job/job +- +`+starts(0)+`$`), MatchRegexp(`(?m)^1 +1 +\S+ +gang .* - +`+starts(10*time.Minute)+`$`)))
	}, SpecTimeout(patience))

	It("comes from the last runs of the same stage in earlier JobSets, and pending says so", func(ctx SpecContext) {
		runs := newQueue(ctx)
		runs.onlyOnDemand(ctx, "4", func(*kueue.ClusterQueueSpec) {})
		DeferCleanup(func(ctx SpecContext) {
			Expect(env.adminClient.DeleteAllOf(ctx, &jobsetapi.JobSet{}, client.InNamespace(runs.namespace))).To(Succeed())
		})
		submitRun := func(name string, fate map[string]string) *jobsetapi.JobSet {
			GinkgoHelper()
			js := newQueued(runs.namespace, name, "main")
			js.Labels[apis.QueueLabel] = "queue"
			template := &js.Spec.ReplicatedJobs[0].Template.Spec.Template
			template.Annotations = fate
			template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
			Expect(env.adminClient.Create(ctx, js)).To(Succeed())
			return js
		}
		for _, name := range []string{"nightly-1", "nightly-2"} {
			js := submitRun(name, map[string]string{controlplane.FakeRunTime: "2s"})
			Eventually(func(g Gomega) {
				g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(js), js)).To(Succeed())
				g.Expect(js.Status.TerminalState).To(Equal(string(jobset.JobSetCompleted)))
			}).WithContext(ctx).Should(Succeed())
		}
		submitRun("nightly-3", map[string]string{controlplane.FakeExit: controlplane.FakeExitNever})
		expect(ctx, runs.stageOf(ctx, "nightly-3", "main"), "Admitted=True Admitted")
		later := submitRun("later", nil)
		basis := "from the last 2 runs of stage main of JobSet " + runs.namespace + "/nightly-*"
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(later), later)).To(Succeed())
			g.Expect(jobsetstatus.ExpectedStartOf(later)).To(PointTo(And(HaveField("Certainty", jobsetstatus.StartAbout), HaveField("Basis", basis), HaveField("By", BeZero()))))
			c := apimeta.FindStatusCondition(later.Status.Conditions, jobsetstatus.StartExpected)
			g.Expect(c.Message).To(And(HavePrefix(`Stage "main": expected to start about `), HaveSuffix("Basis: "+basis)))
		}).WithContext(ctx).Should(Succeed())
		out, err := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), "pending", "-n", runs.namespace, "--kubeconfig", env.AdminKubeconfig).Output()
		Expect(err).NotTo(HaveOccurred())
		Expect(string(out)).To(MatchRegexp(`(?m)^0 +0 .* JobSet/later +main +about 2\S+ \S+Z, ` + regexp.QuoteMeta(basis) + `$`))
	}, SpecTimeout(patience))

	It("is not written again by a manager that was restarted", func(ctx SpecContext) {
		awaits(ctx, "a", first, 0)
		before := apimeta.FindStatusCondition(read(ctx, Default, "a").Status.Conditions, jobsetstatus.StartExpected)
		Expect(manager.Kill()).To(Succeed())
		start(ctx)
		// The new manager predicts all of them at once, and again for the second one.
		submit(ctx, "c", "1")
		Eventually(func(g Gomega) {
			g.Expect(jobsetstatus.ExpectedStartOf(read(ctx, g, "c"))).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
		submit(ctx, "d", "1")
		Eventually(func(g Gomega) {
			g.Expect(jobsetstatus.ExpectedStartOf(read(ctx, g, "d"))).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
		Expect(apimeta.FindStatusCondition(read(ctx, Default, "a").Status.Conditions, jobsetstatus.StartExpected)).To(Equal(before))
	}, SpecTimeout(2*patience))

	It("changes when another stage comes first, and ends when the stage is admitted", func(ctx SpecContext) {
		awaits(ctx, "a", first, 0)
		urgent := create(ctx, limited("urgent", "4", 1800, 1))
		awaits(ctx, "a", first.Add(30*time.Minute), 1)
		Expect(env.adminClient.Delete(ctx, urgent)).To(Succeed())
		awaits(ctx, "a", first, 0)
		Expect(env.adminClient.Delete(ctx, holder)).To(Succeed())
		expect(ctx, t.stageOf(ctx, "a", "main"), "Admitted=True Admitted")
		Eventually(func(g Gomega) {
			js := read(ctx, g, "a")
			g.Expect(apimeta.IsStatusConditionTrue(js.Status.Conditions, jobsetstatus.StageAdmitted)).To(BeTrue())
			g.Expect(apimeta.FindStatusCondition(js.Status.Conditions, jobsetstatus.StartExpected)).To(BeNil())
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(2*patience))
})
