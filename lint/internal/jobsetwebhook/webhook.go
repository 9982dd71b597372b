// Package jobsetwebhook checks JobSets as the webhook of the JobSet controller 0.12.0 does, with its default feature gates. The module of that controller
// has the webhook in a package that needs a cluster.
package jobsetwebhook

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// Limits of the webhook of the JobSet controller.
const (
	maxManagedBy   = 63
	maxPolicyName  = 128
	maxVolumeClaim = 63
	// podSuffix is as long as what the Job controller appends to names.
	podSuffix = "-abcde"
)

// SetDefaults sets in the content of a JobSet what the mutating webhook of the JobSet controller sets, and the schema requires: names of rules.
func SetDefaults(content map[string]any) {
	rules, _, _ := unstructured.NestedSlice(content, "spec", "failurePolicy", "rules")
	isChanged := false
	for i := range rules {
		if rule, isMap := rules[i].(map[string]any); isMap && (rule["name"] == nil || rule["name"] == "") {
			rule["name"], isChanged = fmt.Sprintf("failurePolicyRule%d", i), true
		}
	}
	if isChanged {
		_ = unstructured.SetNestedSlice(content, rules, "spec", "failurePolicy", "rules") // the fields above are maps
	}
}

// A Problem is something that the webhook rejects.
type Problem struct {
	// Field is a path such as spec.replicatedJobs[0].name, and Cure is what to do.
	Field, Message, Cure string
}

// Check returns what the validating webhook rejects when a JobSet is created. What depends on the cluster is left out: existing PersistentVolumeClaims.
func Check(js *jobsetapi.JobSet) []Problem {
	w := &webhook{JobSet: js}
	w.check()
	return w.problems
}

// A webhook collects the problems of one JobSet.
type webhook struct {
	*jobsetapi.JobSet
	problems []Problem
}

func (w *webhook) add(path, message, cure string) {
	w.problems = append(w.problems, Problem{Field: path, Message: message, Cure: cure})
}

// addLabel adds what is wrong with a name that must be a DNS label of RFC 1035.
func (w *webhook) addLabel(path, what, name, cure string) {
	if wrong := validation.IsDNS1035Label(name); len(wrong) > 0 {
		w.add(path, fmt.Sprintf("%s would be %q: %s", what, name, strings.Join(wrong, "; ")), cure)
	}
}

func (w *webhook) check() {
	if n := w.Spec.Network; n != nil && n.Subdomain != "" {
		w.addLabel("spec.network.subdomain", "the name of the headless Service", n.Subdomain, "correct the name")
	}
	if manager := w.Spec.ManagedBy; manager != nil {
		wrong := validation.IsDomainPrefixedPath(field.NewPath("spec", "managedBy"), *manager)
		switch {
		case len(wrong) > 0:
			w.add("spec.managedBy", fmt.Sprintf("%q: %s", *manager, wrong[0].Detail), "write a name such as example.com/controller")
		case len(*manager) > maxManagedBy:
			w.add("spec.managedBy", fmt.Sprintf("the name has %d characters, may have %d", len(*manager), maxManagedBy), "write a shorter name")
		}
	}
	for i := range w.Spec.ReplicatedJobs {
		w.checkJob(i)
	}
	if s := w.Spec.SuccessPolicy; s != nil {
		w.checkTargets("spec.successPolicy.targetReplicatedJobs", s.TargetReplicatedJobs)
	}
	w.checkFailurePolicy()
	w.checkCoordinator()
	w.checkVolumeClaims()
}

// index returns the index of a ReplicatedJob, or -1.
func (w *webhook) index(name string) int {
	return slices.IndexFunc(w.Spec.ReplicatedJobs, func(j jobsetapi.ReplicatedJob) bool { return j.Name == name })
}

func (w *webhook) checkTargets(path string, names []string) {
	for i, name := range names {
		if w.index(name) < 0 {
			w.add(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("%q is not a ReplicatedJob of this JobSet", name), "name one of spec.replicatedJobs")
		}
	}
}

