package upgrade_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/workloadname"
)

const (
	// records is the namespace, and the queue, of the objects of the corpus.
	records     = "records"
	evictedName = "evicted"
)

var update = flag.Bool("update", false, "rewrite lifecycle/testdata, the objects as both releases write them")

// recorded are the points of the life of objects that the corpus has, by the prefix of the names of their objects: what has finished, what holds all quota, and
// what waits for it.
func recorded() [][]group {
	return [][]group{
		{
			{1, "finished", func(name string) client.Object { return onePod(job(name, records, shortly)) }, count{succeeded: 1, workloads: 1, admitted: 1, finished: 1}},
		},
		{
			{1, "first-stage", func(name string) client.Object { return staged(name, records, 0) }, count{running: 1, workloads: 3, admitted: 1}},
			{1, "second-stage", func(name string) client.Object { return staged(name, records, 1) }, count{running: 2, succeeded: 1, workloads: 3, admitted: 2, finished: 1}},
			{1, "together", func(name string) client.Object { return together(name, records) }, count{pending: 2, workloads: 1, admitted: 1}},
			{1, "rules", func(name string) client.Object { return byRules(name, records) }, count{running: 3, workloads: 2, admitted: 2}},
			{1, "job", func(name string) client.Object { return job(name, records, always) }, count{running: 2, workloads: 1, admitted: 1}},
			{1, "gang", func(name string) client.Object { return gang(name, records, always) }, count{running: 2, workloads: 1, admitted: 1}},
			{1, evictedName, func(name string) client.Object { return staged(name, records, 0) }, count{running: 1, workloads: 3, admitted: 1}},
		},
		{
			{1, "waiting", func(name string) client.Object { return waiting(name, records) }, count{workloads: 2}},
			{1, "waiting-gang", func(name string) client.Object { return gang(name, records, always) }, count{pending: 2, workloads: 1}},
		},
	}
}

// onePod gives a Job one pod. Two would end in either order, or both at once, and the quota Workload shows which.
func onePod(job *batchv1.Job) *batchv1.Job {
	job.Spec.Parallelism, job.Spec.Completions = new(int32(1)), new(int32(1))
	return job
}

