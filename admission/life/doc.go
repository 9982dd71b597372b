// Package life leads quota Workloads through their life beside the engine: it makes their conditions and the rest of their status
// that belongs to admission, and computes from that and the time what comes next, from the AdmissionChecks between reservation and
// admission to eviction, deactivation and the way back into the queue. Who holds a Workload and its time calls it, the controllers
// on a cluster and the simulator on virtual time, and both write what it says:
//
//	Reserved -> checks Ready -> Admitted -> Evicted -> given back -> Requeued
package life