func (w *webhook) checkJob(i int) {
	job, path := &w.Spec.ReplicatedJobs[i], fmt.Sprintf("spec.replicatedJobs[%d]", i)
	parallelism := ptr.Deref(job.Template.Spec.Parallelism, 1)
	if product := int64(parallelism) * int64(job.Replicas); product > math.MaxInt32 {
		w.add(path+".replicas", fmt.Sprintf("replicas %d times parallelism %d is %d, may be %d", job.Replicas, parallelism, product, math.MaxInt32), "write fewer replicas")
	}
	if job.GroupName != "" {
		w.addLabel(path+".groupName", "the name of the group", job.GroupName, "correct the name")
	}
	w.checkJobNames(job, path)
	if i == 0 && job.DependsOn != nil {
		w.add(path+".dependsOn", "the first ReplicatedJob cannot depend on others", "remove dependsOn, or change the order of spec.replicatedJobs")
		return
	}
	for k := range job.DependsOn {
		if at := w.index(job.DependsOn[k].Name); at < 0 || at > i {
			w.add(fmt.Sprintf("%s.dependsOn[%d].name", path, k), fmt.Sprintf("%q is not an earlier ReplicatedJob of this JobSet", job.DependsOn[k].Name),
				"name a ReplicatedJob that precedes it in spec.replicatedJobs")
		}
	}
}

// checkJobNames checks the longest names of Jobs and pods.
func (w *webhook) checkJobNames(job *jobsetapi.ReplicatedJob, path string) {
	const cure = "write a shorter name of the JobSet or of the ReplicatedJob, of lower-case letters, digits and -"
	before := len(w.problems)
	longest := fmt.Sprintf("%s-%s-%d", w.Name, job.Name, job.Replicas-1)
	w.addLabel(path+".name", "the name of a Job", longest, cure)
	if completions := job.Template.Spec.Completions; len(w.problems) == before && completions != nil && isIndexed(job) {
		w.addLabel(path+".name", "the name of a pod", fmt.Sprintf("%s-%d", longest, *completions-1)+podSuffix, cure)
	}
}

// isIndexed reports whether the Jobs are indexed, as those are by default that the webhook mutates.
func isIndexed(job *jobsetapi.ReplicatedJob) bool {
	return ptr.Deref(job.Template.Spec.CompletionMode, batchv1.IndexedCompletion) == batchv1.IndexedCompletion
}

