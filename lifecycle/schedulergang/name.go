package schedulergang

import (
	"fmt"
	"strings"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

const (
	// maxNameLength is the limit of a label value: some schedulers identify the members of a gang by a label with its name.
	maxNameLength = 63
	uidLength     = 12
	// wholeJobSet stands for the JobSet in the names of its gang and of its only template. No other template can have that name: a gang of the JobSet
	// excludes all others.
	wholeJobSet = "all"
)

// gangName returns the name of the gang of a template that has the pods of this Job. See the package comment.
func (s *GangSet) gangName(podGroupTemplate *PodGroupTemplate, member *Member, job int32) string {
	switch {
	case podGroupTemplate.Mode == jobsetapi.GangModeReplicatedGang:
		return s.name("-"+member.ReplicatedJob, fmt.Sprintf("%sx%d", podGroupTemplate.token, job), s.attempt(member, job))
	case podGroupTemplate.token == wholeJobSet:
		return s.name("", wholeJobSet, s.attempt(nil, 0))
	default:
		return s.name("-"+member.ReplicatedJob, podGroupTemplate.token, s.attempt(nil, 0))
	}
}

// roleName returns the name of the part of a gang of the whole JobSet that has the pods of one ReplicatedJob, for schedulers that compose a gang
// of such parts.
func (s *GangSet) roleName(member *Member) string {
	return s.name("-"+member.ReplicatedJob, fmt.Sprint(member.Index), s.attempt(nil, 0))
}

// attempt distinguishes one run of the pods from the next. A restart of a single Job is a new attempt only of a gang that has no other Jobs.
func (s *GangSet) attempt(member *Member, job int32) string {
	attempt := fmt.Sprintf("r%d", s.Restarts)
	if member != nil {
		if restarts := member.restartsOf(job); restarts > 0 {
			attempt += fmt.Sprintf("j%d", restarts)
		}
	}
	return attempt
}

// name joins the parts of a name. None of the last three has a hyphen, so that they can be parsed from the end.
func (s *GangSet) name(readable string, parts ...string) string {
	tail := "-" + strings.Join(append(parts, s.shortUID()), "-")
	head := strings.ReplaceAll(s.JobSet.Name+readable, ".", "-")
	return head[:min(len(head), maxNameLength-len(tail))] + tail
}

func (s *GangSet) shortUID() string {
	uid := strings.ReplaceAll(string(s.UID), "-", "")
	return uid[:min(len(uid), uidLength)]
}
