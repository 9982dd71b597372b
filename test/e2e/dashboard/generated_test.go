package dashboard_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/page"
	"github.com/tranche-dev/tranche/dashboard/server"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/test/browser"
	"github.com/tranche-dev/tranche/test/sample"
)

// serveObjects serves the page with objects that a control plane would take long to bring about.
func serveObjects(objects ...metav1.Object) string {
	GinkgoHelper()
	return serveAsOf(time.Time{}, objects...)
}

// serveAsOf is like serveObjects, but shows the objects as a snapshot of a time unless that is zero.
func serveAsOf(taken time.Time, objects ...metav1.Object) string {
	GinkgoHelper()
	return serveAbout(server.About{Version: "v0", IsSynced: true, TakenAt: taken}, objects...)
}

// serveAbout serves objects of a source in some state.
func serveAbout(about server.About, objects ...metav1.Object) string {
	GinkgoHelper()
	store := server.NewStore()
	jobSets := map[types.NamespacedName]*dashboard.JobSetObjects{}
	store.Use(func(m *dashboard.Model) {
		for _, object := range objects {
			m.Observe(object)
			switch object := object.(type) {
			case *jobsetapi.JobSet:
				jobSets[types.NamespacedName{Namespace: object.Namespace, Name: object.Name}] = &dashboard.JobSetObjects{JobSet: object}
			case *kueue.Workload:
				if of := jobSets[types.NamespacedName{Namespace: object.Namespace, Name: object.Labels[apis.JobSetLabel]}]; of != nil {
					of.Workloads = append(of.Workloads, object)
				}
			}
		}
	})
	return serveStore(about, store, jobSets)
}

// serveStore serves a Store with objects that are read again if one of the JobSets is shown.
func serveStore(about server.About, store *server.Store, jobSets map[types.NamespacedName]*dashboard.JobSetObjects) string {
	GinkgoHelper()
	files, err := page.Files()
	Expect(err).NotTo(HaveOccurred())
	now := time.Now
	if !about.TakenAt.IsZero() {
		now = func() time.Time { return about.TakenAt }
	}
	s := httptest.NewServer(server.New(&server.Config{
		Store: store, Page: files, Now: now, About: func() server.About { return about },
		JobSet: func(_ context.Context, key types.NamespacedName) (*dashboard.JobSetObjects, error) {
			if of := jobSets[key]; of != nil {
				return of, nil
			}
			return nil, apierrors.NewNotFound(jobset.Resource("jobsets"), key.Name)
		},
	}))
	DeferCleanup(func(ctx SpecContext) {
		Expect(window.Open(ctx, "about:blank")).To(Succeed())
		s.CloseClientConnections()
		s.Close()
	}, NodeTimeout(patience))
	return s.URL + "/"
}

// queue returns a ClusterQueue with 8 GPUs of flavor a100, and a LocalQueue of the same name in namespace team.
func queue(name string, change func(q *kueue.ClusterQueue)) []metav1.Object {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{group("a100", gpu, "8")}}}
	if change != nil {
		change(q)
	}
	return []metav1.Object{q, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
	}}
}

// waiting returns a JobSet of one stage with its pending quota Workload, and the expected start that the manager has written, if any.
func waiting(name, queue string, e *jobsetstatus.ExpectedStart) (*jobsetapi.JobSet, *kueue.Workload) {
	js := newJobSet("team", name, stage{"train", "1", "16", "", ""})
	js.UID, js.Labels[apis.QueueLabel], js.CreationTimestamp = types.UID(name), queue, metav1.NewTime(time.Now().Add(-time.Hour))
	if e != nil {
		e.Stage, e.Computed = "train", time.Now()
		js.Status.Conditions = append(js.Status.Conditions, e.Condition(js))
	}
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name + "-train", UID: types.UID(name + "-train"), CreationTimestamp: js.CreationTimestamp,
			Labels:          map[string]string{apis.JobSetLabel: name, apis.StageLabel: "train"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "JobSet", Name: name, UID: js.UID, Controller: new(true)}},
		},
		Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(queue), PodSets: []kueue.PodSet{{Name: "train", Count: 1}}},
	}
	return js, w
}

func in(d time.Duration) time.Time { return time.Now().Add(d).Truncate(time.Second) }

