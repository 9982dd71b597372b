package integration_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// The rows are the checks of docs/reference/validation.md.
var _ = Describe("The schemas of queues", func() {
	// Clients of Kueue may distinguish the answers of its webhooks from those of a CRD, which are 422.
	It("answer with the status of Kueue's webhooks", func(ctx SpecContext) {
		namespace := newTenant(ctx)
		awaitGuards(ctx, namespace)
		cq := validClusterQueue("forbidden")
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("-1")
		job := newQueuedJob(namespace, "forbidden")
		job.Labels[apis.MaxExecTimeLabel] = "2h"
		js := newQueued(namespace, "forbidden", "a")
		js.Labels[apis.MaxExecTimeLabel] = "2h"
		for _, object := range []client.Object{cq, job, js} {
			Expect(apierrors.IsForbidden(env.adminClient.Create(ctx, object, client.DryRunAll))).To(BeTrue(), "%T", object)
		}
	}, SpecTimeout(patience))

	DescribeTable("on a ClusterQueue that is created", func(ctx SpecContext, change func(*kueue.ClusterQueue), want string) {
		cq := validClusterQueue("schema")
		change(cq)
		expectAnswer(env.adminClient.Create(ctx, cq, client.DryRunAll), want)
	},
		Entry("accept a valid one", func(*kueue.ClusterQueue) {}, allowed),
		Entry("accept an empty spec", func(cq *kueue.ClusterQueue) { cq.Spec = kueue.ClusterQueueSpec{} }, allowed),
		Entry("refuse a negative nominalQuota", quotaOf(func(r *kueue.ResourceQuota) { r.NominalQuota = resource.MustParse("-1") }),
			`spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: "-1" of cpu in flavor "blue" is negative; write 0 or more`),
		Entry("refuse a negative borrowingLimit", quotaOf(func(r *kueue.ResourceQuota) { r.BorrowingLimit = new(resource.MustParse("-1m")) }),
			`resources[0].borrowingLimit: "-1m" of cpu in flavor "blue" is negative`),
		Entry("refuse a negative lendingLimit", quotaOf(func(r *kueue.ResourceQuota) { r.LendingLimit = new(resource.MustParse("-1")) }),
			`resources[0].lendingLimit: "-1" of cpu in flavor "blue" is negative`),
		Entry("accept CPUs that stand for no limit", quotaOf(func(r *kueue.ResourceQuota) { r.NominalQuota = resource.MustParse("1E") }), allowed),
		Entry("accept memory that stands for no limit", func(cq *kueue.ClusterQueue) {
			cq.Spec.ResourceGroups[0].Flavors[0].Resources[1].NominalQuota = resource.MustParse("65Pi")
		}, allowed),
		Entry("accept a limit that stands for none", quotaOf(func(r *kueue.ResourceQuota) { r.BorrowingLimit = new(resource.MustParse("1E")) }), allowed),
		Entry("refuse a lendingLimit above nominalQuota", quotaOf(func(r *kueue.ResourceQuota) { r.LendingLimit = new(resource.MustParse("5")) }),
			`resources[0].lendingLimit: "5" of cpu in flavor "blue" exceeds nominalQuota "4"; write at most nominalQuota`),
		Entry("refuse a borrowingLimit without a Cohort", func(cq *kueue.ClusterQueue) {
			cq.Spec.CohortName = ""
			cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].BorrowingLimit = new(resource.MustParse("1"))
		}, "borrowingLimit must be nil when cohort is empty"),
		Entry("refuse a lendingLimit without a Cohort", func(cq *kueue.ClusterQueue) {
			cq.Spec.CohortName = ""
			cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = new(resource.MustParse("1"))
		}, `lendingLimit of cpu in flavor "blue" has no effect without spec.cohortName; set that field, or remove the limit`),
		Entry("refuse a flavor twice in one resource group", func(cq *kueue.ClusterQueue) {
			cq.Spec.ResourceGroups[0].Flavors = append(cq.Spec.ResourceGroups[0].Flavors, cq.Spec.ResourceGroups[0].Flavors[0])
		}, `spec.resourceGroups[0].flavors[1]: Duplicate value: {"name":"blue"}`),
		Entry("refuse a flavor in two resource groups", func(cq *kueue.ClusterQueue) {
			cq.Spec.ResourceGroups = append(cq.Spec.ResourceGroups, groupOf("blue", "nvidia.com/gpu"))
		}, `the flavor "blue" is named more than once`),
		Entry("refuse a resource in two resource groups", func(cq *kueue.ClusterQueue) {
			cq.Spec.ResourceGroups = append(cq.Spec.ResourceGroups, groupOf("red", "memory"))
		}, `the resource memory is in coveredResources more than once`),
		Entry("refuse a resource twice in one resource group", func(cq *kueue.ClusterQueue) {
			cq.Spec.ResourceGroups[0] = groupOf("blue", "cpu", "cpu")
		}, `spec.resourceGroups[0].flavors[0].resources[1]: Duplicate value: {"name":"cpu"}`),
		Entry("refuse a flavor without a covered resource", func(cq *kueue.ClusterQueue) {
			cq.Spec.ResourceGroups[0].Flavors[0].Resources = cq.Spec.ResourceGroups[0].Flavors[0].Resources[:1]
		}, "flavors must have the same number of resources as the coveredResources"),
		Entry("refuse a flavor with another resource", quotaOf(func(r *kueue.ResourceQuota) { r.Name = "nvidia.com/gpu" }),
			`spec.resourceGroups[0].flavors[0].resources: flavor "blue" lists nvidia.com/gpu, memory; list the resources of coveredResources in their order: cpu, memory`),
		Entry("refuse resources in another order", func(cq *kueue.ClusterQueue) {
			cq.Spec.ResourceGroups[0].CoveredResources = []corev1.ResourceName{"memory", "cpu"}
		}, `list the resources of coveredResources in their order: memory, cpu`),
		Entry("refuse an invalid name of a resource", func(cq *kueue.ClusterQueue) {
			cq.Spec.ResourceGroups[0] = groupOf("blue", "@cpu")
		}, `spec.resourceGroups[0].coveredResources[0]: "@cpu" is not a valid resource name`),
		Entry("refuse more than 256 flavors", func(cq *kueue.ClusterQueue) { cq.Spec.ResourceGroups = manyGroups(5, 60, 1) },
			"spec.resourceGroups: has 300 flavors and 5 covered resources; have at most 256 of each"),
		Entry("refuse more than 256 resources", func(cq *kueue.ClusterQueue) { cq.Spec.ResourceGroups = manyGroups(5, 1, 60) },
			"spec.resourceGroups: has 5 flavors and 300 covered resources; have at most 256 of each"),
		Entry("refuse more than 512 combinations", func(cq *kueue.ClusterQueue) { cq.Spec.ResourceGroups = manyGroups(1, 60, 9) },
			"at most 512 combinations of a flavor and a resource"),
		Entry("accept the largest one", func(cq *kueue.ClusterQueue) { cq.Spec.ResourceGroups = manyGroups(16, 16, 16) }, allowed),
		Entry("refuse a label in namespaceSelector", func(cq *kueue.ClusterQueue) {
			cq.Spec.NamespaceSelector.MatchLabels = map[string]string{"team": "no value"}
		}, `spec.namespaceSelector.matchLabels: "team: no value" is not a valid label`),
		Entry("refuse a requirement without values", selectorOf("team", metav1.LabelSelectorOpIn), "the operator In needs values; list at least one"),
		Entry("refuse a requirement with values", selectorOf("team", metav1.LabelSelectorOpExists, "a"), "the operator Exists takes no values; remove them"),
		Entry("refuse an operator that does not exist", selectorOf("team", "Is", "a"), `spec.namespaceSelector.matchExpressions[0]: the operator "Is" does not exist`),
		Entry("refuse a key of a requirement", selectorOf("-team", metav1.LabelSelectorOpExists), `the key "-team" is not a valid label key`),
		Entry("refuse a value of a requirement", selectorOf("team", metav1.LabelSelectorOpIn, "no value"), "a value is not a valid label value"),
		Entry("refuse borrowWithinCohort without reclaimWithinCohort", func(cq *kueue.ClusterQueue) {
			cq.Spec.Preemption = &kueue.ClusterQueuePreemption{
				ReclaimWithinCohort: kueue.PreemptionPolicyNever,
				BorrowWithinCohort:  &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority},
			}
		}, "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"),
		Entry("refuse a preference without effect", func(cq *kueue.ClusterQueue) {
			cq.Spec.FlavorFungibility = &kueue.FlavorFungibility{Preference: new(kueue.BorrowingOverPreemption)}
		}, "preference can only be set when both whenCanBorrow and"),
		Entry("refuse a negative weight", weightOf("-1"), `spec.fairSharing.weight: "-1" is not a valid weight; write 0 or a number above 1n`),
		Entry("refuse a weight that rounds to zero", weightOf("1n"), `spec.fairSharing.weight: "1n" is not a valid weight`),
		Entry("accept weight 0", weightOf("0"), allowed),
		Entry("refuse an AdmissionCheck on a flavor of no resource group", func(cq *kueue.ClusterQueue) {
			cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{
				Name: "provision", OnFlavors: []kueue.ResourceFlavorReference{"blue", "green"},
			}}}
		}, `spec.admissionChecksStrategy.admissionChecks[0].onFlavors: AdmissionCheck "provision" names flavor "green", which is not in spec.resourceGroups`),
	)

	DescribeTable("on a Cohort that is created", func(ctx SpecContext, change func(*kueue.Cohort), want string) {
		cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "schema"}, Spec: kueue.CohortSpec{
			ParentName: "all", ResourceGroups: []kueue.ResourceGroup{groupOf("blue", "cpu", "memory")},
		}}
		change(cohort)
		expectAnswer(env.adminClient.Create(ctx, cohort, client.DryRunAll), want)
	},
		Entry("accept a valid one", func(*kueue.Cohort) {}, allowed),
		Entry("accept an empty spec", func(c *kueue.Cohort) { c.Spec = kueue.CohortSpec{} }, allowed),
		Entry("accept a lendingLimit above nominalQuota", func(c *kueue.Cohort) {
			c.Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = new(resource.MustParse("5"))
		}, allowed),
		Entry("refuse a negative nominalQuota", func(c *kueue.Cohort) {
			c.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("-1")
		}, `nominalQuota: "-1" of cpu in flavor "blue" is negative`),
		Entry("refuse a limit without a parent", func(c *kueue.Cohort) {
			c.Spec.ParentName = ""
			c.Spec.ResourceGroups[0].Flavors[0].Resources[0].BorrowingLimit = new(resource.MustParse("1"))
		}, `borrowingLimit of cpu in flavor "blue" has no effect without spec.parentName`),
		Entry("refuse a flavor in two resource groups", func(c *kueue.Cohort) {
			c.Spec.ResourceGroups = append(c.Spec.ResourceGroups, groupOf("blue", "nvidia.com/gpu"))
		}, `the flavor "blue" is named more than once`),
		Entry("refuse a resource in two resource groups", func(c *kueue.Cohort) {
			c.Spec.ResourceGroups = append(c.Spec.ResourceGroups, groupOf("red", "memory"))
		}, `the resource memory is in coveredResources more than once`),
		Entry("refuse resources in another order", func(c *kueue.Cohort) {
			c.Spec.ResourceGroups[0].CoveredResources = []corev1.ResourceName{"memory", "cpu"}
		}, `list the resources of coveredResources in their order: memory, cpu`),
		Entry("refuse a negative weight", func(c *kueue.Cohort) {
			c.Spec.FairSharing = &kueue.FairSharing{Weight: new(resource.MustParse("-1"))}
		},
			`spec.fairSharing.weight: "-1" is not a valid weight`),
	)

	DescribeTable("on a ResourceFlavor that is created", func(ctx SpecContext, spec kueue.ResourceFlavorSpec, want string) {
		expectAnswer(env.adminClient.Create(ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "schema"}, Spec: spec}, client.DryRunAll), want)
	},
		Entry("accept a valid one", kueue.ResourceFlavorSpec{
			NodeLabels:  map[string]string{"example.com/pool": "blue"},
			NodeTaints:  []corev1.Taint{{Key: "pool", Value: "blue", Effect: corev1.TaintEffectNoSchedule}, {Key: "pool", Effect: corev1.TaintEffectNoExecute}},
			Tolerations: []corev1.Toleration{{Key: "pool", Value: "blue"}, {Operator: corev1.TolerationOpExists}},
		}, allowed),
		Entry("refuse a key of nodeLabels", kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"-pool": "blue"}}, `spec.nodeLabels: "-pool: blue" is not a valid label`),
		Entry("refuse a value of nodeLabels", kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "no value"}}, `spec.nodeLabels: "pool: no value" is not a valid label`),
		Entry("refuse a key of a taint", taint("-pool", "", "NoSchedule"), `spec.nodeTaints[0]: "-pool=" is not a valid taint`),
		Entry("refuse a value of a taint", taint("pool", "no value", "NoSchedule"), `spec.nodeTaints[0]: "pool=no value" is not a valid taint`),
		Entry("refuse an effect of a taint", taint("pool", "", "Never"), "supported taint effect values"),
		Entry("refuse a taint twice", kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{
			{Key: "pool", Value: "a", Effect: corev1.TaintEffectNoSchedule}, {Key: "pool", Value: "b", Effect: corev1.TaintEffectNoSchedule},
		}}, `spec.nodeTaints: "pool:NoSchedule" occurs more than once`),
		Entry("refuse a key of a toleration", toleration(corev1.Toleration{Key: "-pool", Operator: corev1.TolerationOpExists}), `spec.tolerations[0]: "-pool=" is not a valid toleration`),
		Entry("refuse a value of a toleration", toleration(corev1.Toleration{Key: "pool", Value: "no value"}), `spec.tolerations[0]: "pool=no value" is not a valid toleration`),
		Entry("refuse a toleration with neither key nor Exists", toleration(corev1.Toleration{Operator: corev1.TolerationOpEqual}), "operator must be Exists when 'key' is empty"),
		Entry("refuse a toleration that exists and has a value", toleration(corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists, Value: "b"}), "a value must be empty"),
		Entry("refuse tolerationSeconds without NoExecute", toleration(corev1.Toleration{
			Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule, TolerationSeconds: new(int64(1)),
		}), "effect must be 'NoExecute'"),
		Entry("refuse an operator of a toleration", toleration(corev1.Toleration{Key: "a", Operator: "Is"}), "supported toleration values"),
		Entry("refuse an effect of a toleration", toleration(corev1.Toleration{Key: "a", Effect: "Never"}), "supported taint effect values"),
	)

	// A quantity that no client can parse would prevent every client from reading all ClusterQueues.
	DescribeTable("refuse a quantity that does not parse", func(ctx SpecContext, amount string) {
		cq := toUnstructured(validClusterQueue("schema"))
		groups := cq.Object["spec"].(map[string]any)["resourceGroups"].([]any)
		flavor := groups[0].(map[string]any)["flavors"].([]any)[0].(map[string]any)
		flavor["resources"].([]any)[0].(map[string]any)["nominalQuota"] = amount
		expectAnswer(env.adminClient.Create(ctx, cq, client.DryRunAll), "is not a quantity; write a number such as 4, 500m or 64Gi")
	}, Entry("with an exponent beyond all bounds", "1e99999999999999999999"), Entry("with a broken exponent", "1e1.5"))

	It("refuse to change the ClusterQueue of a LocalQueue, and a negative weight", func(ctx SpecContext) {
		namespace := newTenant(ctx)
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "schema"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "a"}}
		Expect(env.adminClient.Create(ctx, lq)).To(Succeed())
		expectAnswer(env.adminClient.Patch(ctx, lq.DeepCopy(), mergePatch(`{"spec":{"clusterQueue":"b"}}`)), "field is immutable")
		expectAnswer(env.adminClient.Patch(ctx, lq.DeepCopy(), mergePatch(`{"spec":{"fairSharing":{"weight":"-1"}}}`)), `spec.fairSharing.weight: "-1" is not a valid weight`)
		expectAnswer(env.adminClient.Patch(ctx, lq.DeepCopy(), mergePatch(`{"spec":{"fairSharing":{"weight":"0.5"}}}`)), allowed)
	}, SpecTimeout(patience))

	It("refuse changes of immutable fields of a ClusterQueue and a ResourceFlavor", func(ctx SpecContext) {
		cq := validClusterQueue("schema-immutable")
		flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "schema-immutable"}, Spec: kueue.ResourceFlavorSpec{
			NodeLabels: map[string]string{"pool": "a"}, TopologyName: new(kueue.TopologyReference("racks")),
		}}
		// Another policy refuses new ResourceFlavors with a topology.
		restore := suspendPolicy(ctx, "tranche-guard-topology-name", func(g Gomega, active bool) {
			probe := flavor.DeepCopy()
			probe.Name = "schema-probe"
			if active {
				g.Expect(env.adminClient.Create(ctx, probe, client.DryRunAll)).NotTo(Succeed())
			} else {
				g.Expect(env.adminClient.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			}
		})
		for _, object := range []client.Object{cq, flavor} {
			Expect(env.adminClient.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, object)).To(Succeed()) })
		}
		restore()
		expectAnswer(env.adminClient.Patch(ctx, cq.DeepCopy(), mergePatch(`{"spec":{"concurrentAdmissionPolicy":{"migration":{"mode":"RetainFirstAdmission"}}}}`)),
			"spec.concurrentAdmissionPolicy: cannot be changed")
		expectAnswer(env.adminClient.Patch(ctx, cq.DeepCopy(), mergePatch(`{"spec":{"cohortName":null}}`)), allowed)
		for patch, want := range map[string]string{
			`{"spec":{"nodeLabels":{"pool":"b"}}}`:                        "nodeLabels are immutable when topologyName is set",
			`{"spec":{"tolerations":[{"operator":"Exists"}]}}`:            "tolerations are immutable when topologyName is set",
			`{"spec":{"topologyName":"blocks"}}`:                          "topologyName is immutable when topologyName is set",
			`{"spec":{"nodeTaints":[{"key":"a","effect":"NoSchedule"}]}}`: allowed,
		} {
			expectAnswer(env.adminClient.Patch(ctx, flavor.DeepCopy(), mergePatch(patch)), want)
		}
	}, SpecTimeout(patience))

	// An object that was stored while the policies were not there.
	It("let a malformed ClusterQueue be stopped, labelled, repaired and deleted", func(ctx SpecContext) {
		restore := suspendPolicy(ctx, "tranche-quota-schema", func(g Gomega, active bool) {
			probe := validClusterQueue("schema-probe")
			quotaOf(func(r *kueue.ResourceQuota) { r.NominalQuota = resource.MustParse("-1") })(probe)
			if active {
				g.Expect(env.adminClient.Create(ctx, probe, client.DryRunAll)).NotTo(Succeed())
			} else {
				g.Expect(env.adminClient.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			}
		})
		cq := validClusterQueue("schema-stored")
		cq.Spec.ResourceGroups = append(cq.Spec.ResourceGroups, groupOf("blue", "nvidia.com/gpu"))
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("-1")
		Expect(env.adminClient.Create(ctx, cq)).To(Succeed())
		restore()
		for patch, want := range map[string]string{
			`{"metadata":{"labels":{"a":"b"},"finalizers":["kueue.x-k8s.io/resource-in-use"]}}`: allowed,
			`{"spec":{"stopPolicy":"Hold"}}`:    allowed,
			`{"spec":{"cohortName":"another"}}`: allowed,
		} {
			expectAnswer(env.adminClient.Patch(ctx, cq.DeepCopy(), mergePatch(patch)), want)
		}
		latest := get(ctx, cq)
		latest.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("1")
		expectAnswer(env.adminClient.Update(ctx, latest.DeepCopy()), `the flavor "blue" is named more than once`)
		latest.Spec.ResourceGroups = latest.Spec.ResourceGroups[:1]
		expectAnswer(env.adminClient.Update(ctx, latest), allowed)
		Expect(env.adminClient.Delete(ctx, cq)).To(Succeed())
		expectAnswer(env.adminClient.Patch(ctx, cq.DeepCopy(), mergePatch(`{"metadata":{"finalizers":null}}`)), allowed)
	}, SpecTimeout(patience))
})

