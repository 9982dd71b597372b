package groupstart_test

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// A process is `tranche barrier`, as the init container of a pod runs it.
type process struct {
	dir, log string
	cmd      *exec.Cmd
	stderr   bytes.Buffer
}

// newProcess starts to wait for a signal, with the files that a kubelet would mount.
func newProcess(data map[string]string, signal, timeout string) *process {
	GinkgoHelper()
	p := &process{dir: GinkgoT().TempDir(), log: filepath.Join(GinkgoT().TempDir(), "termination-log")}
	p.mount(data)
	Expect(os.WriteFile(p.log, nil, 0o600)).To(Succeed())
	p.cmd = exec.Command(filepath.Join(env.Root, "bin", "tranche"), "barrier", "--timeout="+timeout, "--dir="+p.dir, "--termination-log="+p.log)
	p.cmd.Env = append(os.Environ(), "TRANCHE_SIGNAL="+signal)
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	Expect(p.cmd.Start()).To(Succeed())
	return p
}

// mount writes the files as a kubelet does when a ConfigMap has changed.
func (p *process) mount(data map[string]string) {
	GinkgoHelper()
	for key, value := range data {
		next := filepath.Join(p.dir, "..next")
		Expect(os.WriteFile(next, []byte(value), 0o600)).To(Succeed())
		Expect(os.Rename(next, filepath.Join(p.dir, key))).To(Succeed())
	}
}

// expectEnd waits until the process ends, with a code and a termination message.
func (p *process) expectEnd(code int, message string) {
	GinkgoHelper()
	_ = p.cmd.Wait()
	Expect(p.cmd.ProcessState.ExitCode()).To(Equal(code), p.stderr.String())
	told, err := os.ReadFile(p.log)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(told)).To(ContainSubstring(message))
	Expect(len(told) == 0).To(Equal(code == 0), string(told))
}

// expectRuns checks that the process has not ended. One that has is a zombie until expectEnd, which a signal still reaches.
func (p *process) expectRuns() {
	GinkgoHelper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "stat"))
	Expect(err).NotTo(HaveOccurred())
	_, state, _ := strings.Cut(string(stat), ") ") // after the name of the program
	Expect(state).NotTo(BeEmpty())
	Expect(state).NotTo(HavePrefix("Z"), "the barrier keeps waiting without a notice")
}

// with returns the data of a ConfigMap with one key changed.
func with(data map[string]string, key, value string) map[string]string {
	data = maps.Clone(data)
	data[key] = value
	return data
}

func endpointAt(address string, js *jobsetapi.JobSet) string {
	return "http://" + address + "/v1/groups/" + js.Namespace + "/" + js.Name
}

// almost creates a JobSet that only waits for its driver, and returns the files that its pods see.
func almost(ctx context.Context, name string) (js *jobsetapi.JobSet, data map[string]string, signal string) {
	GinkgoHelper()
	js = inGroup(newJobSet(name, role{name: "workers", replicas: 1, pods: 2}, role{name: "driver", replicas: 1, pods: 1, late: true}))
	submit(ctx, js)
	expectWaiting(ctx, js, 2)
	signals := signalsOf(ctx, Default, js, "workers")
	Expect(signals).To(HaveLen(1))
	return js, configMapOf(ctx, Default, js).Data, signals[0]
}

// expectCounted lets a pod of a ReplicatedJob give up, until the manager has counted as many as wait: then it has had the time to release
// them, if it does so too early.
func expectCounted(ctx context.Context, js *jobsetapi.JobSet, replicatedJob, want string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		released := strings.Fields(configMapOf(ctx, g, js).Data["released"])
		waiting := slices.DeleteFunc(signalsOf(ctx, g, js, replicatedJob), func(signal string) bool { return slices.Contains(released, signal) })
		g.Expect(waiting).NotTo(BeEmpty(), "all have been released")
		p := newProcess(configMapOf(ctx, g, js).Data, waiting[0], "1s")
		_ = p.cmd.Wait()
		told, err := os.ReadFile(p.log)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(told)).To(ContainSubstring(want))
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("A pod that waits", func() {
	It("is released by any replica when its group may start, and by its file", func(ctx SpecContext) {
		js, data, signal := almost(ctx, "told")
		standby, address := startManager()
		DeferCleanup(func() error { return standby.Stop() })
		byLeader := newProcess(data, signal, "80s")
		byStandby := newProcess(with(data, "endpoint", endpointAt(address, js)), signal, "80s")
		byFile := newProcess(with(data, "endpoint", "http://127.0.0.1:1/v1/groups/ml/told"), signal, "80s")
		notOfGroup := newProcess(data, "another.1", "10s")
		startLate(ctx, js, "driver", 1)
		byLeader.expectEnd(0, "")
		byStandby.expectEnd(0, "")
		expectReleased(ctx, js, "workers", "driver")
		byFile.mount(configMapOf(ctx, Default, js).Data)
		byFile.expectEnd(0, "")
		notOfGroup.expectEnd(3, "3 of 3 pods of the group had started")
	}, SpecTimeout(patience))

	It("keeps waiting when the manager is gone, and asks the next manager", func(ctx SpecContext) {
		js, data, signal := almost(ctx, "orphaned")
		first, address := startManager()
		waiting := newProcess(with(data, "endpoint", endpointAt(address, js)), signal, "80s")
		Expect(first.Kill()).To(Succeed())
		startLate(ctx, js, "driver", 1)
		expectReleased(ctx, js, "workers", "driver")
		waiting.expectRuns()
		waiting.mount(map[string]string{"endpoint": data["endpoint"]})
		waiting.expectEnd(0, "")
	}, SpecTimeout(patience))

	It("fails after its timeout, and reports how many pods have started", func(ctx SpecContext) {
		_, data, signal := almost(ctx, "timeout")
		waiting := newProcess(data, signal, "2s")
		waiting.expectEnd(3, "timed out after 2s: 2 of 3 pods of the group had started")
		alone := newProcess(with(data, "endpoint", "http://127.0.0.1:1/"), signal, "1s")
		alone.expectEnd(3, "timed out after 1s: not all of the 3 pods of the group had started; their number is unknown: ask the manager at http://127.0.0.1:1/")
	}, SpecTimeout(patience))

	It("ends when it is interrupted", func(ctx SpecContext) {
		_, data, signal := almost(ctx, "stopped")
		waiting := newProcess(data, signal, "80s")
		Eventually(func() error { return waiting.cmd.Process.Signal(syscall.SIGTERM) }).WithContext(ctx).Should(Succeed())
		// Before it listens for the signal it ends by it.
		_ = waiting.cmd.Wait()
		Expect(waiting.cmd.ProcessState.Success()).To(BeFalse())
	}, SpecTimeout(patience))

	It("of another group gets no answer", func(ctx SpecContext) {
		js, data, signal := almost(ctx, "mine")
		_, other, _ := almost(ctx, "other")
		spy := newProcess(with(data, "token", other["token"]), signal, "2s")
		spy.expectEnd(3, "responded with status 403: the group does not exist, or has another token than the request")
		startLate(ctx, js, "driver", 1)
		expectReleased(ctx, js, "workers", "driver")
		spy = newProcess(with(data, "token", other["token"]), signal, "2s")
		spy.expectEnd(3, "responded with status 403: the group does not exist, or has another token than the request")
	}, SpecTimeout(patience))
})

