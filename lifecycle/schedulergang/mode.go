package schedulergang

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// A mode is the gangMode in one place of a JobSet.
type mode struct {
	mode jobsetapi.GangMode
	// field is the path of that place.
	field string
}

// modes are all gangModes of a JobSet.
type modes struct {
	jobSet mode
	// replicatedJobs has one for each, in the order of the spec.
	replicatedJobs []mode
}

// modesOf reads the gang configuration of a JobSet from its fields, and from annotations if the CRD does not have the fields.
func modesOf(js *jobsetapi.JobSet) (modes, stageplan.Problems) {
	all := modes{}
	var problems stageplan.Problems
	all.jobSet, problems = modeOf(js.Spec.GangConfig, "spec.gangConfig", js.Annotations, "metadata.annotations")
	if all.jobSet.mode == jobsetapi.GangModeReplicatedGang {
		problems = append(problems, problemf(all.jobSet.field, "%s is only for ReplicatedJobs: set it there, or set %s here",
			jobsetapi.GangModeReplicatedGang, jobsetapi.GangModeGang))
	}
	for i := range js.Spec.ReplicatedJobs {
		job := &js.Spec.ReplicatedJobs[i]
		asked, wrong := modeOf(job.GangConfig, jobField(i)+".gangConfig", job.Template.Annotations, jobField(i)+".template.metadata.annotations")
		problems = append(problems, wrong...)
		if asked.mode != jobsetapi.GangModeOff && all.jobSet.mode != jobsetapi.GangModeOff {
			problems = append(problems, problemf(asked.field, "%s cannot be combined with %s of %s: set one of them to %s",
				asked.mode, all.jobSet.mode, all.jobSet.field, jobsetapi.GangModeOff))
		}
		all.replicatedJobs = append(all.replicatedJobs, asked)
	}
	return all, problems
}

// IsSingleGang reports whether all pods of a ReplicatedJob are in one gang, alone or with those of others.
func IsSingleGang(js *jobsetapi.JobSet, replicatedJob string) bool {
	asked, _ := modesOf(js)
	return asked.jobSet.mode == jobsetapi.GangModeGang || slices.ContainsFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool {
		asked, _ := modeOf(r.GangConfig, "", r.Template.Annotations, "")
		return r.Name == replicatedJob && asked.mode == jobsetapi.GangModeGang
	})
}

func modeOf(config *jobsetapi.GangConfig, configField string, annotations map[string]string, annotationsField string) (mode, stageplan.Problems) {
	value, annotated := annotations[apis.GangAnnotation]
	annotation := mode{jobsetapi.GangMode(value), fmt.Sprintf("%s[%s]", annotationsField, apis.GangAnnotation)}
	field := mode{jobsetapi.GangModeOff, configField + ".gangMode"}
	if config != nil {
		field.mode = config.GangMode
	}
	asked := field
	if annotated && config == nil {
		asked = annotation
	}
	switch {
	case !isGangMode(asked.mode):
		return mode{jobsetapi.GangModeOff, asked.field}, stageplan.Problems{problemf(asked.field, "%q must be %s, %s or, for a ReplicatedJob, %s",
			asked.mode, jobsetapi.GangModeOff, jobsetapi.GangModeGang, jobsetapi.GangModeReplicatedGang)}
	case annotated && annotation.mode != asked.mode:
		return asked, stageplan.Problems{problemf(annotation.field, "%q contradicts %q of %s: remove the annotation, which is for clusters without that field",
			annotation.mode, asked.mode, field.field)}
	}
	return asked, nil
}

func isGangMode(m jobsetapi.GangMode) bool {
	return m == jobsetapi.GangModeOff || m == jobsetapi.GangModeGang || m == jobsetapi.GangModeReplicatedGang
}
