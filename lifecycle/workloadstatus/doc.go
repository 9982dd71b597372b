// Package workloadstatus computes the status and lifecycle of quota Workloads apart from the decisions of the engine: it makes their conditions and the
// rest of their status that belongs to admission, and computes from that and the time the next step: AdmissionChecks between reservation and
// admission, eviction, deactivation and requeueing. The controllers on a cluster and the simulator on virtual time call it, and write its
// result:
//
//	Reserved -> checks Ready -> Admitted -> Evicted -> quota released -> Requeued
package workloadstatus
