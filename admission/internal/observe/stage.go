package observe

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/notice"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/internal/version"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

func (ev WorkloadObserved) apply(o *Observer) {
	object := ev.Workload
	key := decision.StageKey{Namespace: object.Namespace, Name: object.Name}
	v := version.Of(object.UID, object.ResourceVersion)
	s := o.m.Stages[key]
	if o.tombstones.Has(object.UID) || s != nil && v.IsOlderThan(s.Version) {
		return
	}
	if s != nil && s.UID != object.UID {
		o.loseStage(key)
		s = nil
	}
	isNew := s == nil
	if isNew {
		s = &model.Stage{Key: key, UID: object.UID, Generation: -1}
		o.m.Stages[key] = s
	}
	s.Version = v
	o.join(s, object)
	if isNew {
		o.restoreHistory(s, object)
	}
	o.adoptSpec(s, object)
	o.adoptStatus(s, object)
	o.adoptCoAdmissionGroup(s, object)
	o.dropEviction(s)
	before := s.Entry.Phase
	o.m.Refresh(s)
	if isNew && s.IsLeaving() {
		o.restorePreemptor(s, object)
	}
	if before == model.Reserving && s.Entry.Phase == model.Admitted && s.TimeLimit > 0 {
		o.noteEnd(s)
	}
}

// noteEnd notes that the end of a stage is known since its AdmissionChecks have passed, and with it perhaps the start of a due stage: others that end before
// that may overtake it.
func (o *Observer) noteEnd(s *model.Stage) {
	if g := s.Entry.ClusterQueue.CohortTree; g != nil && len(g.DueQueues) > 0 {
		o.m.ChargeEpoch++
		for _, q := range g.DueQueues {
			o.m.Schedule.WakeTopic(g, q.DueTopic)
		}
	}
}

// restoreHistory records by whom a stage was preempted before the Engine existed.
func (o *Observer) restoreHistory(s *model.Stage, object *kueue.Workload) {
	for _, p := range quotaworkload.Preemptors(object) {
		o.m.Finder.History.Restore(p.UID, cmp.Or(s.OwnerUID, s.UID), p.Times)
		o.notePreemptor(p.UID, false)
	}
}

// restorePreemptor records for which stage one leaves that was preempted, or got notice of that, before the Engine existed.
func (o *Observer) restorePreemptor(s *model.Stage, object *kueue.Workload) {
	var uid types.UID
	if n := s.CurrentNotice(); n != nil {
		uid = n.Preemption.PreemptorUID
	}
	// Other evictions leave the condition of the last preemption, which is no longer true.
	if trueCondition(object, kueue.WorkloadEvicted) != nil && trueCondition(object, kueue.WorkloadPreempted) != nil {
		if all := quotaworkload.Preemptors(object); len(all) > 0 {
			uid = all[0].UID
		}
	}
	if uid != "" {
		o.notePreemptor(uid, true)
	}
}

// notePreemptor notes a preemptor for the next cycle, and whether one of its victims is leaving.
func (o *Observer) notePreemptor(uid types.UID, isAwaiting bool) {
	if o.m.RestoredPreemptors == nil {
		o.m.RestoredPreemptors = map[types.UID]bool{}
	}
	o.m.RestoredPreemptors[uid] = o.m.RestoredPreemptors[uid] || isAwaiting
}

// join makes the stage a member of its LocalQueue, and of its JobSet or of the object whose plan its label names.
func (o *Observer) join(s *model.Stage, object *kueue.Workload) {
	localQueue := types.NamespacedName{Namespace: object.Namespace, Name: string(object.Spec.QueueName)}
	owner := types.UID(object.Labels[apis.PlanUIDLabel])
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil && ref.Kind == "JobSet" && o.mayBeStage(object) {
		owner = ref.UID
	}
	if s.LocalQueue != nil && (localQueue != s.LocalQueue.Key || owner != s.OwnerUID) {
		o.leave(s)
	}
	if s.LocalQueue == nil {
		s.LocalQueue = o.m.LocalQueue(localQueue)
		s.LocalQueue.Members.Add(s)
	}
	s.OwnerUID = owner
	if owner != "" {
		o.m.JobSet(owner).Members[s.Key] = s
	}
}

