package model

import "github.com/tranche-dev/tranche/admission/quota"

// An outstanding claim is the most that a JobSet in progress may come to hold, beside what it holds and what is reserved for it, before it releases quota.
type outstanding struct {
	claim quota.Usage
	in    *ClusterQueue
}

// OutstandingIn returns the outstanding claim of a JobSet, which may be nil, in a ClusterQueue.
func (j *JobSet) OutstandingIn(q *ClusterQueue) quota.Usage {
	if j == nil || j.outstanding.in != q {
		return nil
	}
	return j.outstanding.claim
}

// noteOutstanding must be called after the claim or the peak reservation of the JobSet has changed.
func (j *JobSet) noteOutstanding() {
	if q := j.outstanding.in; q != nil {
		q.Outstanding.Take(j.outstanding.claim)
	}
	j.outstanding = outstanding{}
	if j.Claim == nil {
		return
	}
	var most quota.Usage
	for _, peak := range j.Claim.Peaks {
		for _, more := range peak.Without(j.Claim.Held).Without(j.PeakReserved) {
			most.Add(more.ID, max(0, more.Amount.Minus(most.Of(more.ID))))
		}
	}
	if len(most) > 0 {
		j.outstanding = outstanding{most, j.ClaimQueue}
		j.ClaimQueue.Outstanding.Add(most)
	}
}