// expectRecords compares what the manager that leads writes with the corpus of its release.
func expectRecords(ctx context.Context, version string) {
	GinkgoHelper()
	want := count{}
	for _, groups := range recorded() {
		submitTo(ctx, records, groups, &want)
		Eventually(func(g Gomega) { g.Expect(counted(ctx, g, records)).To(Equal(want)) }).WithContext(ctx).Should(Succeed())
	}
	for _, w := range list(ctx, Default, &kueue.WorkloadList{}, records).Items {
		if w.Labels[apis.JobSetLabel] == evictedName+"-00" && quotaworkload.IsTrue(&w, kueue.WorkloadAdmitted) {
			Expect(current.Admin.Patch(ctx, &w, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"active":false}}`)))).To(Succeed())
		}
	}
	want.add(1, count{running: -1, admitted: -1})
	Eventually(func(g Gomega) { g.Expect(counted(ctx, g, records)).To(Equal(want)) }).WithContext(ctx).Should(Succeed())

	// Until guests have completed that come now, the controllers have also noted in the status of all objects what runs.
	expectProgress(ctx)
	dir := filepath.Join(current.Root, "lifecycle", "testdata", version)
	Eventually(func(g Gomega) {
		files := record(ctx, g)
		if *update {
			g.Expect(os.RemoveAll(dir)).To(Succeed())
			g.Expect(os.MkdirAll(dir, 0o755)).To(Succeed())
		}
		for name, content := range files {
			file := filepath.Join(dir, name+".yaml")
			if *update {
				g.Expect(os.WriteFile(file, content, 0o644)).To(Succeed())
			}
			golden, err := os.ReadFile(file)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cmp.Diff(string(golden), string(content))).To(BeEmpty(), "%s: if the change is intended, run the suite with -args -update", file)
		}
	}).WithContext(ctx).WithTimeout(recordTimeout).Should(Succeed())
	removeAll(ctx, records)
}

// record returns the objects of the corpus in a form that does not depend on when and where they were made: by the prefix of their names, and those of the
// queue and the manager.
func record(ctx context.Context, g Gomega) map[string][]byte {
	GinkgoHelper()
	files, texts := map[string][]byte{}, map[string][]string{}
	var all []client.Object
	for _, kind := range []client.ObjectList{&jobsetapi.JobSetList{}, &batchv1.JobList{}, &corev1.PodList{}, &kueue.WorkloadList{}, &corev1.ConfigMapList{}, &kueue.LocalQueueList{}} {
		g.Expect(current.Admin.List(ctx, kind, client.InNamespace(records))).To(Succeed())
		items, err := apimeta.ExtractList(kind)
		g.Expect(err).NotTo(HaveOccurred())
		for _, item := range items {
			all = append(all, item.(client.Object))
		}
	}
	queue, lease := &kueue.ClusterQueue{}, &coordinationv1.Lease{}
	g.Expect(current.Admin.Get(ctx, client.ObjectKey{Name: records}, queue)).To(Succeed())
	g.Expect(current.Admin.Get(ctx, client.ObjectKey{Namespace: apis.SystemNamespace, Name: "tranche-manager"}, lease)).To(Succeed())
	lease.Spec.HolderIdentity, lease.Spec.LeaseTransitions = new("manager_"+string(queue.UID)), new(int32(1))
	all = append(all, queue, lease)
	rename := renaming(g, all)
	var prefixes []string
	for _, recorded := range slices.Concat(recorded()...) {
		prefixes = append(prefixes, recorded.name)
	}
	slices.SortFunc(prefixes, func(a, b string) int { return len(b) - len(a) })
	for _, object := range all {
		// Tranche writes no pods but those of gangs.
		if _, isPod := object.(*corev1.Pod); isPod && !podgroup.IsMember(object) || object.GetName() == "kube-root-ca.crt" {
			continue
		}
		file := "queue"
		for _, prefix := range prefixes {
			if strings.Contains(object.GetName(), prefix+"-00") {
				file = prefix
				break
			}
		}
		texts[file] = append(texts[file], normalized(g, object, rename))
	}
	for file, documents := range texts {
		slices.Sort(documents)
		files[file] = []byte(strings.Join(documents, "---\n"))
	}
	return files
}

// renaming replaces what is random: UIDs by the names of the objects, and what follows from a UID in the names of pods and quota Workloads.
func renaming(g Gomega, all []client.Object) *strings.Replacer {
	GinkgoHelper()
	// A quota Workload names one of the pods of its gang: whichever it is, it is the first.
	named := map[string]bool{}
	for _, object := range all {
		named[object.GetLabels()[apis.JobUIDLabel]] = true
	}
	slices.SortStableFunc(all, func(a, b client.Object) int {
		switch isFirst := named[string(a.GetUID())]; {
		case isFirst == named[string(b.GetUID())]:
			return 0
		case isFirst:
			return -1
		}
		return 1
	})
	var pairs []string
	pods := map[string]int{}
	for _, object := range all {
		name := object.GetName()
		if _, ok := object.(*corev1.Pod); ok {
			owner := name[:strings.LastIndexByte(name, '-')]
			name = fmt.Sprintf("%s-%05d", owner, pods[owner])
			pods[owner]++
			pairs = append(pairs, object.GetName(), name)
		}
		kind := fmt.Sprintf("%T", object)
		pairs = append(pairs, string(object.GetUID()), "uid-of-"+strings.ToLower(kind[strings.LastIndexByte(kind, '.')+1:])+"-"+name)
	}
	for _, object := range all {
		w, ok := object.(*kueue.Workload)
		if !ok || len(w.OwnerReferences) == 0 || strings.HasPrefix(w.Labels[apis.PodGroupKey], "kueue.") {
			continue
		}
		ref := w.OwnerReferences[0]
		group, _, _ := strings.Cut(ref.APIVersion, "/")
		owner := workloadname.Owner{Kind: ref.Kind, Group: group, Name: ref.Name, UID: ref.UID}
		prefix := strings.ToLower(ref.Kind) + "-" + ref.Name
		extra := strings.Trim(strings.TrimPrefix(w.Name[:len(w.Name)-len("-00000")], prefix), "-")
		g.Expect(w.Name).To(Equal(workloadname.Of(owner, extra)), "the name has the hash of its owner")
		owner.UID = types.UID("uid-of-" + strings.ToLower(ref.Kind) + "-" + ref.Name)
		pairs = append(pairs, w.Name, workloadname.Of(owner, extra))
	}
	for i := 0; i+1 < len(pairs); i += 2 { // UIDs of quota Workloads have their names
		for j := 0; j+1 < len(pairs); j += 2 {
			pairs[i+1] = strings.ReplaceAll(pairs[i+1], pairs[j], pairs[j+1])
		}
	}
	return strings.NewReplacer(pairs...)
}

var (
	times  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	ports  = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	tokens = regexp.MustCompile(`\b[A-Z0-9]{26}\b`)
	// dropped are fields that others than Tranche write, and that it does not read, or that say when and where an object was made: below any key, in any object.
	dropped = []string{
		"managedFields", "resourceVersion", "generation", "generateName", "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "dnsPolicy",
		"enableServiceLinks", "preemptionPolicy", "serviceAccount", "serviceAccountName", "volumes", "volumeMounts", "securityContext", "terminationGracePeriodSeconds",
		"nodeName", "hostIP", "podIP", "podIPs", "hostIPs", "containerStatuses", "qosClass", "uncountedTerminatedPods", "accumulatedPastExecutionTimeSeconds",
		"lastProbeTime", "selector", "manualSelector", "groupName", "network", "successPolicy", "controller-uid", "job-name",
	}
	// droppedLabels does the same for labels, and the annotations that repeat them.
	droppedLabels = regexp.MustCompile(`^jobset\.sigs\.k8s\.io/(global-|group-|job-global-|job-group-|job-key|replicatedjob-replicas|priority)`)
)

// sortReleased sorts the Jobs that a group has released.
func sortReleased(object client.Object, rename *strings.Replacer) {
	if configMap, ok := object.(*corev1.ConfigMap); ok && configMap.Data["released"] != "" {
		released := slices.Sorted(strings.Lines(rename.Replace(configMap.Data["released"])))
		configMap.Data["released"] = strings.Join(released, "")
	}
}

// normalized returns an object as YAML, without fields that Tranche neither writes nor reads.
func normalized(g Gomega, object client.Object, rename *strings.Replacer) string {
	GinkgoHelper()
	gvk, err := apiutil.GVKForObject(object, current.Admin.Scheme())
	g.Expect(err).NotTo(HaveOccurred())
	object.GetObjectKind().SetGroupVersionKind(gvk)
	sortReleased(object, rename)
	data, err := json.Marshal(object)
	g.Expect(err).NotTo(HaveOccurred())
	var tree any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	g.Expect(decoder.Decode(&tree)).To(Succeed())
	drop(tree)
	out, err := yaml.Marshal(tree)
	g.Expect(err).NotTo(HaveOccurred())
	text := times.ReplaceAllString(rename.Replace(string(out)), "2026-01-01T00:00:00Z")
	return tokens.ReplaceAllString(ports.ReplaceAllString(text, "127.0.0.1:8083"), "TOKEN")
}

// drop removes the fields that are dropped, and conditions that may be there a moment later, or change with the time. It sorts the others.
func drop(tree any) {
	switch node := tree.(type) {
	case map[string]any:
		if conditions, ok := node["conditions"].([]any); ok {
			node["conditions"] = slices.DeleteFunc(conditions, func(condition any) bool {
				kind := condition.(map[string]any)["type"]
				return kind == string(batchv1.JobSuspended) || kind == "StartExpected"
			})
			slices.SortFunc(node["conditions"].([]any), func(a, b any) int {
				return strings.Compare(a.(map[string]any)["type"].(string), b.(map[string]any)["type"].(string))
			})
			if len(node["conditions"].([]any)) == 0 {
				delete(node, "conditions")
			}
		}
		for key, value := range node {
			if slices.Contains(dropped, key) || droppedLabels.MatchString(key) {
				delete(node, key)
			} else {
				drop(value)
			}
		}
	case []any:
		for _, item := range node {
			drop(item)
		}
	}
}