// mayBeStage reports whether a quota Workload of a JobSet is one of its stages. Beside Kueue's manager, a quota Workload of its JobSet integration is
// for a JobSet as a whole.
func (o *Observer) mayBeStage(object *kueue.Workload) bool {
	_, isStage := object.Labels[apis.StageIndexLabel]
	return isStage || o.m.Config.Leader == queuespec.Tranche
}

// leave removes the stage from all totals, and from its LocalQueue and JobSet.
func (o *Observer) leave(s *model.Stage) {
	o.m.SetEntry(s, model.Entry{})
	o.m.RenewEvictionUnits(s)
	o.m.Enqueue(s)
	s.LocalQueue.Members.Drop(s)
	o.dropIfUnknown(s.LocalQueue)
	s.LocalQueue = nil
	if j := o.m.JobSets[s.OwnerUID]; j != nil {
		delete(j.Members, s.Key)
		o.m.UpdateJobSet(j)
		o.dropIfForgotten(j)
	}
}

// apply records a tombstone also for an unknown stage. A newer stage of the same name may have been observed before.
func (ev WorkloadGone) apply(o *Observer) {
	o.tombstones.Insert(ev.UID)
	if s := o.m.Stages[ev.Key]; s != nil && (ev.UID == "" || ev.UID == s.UID) {
		o.loseStage(ev.Key)
	}
}

func (ev TombstoneCleared) apply(o *Observer) { o.tombstones.Remove(ev.UID) }

func (o *Observer) loseStage(key decision.StageKey) {
	s := o.m.Stages[key]
	if s == nil {
		return
	}
	o.leave(s)
	o.unbundle(s)
	o.m.Timers.Drop(&s.Timer)
	o.m.Demand.ReleaseDemand(s.Demand)
	o.tombstones.Insert(s.UID)
	delete(o.m.Stages, key)
	o.m.Finder.History.Forget(s.UID)
	delete(o.m.Overdue, s)
	if s.Assumed != nil {
		delete(o.m.InFlight, s.Assumed.Decision)
	}
	delete(o.m.InFlight, s.Evicting)
	delete(o.m.InFlight, s.Notice.Decision())
	o.m.Notices.Put(s, nil)
}

// adoptSpec converts the relevant parts of the spec.
func (o *Observer) adoptSpec(s *model.Stage, object *kueue.Workload) {
	s.Created = object.CreationTimestamp.Time
	s.Index = number(object.Labels[apis.StageIndexLabel])
	s.Attempt = number(object.Annotations[apis.AttemptAnnotation])
	s.IsGrowth, s.IsAdopted = object.Labels[apis.GrowthLabel] != "", object.Annotations[apis.AdoptedAnnotation] != ""
	s.Priority, s.Unsupported = priorityOf(object), Unsupported(object)
	s.PodSets = object.Spec.PodSets
	s.Pinned, s.IsGang = object.Annotations[apis.FlavorsAnnotation], object.Labels[apis.PodGroupKey] != ""
	sameReclaimable := slices.Equal(s.Reclaimable, object.Status.ReclaimablePods)
	if s.Generation == object.Generation && object.Generation > 0 && sameReclaimable {
		return
	}
	s.Generation = object.Generation
	s.Reclaimable = slices.Clone(object.Status.ReclaimablePods)
	before := s.Demand
	s.Demand = o.m.Demand.DemandOf(s.Key.Namespace, &s.WorkloadPods)
	o.m.Demand.ReleaseDemand(before)
}

