package model

import "github.com/tranche-dev/tranche/admission/quota"

// An outstanding is the outstanding claim of a JobSet in a ClusterQueue: the most that it may come to hold before it releases quota, beside what it holds
// and what is reserved for it.
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
	if j.Claim != nil {
		j.outstanding = outstanding{j.Claim.Outstanding(j.PeakReserved), j.ClaimQueue}
		j.ClaimQueue.Outstanding.Add(j.outstanding.claim)
	}
}