// suspendPolicy removes the binding of a policy, and returns a function that restores it. Both wait until probe succeeds.
func suspendPolicy(ctx SpecContext, name string, probe func(g Gomega, active bool)) (restore func()) {
	GinkgoHelper()
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(binding), binding)).To(Succeed())
	Expect(env.adminClient.Delete(ctx, binding)).To(Succeed())
	isRestored := false
	put := func(ctx SpecContext) {
		GinkgoHelper()
		if !isRestored {
			isRestored = true
			Expect(env.adminClient.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: binding.Spec})).To(Succeed())
			Eventually(func(g Gomega) { probe(g, true) }).WithContext(ctx).Should(Succeed())
		}
	}
	DeferCleanup(put, NodeTimeout(patience))
	Eventually(func(g Gomega) { probe(g, false) }).WithContext(ctx).Should(Succeed())
	return func() { GinkgoHelper(); put(ctx) }
}

func validClusterQueue(name string) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{
		CohortName: "all", NamespaceSelector: &metav1.LabelSelector{},
		ResourceGroups: []kueue.ResourceGroup{groupOf("blue", "cpu", "memory")},
	}}
}

// groupOf returns a resource group of one flavor, with 4 of each resource.
func groupOf(flavor kueue.ResourceFlavorReference, resources ...corev1.ResourceName) kueue.ResourceGroup {
	quotas := kueue.FlavorQuotas{Name: flavor}
	for _, name := range resources {
		quotas.Resources = append(quotas.Resources, kueue.ResourceQuota{Name: name, NominalQuota: resource.MustParse("4")})
	}
	return kueue.ResourceGroup{CoveredResources: resources, Flavors: []kueue.FlavorQuotas{quotas}}
}