// number parses a label or annotation of the manager. It returns 0 for a text that is no number, as in a quota Workload of another controller.
func number(s string) int {
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// timeLimitOf returns how long a quota Workload holds its quota when it is admitted, or 0 if it has no limit: how long it may still run, and how long its pods
// may take to terminate after that.
func timeLimitOf(object *kueue.Workload) time.Duration {
	limit := object.Spec.MaximumExecutionTimeSeconds
	if limit == nil {
		return 0
	}
	left := time.Duration(*limit-ptr.Deref(object.Status.AccumulatedPastExecutionTimeSeconds, 0)) * time.Second
	return max(left, time.Second) + gracePeriodOf(object)
}

// gracePeriodOf returns the longest grace period of the pods of a quota Workload.
func gracePeriodOf(object *kueue.Workload) time.Duration {
	var longest int64
	for i := range object.Spec.PodSets {
		grace := ptr.Deref(object.Spec.PodSets[i].Template.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
		longest = max(longest, grace)
	}
	return time.Duration(min(longest, math.MaxInt32)) * time.Second // no overflow, whatever a user writes
}

// adoptStatus records the state that the object reports.
func (o *Observer) adoptStatus(s *model.Stage, object *kueue.Workload) {
	s.IsFinished = quotaworkload.IsTrue(object, kueue.WorkloadFinished)
	s.IsReady, s.HasNoPods = quotaworkload.IsTrue(object, kueue.WorkloadPodsReady), quotaworkload.HasNoPodsYet(object)
	s.AdmittedAt, s.IsAdmitted = time.Time{}, false
	if c := trueCondition(object, kueue.WorkloadAdmitted); c != nil {
		s.AdmittedAt, s.IsAdmitted = c.LastTransitionTime.Time, true
	}
	s.TimeLimit = timeLimitOf(object)
	s.Evicted, s.IsEvicted = time.Time{}, false
	adoptNotice(s, object)
	if s.Evicting == 0 {
		c := trueCondition(object, kueue.WorkloadPreempted)
		s.IsTakenFairly = c != nil && c.Reason == kueue.InCohortFairSharingReason
		if n := s.Notice.Current(); n != nil {
			s.IsTakenFairly = n.Preemption.Reason == kueue.InCohortFairSharingReason
		}
	}
	if c := trueCondition(object, kueue.WorkloadEvicted); c != nil {
		s.IsEvicted = true
		if o.losesPlace(c.Reason) {
			s.Evicted = c.LastTransitionTime.Time
		}
	}
	s.RequeueAt = time.Time{}
	if r := object.Status.RequeueState; r != nil && r.RequeueAt != nil {
		s.RequeueAt = r.RequeueAt.Time
	}
	s.Reservation = nil
	if a, c := object.Status.Admission, trueCondition(object, kueue.WorkloadQuotaReserved); a != nil && c != nil {
		s.ReservedAt = c.LastTransitionTime.Time
		s.Reservation = &model.Assignment{ClusterQueue: o.m.ClusterQueue(string(a.ClusterQueue))}
		s.Reservation.Usage, s.Reservation.Parts = o.usageOf(object)
	}
	adoptChecks(s, object)
	s.ClosedBy = quotaworkload.ClosedBy(object)
}

// adoptNotice records when the stage will be evicted for a preemptor.
func adoptNotice(s *model.Stage, object *kueue.Workload) {
	n := quotaworkload.NoticeOf(object)
	if n == nil {
		s.Notice.Observe(nil)
		return
	}
	s.Notice.Observe(&notice.Notice{Ends: n.Ends, Preemption: decision.Preemption{PreemptorUID: n.Preemptor, Reason: n.Reason}})
}

// adoptChecks records which AdmissionChecks have been passed. With an answer that ends a reservation, its approval ends, too.
func adoptChecks(s *model.Stage, object *kueue.Workload) {
	s.ReadyChecks = nil
	isRejected := false
	for i := range object.Status.AdmissionChecks {
		switch check := &object.Status.AdmissionChecks[i]; check.State {
		case kueue.CheckStateReady:
			s.ReadyChecks = append(s.ReadyChecks, check.Name)
		case kueue.CheckStateRetry, kueue.CheckStateRejected:
			isRejected = true
		case kueue.CheckStatePending:
		}
	}
	isHeld := s.Reservation != nil && !s.IsEvicted && !isRejected
	s.IsApproved = s.IsApproved && isHeld && s.ReservedAt.Equal(s.ApprovedAt)
	if !isHeld {
		s.Revoked = ""
	}
}

// losesPlace reports whether an eviction moves a stage behind those that came before it. A stage that was preempted, or whose queue was stopped,
// keeps its queue position.
func (o *Observer) losesPlace(reason string) bool {
	switch reason {
	case kueue.WorkloadEvictedByPreemption, kueue.WorkloadEvictedByClusterQueueStopped, kueue.WorkloadEvictedByLocalQueueStopped:
		return false
	case kueue.WorkloadEvictedByPodsReadyTimeout:
		return !o.m.Config.KeepPlaceAfterEviction
	}
	return true
}

// trueCondition returns the condition of this type if its status is True, or nil.
func trueCondition(object *kueue.Workload, conditionType string) *metav1.Condition {
	if c := apimeta.FindStatusCondition(object.Status.Conditions, conditionType); c != nil && c.Status == metav1.ConditionTrue {
		return c
	}
	return nil
}

// usageOf returns the charge of an admission, in total and by pod set. It is charged as it is written, whatever the quota, less the reclaimable
// pods.
func (o *Observer) usageOf(object *kueue.Workload) (usage quota.Usage, parts []model.PodSetCharge) {
	for i := range object.Status.Admission.PodSetAssignments {
		p := &object.Status.Admission.PodSetAssignments[i]
		one := model.PodSetCharge{PodSet: string(p.Name)}
		for name, q := range p.ResourceUsage {
			f, ok := p.Flavors[name]
			if !ok {
				continue
			}
			amount, _ := quota.Of(name, q)
			amount = min(amount, quota.MaxCharge)
			one.Usage.Add(o.m.Tree.Index.ID(quota.FlavorResource{Flavor: f, Resource: name}), quotaworkload.StillNeeded(amount, p, object))
		}
		usage.AddAll(one.Usage)
		parts = append(parts, one)
	}
	return usage, parts
}

// adoptCoAdmissionGroup makes a stage a member of the co-admission group that its label names.
func (o *Observer) adoptCoAdmissionGroup(s *model.Stage, object *kueue.Workload) {
	id := object.Labels[apis.AdmitTogetherLabel]
	if id == "" {
		o.unbundle(s)
		return
	}
	size := coAdmissionGroupSize(object.Annotations[apis.AdmitTogetherCountAnnotation])
	if m := s.Membership; m == nil || m.CoAdmissionGroup.Id != id || m.Size != size {
		o.unbundle(s)
		// It no longer preempts.
		o.m.CancelReservation(s)
		b := o.m.CoAdmissionGroups[id]
		if b == nil {
			b = &model.CoAdmissionGroup{Id: id, Members: map[decision.StageKey]*model.Stage{}, Sizes: map[int]int{}, Topic: o.m.NewTopic()}
			o.m.CoAdmissionGroups[id] = b
		}
		s.Membership = &model.Membership{CoAdmissionGroup: b, Size: size}
		b.Members[s.Key] = s
		b.Sizes[size]++
		b.Counts[model.IsClosed]++
		o.m.Schedule.WakeCoAdmissionGroup(b)
		if s.QueuedIn != nil {
			// Until now it did not wait for the other members.
			o.m.Schedule.WakeQueue(s.QueuedIn)
		}
	}
	s.Membership.Born = bornAt(object)
}

// coAdmissionGroupSize parses the size of a group. It returns 0 for a text that is no valid size.
func coAdmissionGroupSize(text string) int {
	size, err := strconv.Atoi(text)
	if err != nil || size < 1 || size > model.MaxTogether {
		return 0
	}
	return size
}

// bornAt returns since when a quota Workload asks for quota. If its AdmissionChecks failed, it has not been admitted before.
func bornAt(object *kueue.Workload) time.Time {
	born := object.CreationTimestamp.Time
	if c := apimeta.FindStatusCondition(object.Status.Conditions, kueue.WorkloadEvicted); c != nil && c.Reason != kueue.WorkloadEvictedByAdmissionCheck && c.LastTransitionTime.After(born) {
		born = c.LastTransitionTime.Time
	}
	return born
}

// unbundle removes a stage from its co-admission group, if it has one.
func (o *Observer) unbundle(s *model.Stage) {
	m := s.Membership
	if m == nil {
		return
	}
	b := m.CoAdmissionGroup
	s.Membership = nil
	delete(b.Members, s.Key)
	b.Counts[m.MemberState]--
	if b.Sizes[m.Size]--; b.Sizes[m.Size] == 0 {
		delete(b.Sizes, m.Size)
	}
	if len(b.Members) == 0 {
		delete(o.m.CoAdmissionGroups, b.Id)
		delete(o.m.Stuck, b)
		return
	}
	o.m.Schedule.WakeCoAdmissionGroup(b)
	o.m.NoteIfStuck(b)
}

// dropEviction drops the decisions to evict a stage, and to give it notice, if it has released its quota before they were written. They do not apply to
// quota that the stage holds later.
func (o *Observer) dropEviction(s *model.Stage) {
	if s.Reservation != nil || s.Assumed != nil {
		return
	}
	if s.Evicting != 0 {
		delete(o.m.InFlight, s.Evicting)
		s.Evicting = 0
	}
	if id := s.Notice.Decision(); id != 0 {
		delete(o.m.InFlight, id)
		s.Notice.Settle()
	}
}