func (w *webhook) checkFailurePolicy() {
	policy := w.Spec.FailurePolicy
	if policy == nil {
		return
	}
	if policy.RestartStrategy == jobset.InPlaceRestart {
		w.add("spec.failurePolicy.restartStrategy", "the JobSet controller has the feature gate InPlaceRestart off by default", "write Recreate or BlockingRecreate")
	}
	first := map[string]int{}
	for i := range policy.Rules {
		rule, path := &policy.Rules[i], fmt.Sprintf("spec.failurePolicy.rules[%d]", i)
		if rule.Action == jobset.RestartJob || rule.Action == jobset.RestartJobAndIgnoreMaxRestarts {
			w.add(path+".action", "the JobSet controller has the feature gate RestartJob off by default", "write RestartJobSet or RestartJobSetAndIgnoreMaxRestarts")
		}
		if before, isTwice := first[rule.Name]; isTwice {
			w.add(path+".name", fmt.Sprintf("rules[%d] has the same name %q", before, rule.Name), "rename one of the two")
		} else {
			first[rule.Name] = i
		}
		if isName := regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`).MatchString; !isName(rule.Name) || len(rule.Name) > maxPolicyName {
			w.add(path+".name", fmt.Sprintf("the name %q is invalid", rule.Name),
				fmt.Sprintf("write at most %d letters, digits, and the characters _ , and :, with a letter first and no , or : last", maxPolicyName))
		}
		w.checkTargets(path+".targetReplicatedJobs", rule.TargetReplicatedJobs)
		for k, reason := range rule.OnJobFailureReasons {
			if !slices.Contains(failureReasons(), reason) {
				w.add(fmt.Sprintf("%s.onJobFailureReasons[%d]", path, k), fmt.Sprintf("no Job fails for the reason %q", reason), "write one of "+strings.Join(failureReasons(), ", "))
			}
		}
	}
}

// failureReasons returns the reasons of the condition Failed of Jobs.
func failureReasons() []string {
	return []string{
		batchv1.JobReasonBackoffLimitExceeded, batchv1.JobReasonDeadlineExceeded, batchv1.JobReasonFailedIndexes, batchv1.JobReasonMaxFailedIndexesExceeded,
		batchv1.JobReasonPodFailurePolicy,
	}
}

func (w *webhook) checkCoordinator() {
	c := w.Spec.Coordinator
	if c == nil {
		return
	}
	const path = "spec.coordinator"
	subdomain := w.Name
	if n := w.Spec.Network; n != nil && n.Subdomain != "" {
		subdomain = n.Subdomain
	}
	endpoint := fmt.Sprintf("%s-%s-%d-%d.%s", w.Name, c.ReplicatedJob, c.JobIndex, c.PodIndex, subdomain)
	if wrong := validation.IsValidLabelValue(endpoint); len(wrong) > 0 {
		w.add(path, fmt.Sprintf("the value of the label %s would be %q: %s", jobset.CoordinatorKey, endpoint, strings.Join(wrong, "; ")),
			"write a shorter name of the JobSet, of the ReplicatedJob or of spec.network.subdomain")
	}
	i := w.index(c.ReplicatedJob)
	if i < 0 {
		w.add(path+".replicatedJob", fmt.Sprintf("%q is not a ReplicatedJob of this JobSet", c.ReplicatedJob), "name one of spec.replicatedJobs")
		return
	}
	job := &w.Spec.ReplicatedJobs[i]
	completions := job.Template.Spec.Completions
	switch {
	case c.JobIndex < 0 || c.JobIndex >= int(job.Replicas):
		w.add(path+".jobIndex", fmt.Sprintf("ReplicatedJob %q has %d Jobs, so their indexes end at %d", job.Name, job.Replicas, job.Replicas-1), "correct the index")
	case !isIndexed(job) || completions == nil:
		w.add(path, fmt.Sprintf("the Jobs of ReplicatedJob %q have no indexes of pods", job.Name),
			fmt.Sprintf("write completionMode: Indexed and completions in spec.replicatedJobs[%d].template.spec", i))
	case c.PodIndex < 0 || c.PodIndex >= int(*completions):
		w.add(path+".podIndex", fmt.Sprintf("a Job of ReplicatedJob %q has %d pods, so their indexes end at %d", job.Name, *completions, *completions-1), "correct the index")
	}
}

func (w *webhook) checkVolumeClaims() {
	seen := map[string]bool{}
	for i := range w.Spec.VolumeClaimPolicies {
		for k := range w.Spec.VolumeClaimPolicies[i].Templates {
			path := fmt.Sprintf("spec.volumeClaimPolicies[%d].templates[%d].metadata.name", i, k)
			name := w.Spec.VolumeClaimPolicies[i].Templates[k].Name
			if seen[name] {
				w.add(path, fmt.Sprintf("another template has the name %q", name), "rename one of the two")
			}
			seen[name] = true
			if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
				w.add(path, fmt.Sprintf("%q: %s", name, strings.Join(wrong, "; ")), "correct the name")
			}
			if claim := name + "-" + w.Name; len(claim) > maxVolumeClaim {
				w.add(path, fmt.Sprintf("the name of the claim would be %q, with %d characters, may have %d", claim, len(claim), maxVolumeClaim), "write a shorter name")
			}
			w.checkMounts(path, name)
		}
	}
}

// checkMounts requires that a container mounts a claim, and that no volume has its name.
func (w *webhook) checkMounts(path, claim string) {
	isMounted := false
	for i := range w.Spec.ReplicatedJobs {
		pod := &w.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec
		for k := range pod.Volumes {
			if pod.Volumes[k].Name == claim {
				w.add(fmt.Sprintf("spec.replicatedJobs[%d].template.spec.template.spec.volumes[%d].name", i, k),
					fmt.Sprintf("a template of spec.volumeClaimPolicies has the same name %q", claim), "rename one of the two")
			}
		}
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, mount := range container.VolumeMounts {
				isMounted = isMounted || mount.Name == claim
			}
		}
	}
	if !isMounted {
		w.add(path, fmt.Sprintf("no container mounts the claim %q", claim), "add it to volumeMounts of a container, or remove the template")
	}
}
