package stageplan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/apis"
	jobsetv1alpha2 "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// wholeGang is the value of apis.GangGroupAnnotation for the gang of a whole JobSet, and suffixEach ends that of a ReplicatedJob each of whose Jobs is a gang.
const (
	wholeGang  = "all"
	suffixEach = "x"
)

// RulesRecord returns the value of apis.StartupRulesAnnotation for a JobSet, or "" if it has no rules. The admission policies compute the same.
func RulesRecord(spec *jobsetv1alpha2.JobSetSpec) string {
	if spec.StartupPolicy == nil {
		return ""
	}
	var rules []string
	for _, rule := range spec.StartupPolicy.Rules {
		status := cmp.Or(rule.WaitForReplicatedJobsStatus, jobsetv1alpha2.ReadyStatus)
		rules = append(rules, strings.Join(rule.TargetReplicatedJobs, ",")+"="+string(status))
	}
	return strings.Join(rules, ";")
}

// Restored returns a JobSet with the fields of Tranche that it was created with, and the fields that it had lost, if any. The API server drops them from
// JobSets that are written while it serves another CRD, and they cannot be set again. It returns the JobSet itself if nothing is lost, and never changes it.
func Restored(js *jobsetv1alpha2.JobSet) (restored *jobsetv1alpha2.JobSet, lost []string) {
	restored = js
	change := func(field string) {
		if restored == js {
			shallow := *js
			restored = &shallow
		}
		lost = append(lost, field)
	}
	if rules := lostRules(js); rules != nil {
		change("spec.startupPolicy.rules")
		policy := *js.Spec.StartupPolicy
		policy.Rules = rules
		restored.Spec.StartupPolicy = &policy
	}
	gangOf := func(r jobsetv1alpha2.ReplicatedJob) string { return r.Template.Annotations[apis.GangGroupAnnotation] }
	isWhole := slices.ContainsFunc(js.Spec.ReplicatedJobs, func(r jobsetv1alpha2.ReplicatedJob) bool { return gangOf(r) == wholeGang })
	switch {
	case isWhole && asksForGang(js.Spec.GangConfig, js.Annotations):
		return restored, lost
	case isWhole:
		change("spec.gangConfig")
		restored.Spec.GangConfig = &jobsetv1alpha2.GangConfig{GangMode: jobsetv1alpha2.GangModeGang}
		return restored, lost
	}
	for i := range js.Spec.ReplicatedJobs {
		r := &js.Spec.ReplicatedJobs[i]
		group := gangOf(*r)
		if group == "" || asksForGang(r.GangConfig, r.Template.Annotations) {
			continue
		}
		change(jobField(i) + ".gangConfig")
		mode := jobsetv1alpha2.GangModeGang
		if strings.HasSuffix(group, suffixEach) {
			mode = jobsetv1alpha2.GangModeReplicatedGang
		}
		if &restored.Spec.ReplicatedJobs[0] == &js.Spec.ReplicatedJobs[0] {
			restored.Spec.ReplicatedJobs = slices.Clone(js.Spec.ReplicatedJobs)
		}
		restored.Spec.ReplicatedJobs[i].GangConfig = &jobsetv1alpha2.GangConfig{GangMode: mode}
	}
	return restored, lost
}

// asksForGang reports whether a JobSet or a ReplicatedJob has the field or the annotation by which it asks for a gang, so that it has not lost the field.
func asksForGang(config *jobsetv1alpha2.GangConfig, annotations map[string]string) bool {
	return config != nil || annotations[apis.GangAnnotation] != ""
}

// lostRules returns the rules that a JobSet was created with and no longer has. A record that the admission policies have not written is not read.
func lostRules(js *jobsetv1alpha2.JobSet) []jobsetv1alpha2.StartupPolicyRule {
	record := js.Annotations[apis.StartupRulesAnnotation]
	if record == "" || !inOrder(&js.Spec) || len(js.Spec.StartupPolicy.Rules) > 0 {
		return nil
	}
	var rules []jobsetv1alpha2.StartupPolicyRule
	for rule := range strings.SplitSeq(record, ";") {
		targets, status, found := strings.Cut(rule, "=")
		if !found {
			return nil
		}
		rules = append(rules, jobsetv1alpha2.StartupPolicyRule{
			TargetReplicatedJobs: strings.Split(targets, ","), WaitForReplicatedJobsStatus: jobsetv1alpha2.ReplicatedJobsStatus(status),
		})
	}
	return rules
}

// MayLackRules reports whether a JobSet would have lost startupPolicy.rules without a trace if it was created while the API server served another CRD.
func MayLackRules(js *jobsetv1alpha2.JobSet) bool {
	return len(js.Spec.ReplicatedJobs) > 1 && inOrder(&js.Spec) && len(js.Spec.StartupPolicy.Rules) == 0
}