// manyGroups returns that many resource groups, with that many flavors and resources each.
func manyGroups(groups, flavors, resources int) []kueue.ResourceGroup {
	made := make([]kueue.ResourceGroup, groups)
	for g := range made {
		var covered []corev1.ResourceName
		for r := range resources {
			covered = append(covered, corev1.ResourceName(fmt.Sprintf("example.com/r-%d-%d", g, r)))
		}
		made[g].CoveredResources = covered
		for f := range flavors {
			made[g].Flavors = append(made[g].Flavors, groupOf(kueue.ResourceFlavorReference(fmt.Sprintf("f-%d-%d", g, f)), covered...).Flavors...)
		}
	}
	return made
}

func quotaOf(change func(*kueue.ResourceQuota)) func(*kueue.ClusterQueue) {
	return func(cq *kueue.ClusterQueue) { change(&cq.Spec.ResourceGroups[0].Flavors[0].Resources[0]) }
}

func weightOf(weight string) func(*kueue.ClusterQueue) {
	return func(cq *kueue.ClusterQueue) {
		cq.Spec.FairSharing = &kueue.FairSharing{Weight: new(resource.MustParse(weight))}
	}
}

func selectorOf(key string, operator metav1.LabelSelectorOperator, values ...string) func(*kueue.ClusterQueue) {
	return func(cq *kueue.ClusterQueue) {
		cq.Spec.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}
	}
}

