package integration_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("The metrics", Ordered, func() {
	var manager *testenv.Manager

	start := func(ctx context.Context) {
		GinkgoHelper()
		var err error
		manager, err = env.StartManager(ctx, testenv.ManagerOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	BeforeAll(func(ctx SpecContext) {
		for _, name := range []string{onDemand, spot} {
			flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}}
			Expect(client.IgnoreAlreadyExists(env.adminClient.Create(ctx, flavor))).To(Succeed())
		}
		start(ctx)
		DeferCleanup(func() error { return manager.Stop() })
	}, NodeTimeout(patience))

	It("report the current state and the past, and are removed with their queues", func(ctx SpecContext) {
		t := newQueue(ctx)
		queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: t.namespace + "-metrics"}, Spec: t.clusterQueue.Spec}
		Expect(env.adminClient.Create(ctx, queue)).To(Succeed())
		local := &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: queue.Name},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(queue.Name)},
		}
		Expect(env.adminClient.Create(ctx, local)).To(Succeed())
		submit := func(name, cpus string) *kueue.Workload {
			GinkgoHelper()
			w := t.workload(name, cpus)
			w.Spec.QueueName = kueue.LocalQueueName(local.Name)
			return create(ctx, w)
		}
		wantMetrics := func(want ...string) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				lines, err := scrape(ctx, manager.Metrics, queue.Name)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(lines).To(ContainElements(want))
			}).WithContext(ctx).Should(Succeed())
		}
		of := func(format string) string { return strings.ReplaceAll(format, "@", `cluster_queue="`+queue.Name+`"`) }

		By("admitting one that fits, and refusing one that does not")
		w := submit("runs", "6")
		expect(ctx, w, "Admitted=True Admitted")
		waits := submit("huge", "100")
		expect(ctx, waits, "tranche.dev/Waiting=True ExceedsMaxQuota")
		wantMetrics(
			of(`kueue_admitted_workloads_total{@,priority_class="",replica_role="standalone"} 1`),
			of(`kueue_quota_reserved_workloads_total{@,priority_class="",replica_role="standalone"} 1`),
			of(`kueue_admission_wait_time_seconds_count{@,priority_class="",replica_role="standalone"} 1`),
			of(`kueue_admission_checks_wait_time_seconds_sum{@,priority_class="",replica_role="standalone"} 0`),
			of(`kueue_admitted_active_workloads{@,replica_role="standalone"} 1`),
			of(`kueue_pending_workloads{@,replica_role="standalone",status="inadmissible"} 1`),
			of(`kueue_unadmitted_workloads{@,reason="NoReservation",replica_role="standalone",underlying_cause="ExceedsMaxQuota"} 1`),
			of(`kueue_cluster_queue_resource_pending{@,replica_role="standalone",resource="cpu"} 100`),
			of(`kueue_cluster_queue_resource_usage{@,cohort="",flavor="`+onDemand+`",replica_role="standalone",resource="cpu"} 6`),
			of(`kueue_cluster_queue_nominal_quota{@,cohort="",flavor="`+spot+`",replica_role="standalone",resource="cpu"} 8`),
			of(`kueue_cluster_queue_status{@,replica_role="standalone",status="active"} 1`),
			fmt.Sprintf(`kueue_local_queue_admitted_workloads_total{name=%q,namespace=%q,priority_class="",replica_role="standalone"} 1`, local.Name, t.namespace),
			fmt.Sprintf(`kueue_local_queue_status{active="True",name=%q,namespace=%q,replica_role="standalone"} 1`, local.Name, t.namespace),
		)

		By("finishing it")
		write(ctx, fresh(ctx, w), "owner", func(status *kueue.WorkloadStatus) {
			status.Conditions = append(status.Conditions, condition(kueue.WorkloadFinished, metav1.ConditionTrue, kueue.WorkloadFinishedReasonSucceeded, w.CreationTimestamp.Time))
		})
		wantMetrics(
			of(`kueue_finished_workloads_total{@,priority_class="",replica_role="standalone"} 1`),
			of(`kueue_finished_workloads{@,replica_role="standalone"} 1`),
			of(`kueue_admitted_active_workloads{@,replica_role="standalone"} 0`),
			of(`kueue_cluster_queue_resource_usage{@,cohort="",flavor="`+onDemand+`",replica_role="standalone",resource="cpu"} 0`),
			of(`tranche_stage_hold_seconds_count{@,outcome="finished",replica_role="standalone"} 1`),
		)

		By("counting nothing again after a restart")
		Expect(manager.Stop()).To(Succeed())
		start(ctx)
		wantMetrics(of(`kueue_finished_workloads{@,replica_role="standalone"} 1`))
		lines, err := scrape(ctx, manager.Metrics, queue.Name)
		Expect(err).NotTo(HaveOccurred())
		Expect(lines).NotTo(ContainElement(HavePrefix("kueue_admitted_workloads_total")))
		Expect(lines).NotTo(ContainElement(HavePrefix("kueue_finished_workloads_total")))
		w = submit("again", "1")
		expect(ctx, w, "Admitted=True Admitted")
		wantMetrics(of(`kueue_admitted_workloads_total{@,priority_class="",replica_role="standalone"} 1`))
		lines, err = scrape(ctx, manager.Metrics, queue.Name)
		Expect(err).NotTo(HaveOccurred())
		Expect(lines).NotTo(ContainElement(HavePrefix("kueue_finished_workloads_total")))

		By("deleting the queues")
		Expect(env.adminClient.DeleteAllOf(ctx, &kueue.Workload{}, client.InNamespace(t.namespace))).To(Succeed())
		Expect(env.adminClient.Delete(ctx, local)).To(Succeed())
		Expect(env.adminClient.Delete(ctx, queue)).To(Succeed())
		Eventually(func(g Gomega) {
			lines, err := scrape(ctx, manager.Metrics, queue.Name)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(lines).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))

	It("include those of libraries that alerts and the dashboard use", func(ctx SpecContext) {
		content, err := os.ReadFile(filepath.Join(env.Root, "test", "monitoring", "libraries.yaml"))
		Expect(err).NotTo(HaveOccurred())
		var libraries map[string]struct {
			Type   string
			Labels []string
		}
		Expect(yaml.Unmarshal(content, &libraries)).To(Succeed())
		Expect(libraries).NotTo(BeEmpty())
		leader := startReplica(ctx, "metrics-of-libraries", nil)
		Eventually(func(g Gomega) {
			body, err := testenv.ReadMetrics(ctx, leader.Metrics)
			g.Expect(err).NotTo(HaveOccurred())
			for name, metric := range libraries {
				g.Expect(body).To(ContainSubstring("\n# TYPE %s %s\n", name, metric.Type))
				suffix := ""
				if metric.Type == "histogram" {
					suffix = "_count"
				}
				sample := regexp.MustCompile(`(?m)^` + name + suffix + `(?:\{(.*)\})? `).FindStringSubmatch(body)
				g.Expect(sample).NotTo(BeNil(), name)
				labels := []string{}
				for _, found := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(sample[1], -1) {
					labels = append(labels, found[1])
				}
				g.Expect(labels).To(ConsistOf(metric.Labels), name)
			}
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))
})

// scrape returns the samples of the ClusterQueue and LocalQueue of a name.
func scrape(ctx context.Context, url, queue string) ([]string, error) {
	body, err := testenv.ReadMetrics(ctx, url)
	var lines []string
	for line := range strings.Lines(body) {
		if strings.Contains(line, `"`+queue+`"`) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines, err
}
