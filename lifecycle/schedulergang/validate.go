package schedulergang

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

func problemf(field, format string, args ...any) stageplan.Problem {
	return stageplan.Problem{Field: field, Message: fmt.Sprintf(format, args...)}
}

func jobField(i int) string { return fmt.Sprintf("spec.replicatedJobs[%d]", i) }

func schedulerField(member *Member) string {
	return jobField(member.Index) + ".template.spec.template.spec.schedulerName"
}

// checkStages checks whether a gang of the whole JobSet can start: only if all of its pods can exist at once. Pods of a later stage are not
// created before earlier stages have run, and these do not run before the gang is complete.
func checkStages(plan *stageplan.Plan, field string) stageplan.Problems {
	for s := range plan.Stages {
		for _, after := range plan.Stages[s].After {
			return stageplan.Problems{problemf(field, "%s can never start: it needs the pods of all stages at once, but stage %q opens only when stage %q is %s: "+
				"set %s on each ReplicatedJob instead, or start all ReplicatedJobs together",
				jobsetapi.GangModeGang, plan.Stages[s].Name, plan.Stages[after.Stage].Name, after.Status, jobsetapi.GangModeGang)}
		}
	}
	if len(plan.Stages) == 0 {
		return stageplan.Problems{problemf(field, "%s makes a gang without pods: the JobSet has no ReplicatedJobs", jobsetapi.GangModeGang)}
	}
	return nil
}

// excludeUserGangs removes the PodGroupTemplates whose pod templates name user-created gangs. All pods of a gang must name one, or none.
func (s *GangSet) excludeUserGangs(provider Provider) stageplan.Problems {
	var problems stageplan.Problems
	var ours []PodGroupTemplate
	for g := range s.PodGroupTemplates {
		podGroupTemplate := &s.PodGroupTemplates[g]
		var userGangs []UserGang
		var without *Member
		for m := range podGroupTemplate.Members {
			member := &podGroupTemplate.Members[m]
			if name := provider.UserGangName(member.Template); name != "" {
				userGangs = append(userGangs, UserGang{ReplicatedJob: member.ReplicatedJob, Name: name})
			} else {
				without = member
			}
		}
		switch {
		case len(userGangs) == 0:
			ours = append(ours, *podGroupTemplate)
		case without == nil:
			s.UserGangs = append(s.UserGangs, userGangs...)
		default:
			problems = append(problems, problemf(podGroupTemplate.field, "the pods of ReplicatedJob %q name gang %q, the pods of %q name none: name the gang in both, or in neither",
				userGangs[0].ReplicatedJob, userGangs[0].Name, without.ReplicatedJob))
		}
	}
	s.PodGroupTemplates = ours
	return problems
}

// validate reports where the scheduler would handle the gangs differently from what the JobSet asks for. Most of that would be silent waits.
func (s *GangSet) validate(provider Provider) stageplan.Problems {
	var problems stageplan.Problems
	for g := range s.PodGroupTemplates {
		podGroupTemplate := &s.PodGroupTemplates[g]
		var first *Member
		for m := range podGroupTemplate.Members {
			member := &podGroupTemplate.Members[m]
			if member.Pods() == 0 {
				continue
			}
			first = cmp.Or(first, member)
			if problem := s.checkScheduler(provider, first, member); problem != nil {
				problems = append(problems, *problem)
			}
		}
	}
	return problems
}

// checkScheduler checks that the pods of a gang go to one scheduler, and to the one that knows about the gang.
func (s *GangSet) checkScheduler(provider Provider, first, member *Member) *stageplan.Problem {
	has := member.Template.Spec.SchedulerName
	needs := s.PodFields(provider, member.ReplicatedJob, 0).SchedulerName
	if needs != "" {
		if has == "" || has == needs {
			return nil
		}
		return new(problemf(schedulerField(member), "scheduler %q does not place the gangs of this cluster: set %q, or leave the field empty", has, needs))
	}
	has, needs = cmp.Or(has, corev1.DefaultSchedulerName), cmp.Or(first.Template.Spec.SchedulerName, corev1.DefaultSchedulerName)
	if has == needs {
		return nil
	}
	return new(problemf(schedulerField(member), "%q differs from %q of ReplicatedJob %q, which is in the same gang: a scheduler ignores pods of other schedulers, "+
		"so the gang would never be complete: set the same scheduler on both", has, needs, first.ReplicatedJob))
}