var _ = Describe("A large group", func() {
	It("of 1000 pods is released by one write", func(ctx SpecContext) {
		js := inGroup(newJobSet("large", role{name: "workers", replicas: 10, pods: 100}, role{name: "driver", replicas: 1, pods: 1, late: true}))
		watch, err := env.Admin.Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": "large" + configMapSuffix})
		Expect(err).NotTo(HaveOccurred())
		defer watch.Stop()
		submit(ctx, js)
		expectWaiting(ctx, js, 1000)
		waiting := newProcess(configMapOf(ctx, Default, js).Data, signalsOf(ctx, Default, js, "workers")[0], "10m")
		begin := time.Now()
		startLate(ctx, js, "driver", 1)
		waiting.expectEnd(0, "")
		GinkgoWriter.Printf("from the write that starts the last pod to the end of tranche barrier: %s\n", time.Since(begin))
		expectReleased(ctx, js, "workers", "driver")
		Expect(env.Admin.Delete(ctx, configMapOf(ctx, Default, js))).To(Succeed())
		var writes []string
		for event := range watch.ResultChan() {
			configMap, ok := event.Object.(*corev1.ConfigMap)
			Expect(ok).To(BeTrue())
			_, released := configMap.Data["released"]
			writes = append(writes, map[bool]string{true: string(event.Type) + " released", false: string(event.Type)}[released])
			if event.Type == "DELETED" {
				break
			}
		}
		Expect(writes).To(Equal([]string{"ADDED", "MODIFIED released", "DELETED released"}))
	}, SpecTimeout(muchPatience))
})

var _ = Describe("The init container of a group", func() {
	It("is charged if the namespace gives it requests", func(ctx SpecContext) {
		const limited = "limited"
		Expect(env.CreateNamespace(ctx, limited, nil)).To(Succeed())
		Expect(env.Admin.Create(ctx, &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: limited, Name: "defaults"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{"cpu": resource.MustParse("500m")},
			}}},
		})).To(Succeed())
		Expect(env.Admin.Create(ctx, &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: limited, Name: "ml"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "ml"}})).To(Succeed())
		// The cache of the manager may show the LimitRange later than the JobSet; once it does, quota is requested again.
		js := inGroup(newJobSet("counted", role{name: "workers", replicas: 1, pods: 2}))
		js.Namespace = limited
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, js, client.PropagationPolicy(metav1.DeletePropagationForeground)))).To(Succeed())
		}, NodeTimeout(patience))
		Eventually(func(g Gomega) {
			var pods corev1.PodList
			g.Expect(env.Admin.List(ctx, &pods, client.InNamespace(limited), client.MatchingLabels{jobset.JobSetNameKey: js.Name})).To(Succeed())
			g.Expect(pods.Items).To(HaveLen(2))
			g.Expect(pods.Items[0].Spec.InitContainers[0].Resources.Requests.Cpu().String()).To(Equal("500m"))
			var workloads kueue.WorkloadList
			g.Expect(env.Admin.List(ctx, &workloads, client.InNamespace(limited))).To(Succeed())
			g.Expect(workloads.Items).To(HaveLen(1))
			usage := workloads.Items[0].Status.Admission.PodSetAssignments[0].ResourceUsage
			g.Expect(usage.Cpu().String()).To(Equal("1"), "2 pods of 500m: their main containers ask for 100m, the init container for more")
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))
})