// zoneMinute formats a time as the page does, in the time zone of the browser.
func zoneMinute(ctx context.Context, t time.Time) (text string) {
	GinkgoHelper()
	Expect(window.Run(ctx, `const t = new Date("`+t.UTC().Format(time.RFC3339)+`"); const at = { hour: "2-digit", minute: "2-digit" };
		return t.toLocaleString("en-GB", t.toDateString() === new Date().toDateString() ? at : { ...at, day: "2-digit", month: "short" })`, &text)).To(Succeed())
	return text
}

var _ = Describe("The page", func() {
	It("shows when pending stages are expected to start, or why that is not known", func(ctx SpecContext) {
		by, about := in(3*time.Hour), in(2*time.Hour)
		objects := queue("q", nil)
		for name, e := range map[string]*jobsetstatus.ExpectedStart{
			"bounded": {Certainty: jobsetstatus.StartBy, By: by, About: about, Basis: "from the last 4 runs of bounded"},
			"late":    {Certainty: jobsetstatus.StartAbout, About: in(-time.Hour)},
			"endless": {Certainty: jobsetstatus.StartUnknown, Basis: "JobSet endless has no limit"},
			"new":     nil,
		} {
			js, w := waiting(name, "q", e)
			objects = append(objects, js, w)
		}
		url := serveObjects(objects...)
		open(ctx, url, "queues/q")
		expected := "about " + zoneMinute(ctx, about) + ", by " + zoneMinute(ctx, by)
		for name, text := range map[string]string{
			"bounded": expected, "late": "about " + zoneMinute(ctx, in(-time.Hour)) + ", overdue", "endless": "unknown", "new": "–",
		} {
			seeElement(ctx, `tr:has(a[href$="/`+name+`"]) .start`, text)
		}
		open(ctx, url, "jobsets")
		seeElement(ctx, `tr:has(a[href$="/bounded"]) .start`, expected)
		open(ctx, url, "jobsets/team/bounded")
		see(ctx, "expected start", expected, "from the last 4 runs of bounded")
		var labels []string
		Expect(window.Run(ctx, `return [...document.querySelectorAll(".gantt-track .expected")].map((e) => e.ariaLabel)`, &labels)).To(Succeed())
		Expect(labels).To(Equal([]string{"train: expected to start " + expected}))
		open(ctx, url, "jobsets/team/endless")
		see(ctx, "unknown (JobSet endless has no limit)")
	}, SpecTimeout(specTimeout))

	It("shows what is stopped, what has lost its quota, and what the colors mean", func(ctx SpecContext) {
		objects := queue("stopped", func(q *kueue.ClusterQueue) {
			q.Spec.StopPolicy = new(kueue.HoldAndDrain)
			q.Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: metav1.ConditionFalse, Reason: "Stopped", Message: "the ClusterQueue is stopped"}}
		})
		js, w := waiting("holder", "stopped", nil)
		w.Status.Admission = &kueue.Admission{ClusterQueue: "stopped", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "train", Count: new(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "removed"}, ResourceUsage: sample.Amounts(string(gpu), "4"),
		}}}
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}, {Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue}}
		url := serveObjects(append(objects, js, w)...)
		open(ctx, url, "queues")
		see(ctx, "Stopped: the ClusterQueue is stopped", "0 of 8 used, 0 free", "4 used without quota",
			"reserved: waiting for AdmissionChecks, or kept for later stages", "Times are in ")
		open(ctx, url, "queues/stopped")
		see(ctx, "stopped: HoldAndDrain", "No quota Workload is pending here")
	}, SpecTimeout(specTimeout))

	It("shows a snapshot as of the time when it was taken", func(ctx SpecContext) {
		taken := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		js, w := waiting("kept", "q", &jobsetstatus.ExpectedStart{Certainty: jobsetstatus.StartBy, By: taken.Add(time.Hour)})
		w.CreationTimestamp = metav1.NewTime(taken.Add(-3 * time.Hour))
		url := serveAsOf(taken, append(queue("q", nil), js, w)...)
		open(ctx, url, "queues/q")
		see(ctx, "This is a snapshot, taken at 01 Mar")
		seeElement(ctx, "#live", "snapshot")
		seeElement(ctx, `tr:has(a[href$="/kept"]) td`, "3h")
		var start string
		Expect(window.Run(ctx, `return document.querySelector('tr:has(a[href$="/kept"]) .start').innerText`, &start)).To(Succeed())
		Expect(start).To(And(HavePrefix("by "), Not(ContainSubstring("overdue"))), "it was not yet late then")
	}, SpecTimeout(specTimeout))

	It("says that it is not live if no manager leads, or the API server does not answer", func(ctx SpecContext) {
		open(ctx, serveAbout(server.About{IsSynced: true, WithoutLeader: "no manager has led since 16:31"}), "queues")
		see(ctx, "What is shown may be out of date: no manager has led since 16:31.")
		seeElement(ctx, "#live.stale", "no manager")
		open(ctx, serveAbout(server.About{IsSynced: true, IsStale: true}), "queues")
		seeElement(ctx, "#live.stale", "out of date")
	}, SpecTimeout(specTimeout))

	It("does not show a JobSet that will be preempted like one that is admitted", func(ctx SpecContext) {
		js, w := waiting("runs", "q", nil)
		for condition, message := range map[string]string{jobsetstatus.StageAdmitted: "", apis.PreemptionPendingCondition: "will be preempted"} {
			js.Status.Conditions = append(js.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Message: message})
		}
		url := serveObjects(append(queue("q", nil), js, w)...)
		for _, view := range []string{"jobsets", "jobsets/team/runs"} {
			open(ctx, url, view)
			seeElement(ctx, ".state-notice", "Admitted, has notice")
			see(ctx, "will be preempted")
		}
	}, SpecTimeout(specTimeout))

	It("says that there is nothing", func(ctx SpecContext) {
		url := serveObjects()
		open(ctx, url, "queues")
		see(ctx, "There are no ClusterQueues, or you may not read them.")
		open(ctx, url, "jobsets")
		see(ctx, "There are no JobSets, or you may not read them.")
		open(ctx, url, "localqueues")
		see(ctx, "There are no LocalQueues, or you may not read the quota Workloads of their namespaces.")
		open(ctx, url, "overview")
		see(ctx, "JobSets: none", "No ClusterQueue has quota of an accelerator.", "No namespace holds accelerators.", "No start, end or preemption that you may read is known.")
	}, SpecTimeout(specTimeout))

	It("fits in a narrow window and reads by keys, with long names", func(ctx SpecContext) {
		name := "a-" + strings.Repeat("long-", 40) + "name"
		js, w := waiting(name, name, &jobsetstatus.ExpectedStart{Certainty: jobsetstatus.StartBy, By: in(time.Hour)})
		url := serveObjects(append(queue(name, func(q *kueue.ClusterQueue) { q.Spec.CohortName = kueue.CohortReference(name) }), js, w)...)
		Expect(window.Resize(ctx, 420, 900)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(window.Resize(ctx, 1400, 900)).To(Succeed()) }, NodeTimeout(patience))
		for _, view := range []string{
			"overview", "queues", "queues/" + name, "queues/" + name + "?list=usage", "localqueues", "localqueues/team/" + name, "jobsets", "jobsets/team/" + name,
		} {
			open(ctx, url, view)
			see(ctx, name, "live")
			var overflow int
			Expect(window.Run(ctx, "return document.documentElement.scrollWidth - innerWidth", &overflow)).To(Succeed())
			Expect(overflow).To(BeZero(), "%s moves sideways", view)
			if view != "jobsets" {
				continue
			}
			var outside []bool
			Expect(window.Run(ctx, `return [...document.querySelectorAll("td .state, td.message")].map((e) => e.getBoundingClientRect().right > innerWidth)`, &outside)).To(Succeed())
			Expect(outside).To(Equal([]bool{false, false}), "state and reason of a JobSet can be read")
		}
		Expect(window.Open(ctx, "about:blank")).To(Succeed())
		open(ctx, url, "jobsets")
		see(ctx, name, "live")
		var outline string
		Expect(window.Type(ctx, browser.Tab)).To(Succeed())
		Expect(window.Run(ctx, `return getComputedStyle(document.activeElement).outlineStyle + " " + document.activeElement.innerText`, &outline)).To(Succeed())
		Expect(outline).To(Equal("solid Skip to the content"))
		Expect(window.Type(ctx, browser.Enter+"/")).To(Succeed())
		var focus string
		Expect(window.Run(ctx, `return document.activeElement.id`, &focus)).To(Succeed())
		Expect(focus).To(Equal("search"))
	}, SpecTimeout(specTimeout))
})
