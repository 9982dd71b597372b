package podgroup

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The phases of PodGroups. Those from PreScheduling to Scheduled are Koordinator's, except Scheduling, which Coscheduling has, too.
const (
	PhasePending       = "Pending"
	PhasePreScheduling = "PreScheduling"
	PhaseScheduling    = "Scheduling"
	PhaseScheduled     = "Scheduled"
	PhaseRunning       = "Running"
	PhaseFinished      = "Finished"
	PhaseFailed        = "Failed"
)

// The API groups whose PodGroups have a status that Tranche maintains.
const (
	groupCoscheduling = "scheduling.x-k8s.io"
	groupKoordinator  = "scheduling.sigs.k8s.io"
	groupKubeBatch    = "scheduling.incubator.k8s.io"
	// groupDocument is the group in the coscheduling document. kube-batch itself has the other one.
	groupDocument = "incubator.scheduling.k8s.io"
)

// A Status has the fields of the status of a PodGroup that are about its pods. Fields that its API does not have are zero.
type Status struct {
	Phase string
	// Admitted pods have been ungated, Scheduled ones have a node. They count until they are deleted, the others while they are in that phase.
	Admitted, Scheduled, Running, Succeeded, Failed int64
	// Started is when enough pods had been ungated for the first time, in seconds since 1970, or zero.
	Started int64
}

// StatusFields returns the fields of a Status that the PodGroups of an API have. There are none if Tranche does not maintain their status: that
// of Kubernetes and that of Volcano belong to their schedulers.
func StatusFields(apiVersion string) []string {
	switch groupOf(apiVersion) {
	case groupCoscheduling:
		return []string{"phase", "running", "succeeded", "failed", "scheduleStartTime"}
	case groupKoordinator:
		return []string{"phase", "scheduled", "running", "succeeded", "failed", "scheduleStartTime"}
	case groupKubeBatch, groupDocument:
		return []string{"admitted", "running", "succeeded", "failed"}
	}
	return nil
}

func groupOf(apiVersion string) string {
	group, _, _ := strings.Cut(apiVersion, "/")
	return group
}

// StatusAfter returns the new status of the PodGroup of a gang, given the previous one. A finished one stays unchanged, whatever becomes of the
// pods, as with the controllers of these APIs.
func (g *Gang) StatusAfter(before Status, now time.Time) Status {
	if g.Object == nil || before.Phase == PhaseFinished || before.Phase == PhaseFailed {
		return before
	}
	after := g.pods()
	fields := StatusFields(g.Object.APIVersion)
	if slices.Contains(fields, "phase") {
		after.Phase = g.phase(after)
		if after.Started = before.Started; after.Started == 0 && after.Phase != PhasePending {
			after.Started = now.Unix()
		}
	}
	for field, count := range after.Counts() {
		if !slices.Contains(fields, field) {
			*count = 0
		}
	}
	return after
}

// Counts returns the counts of pods by the names of their fields.
func (s *Status) Counts() map[string]*int64 {
	return map[string]*int64{
		"admitted": &s.Admitted, "scheduled": &s.Scheduled, "running": &s.Running, "succeeded": &s.Succeeded, "failed": &s.Failed,
	}
}

// pods counts the ungated pods. A pod that terminates because it is deleted has neither succeeded nor failed: an evicted gang has not finished.
func (g *Gang) pods() Status {
	var s Status
	for _, pod := range g.Pods {
		if IsGated(pod) || IsTerminal(pod) && pod.DeletionTimestamp != nil {
			continue
		}
		s.Admitted++
		if pod.Spec.NodeName != "" {
			s.Scheduled++
		}
		switch pod.Status.Phase {
		case corev1.PodRunning:
			s.Running++
		case corev1.PodSucceeded:
			s.Succeeded++
		case corev1.PodFailed:
			s.Failed++
		case corev1.PodPending, corev1.PodUnknown:
		}
	}
	return s
}

// phase follows the controllers of Coscheduling and Koordinator, except that pods count only once they have been ungated: pods that wait for
// quota are not about to be scheduled.
func (g *Gang) phase(s Status) string {
	least := max(1, g.Object.MinMember)
	isKoordinator := groupOf(g.Object.APIVersion) == groupKoordinator
	switch {
	case s.Succeeded >= least:
		return PhaseFinished
	case s.Failed > 0 && s.Failed+s.Running+s.Succeeded >= least:
		return PhaseFailed
	case s.Running+s.Succeeded >= least:
		return PhaseRunning
	case s.Admitted < least:
		return PhasePending
	case isKoordinator && s.Scheduled >= least:
		return PhaseScheduled
	case isKoordinator && s.Scheduled == 0:
		return PhasePreScheduling
	}
	return PhaseScheduling
}