func taint(key, value string, effect corev1.TaintEffect) kueue.ResourceFlavorSpec {
	return kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{{Key: key, Value: value, Effect: effect}}}
}

func toleration(t corev1.Toleration) kueue.ResourceFlavorSpec {
	return kueue.ResourceFlavorSpec{Tolerations: []corev1.Toleration{t}}
}

func mergePatch(patch string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(patch))
}

func toUnstructured(object client.Object) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	Expect(env.adminClient.Scheme().Convert(object, u, nil)).To(Succeed())
	return u
}

var _ = Describe("The previous version of Kueue's API", func() {
	DescribeTable("is served for kinds that have not changed", func(ctx SpecContext, kind string, fields map[string]any) {
		written := &unstructured.Unstructured{Object: fields}
		written.SetAPIVersion("kueue.x-k8s.io/v1beta1")
		written.SetKind(kind)
		written.SetGenerateName("previous-")
		Expect(env.adminClient.Create(ctx, written)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, written)).To(Succeed()) })
		read := &unstructured.Unstructured{}
		read.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind(kind))
		Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(written), read)).To(Succeed())
		for name, value := range fields {
			if name != "apiVersion" && name != "metadata" {
				Expect(read.Object).To(HaveKeyWithValue(name, value), "nothing is lost")
			}
		}
	},
		Entry("ResourceFlavors", "ResourceFlavor", map[string]any{"spec": map[string]any{
			"nodeLabels": map[string]any{"pool": "spot"}, "nodeTaints": []any{map[string]any{"key": "spot", "value": "true", "effect": "NoSchedule"}},
			"tolerations": []any{map[string]any{"key": "gpu", "operator": "Exists"}},
		}}),
		Entry("WorkloadPriorityClasses", "WorkloadPriorityClass", map[string]any{"value": int64(7), "description": "urgent"}),
	)

	It("is subject to the policies of the other version", func(ctx SpecContext) {
		topology := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"levels": []any{map[string]any{"nodeLabel": "rack"}}}}}
		topology.SetAPIVersion("kueue.x-k8s.io/v1beta1")
		topology.SetKind("Topology")
		topology.SetName("previous")
		Expect(env.adminClient.Create(ctx, topology)).To(MatchError(ContainSubstring("a Topology has no effect")))
	})

	DescribeTable("is not served for kinds that would lose fields", func(ctx SpecContext, kind string) {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("kueue.x-k8s.io/v1beta1")
		o.SetKind(kind)
		o.SetGenerateName("previous-")
		Expect(env.adminClient.Create(ctx, o)).To(MatchError(ContainSubstring("no matches for kind")))
	},
		Entry("ClusterQueues", "ClusterQueue"), Entry("AdmissionChecks", "AdmissionCheck"), Entry("Cohorts", "Cohort"),
	)
})
