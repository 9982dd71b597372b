// Package stageplan turns the spec of a JobSet into its stage plan: which ReplicatedJobs start together, their start conditions, and how
// much the JobSet can hold at once.
package stageplan

import (
	corev1 "k8s.io/api/core/v1"
)

// A Status is what a condition waits for.
type Status string

const (
	// Ready is reached when every Job of the targets is ready or has succeeded, and none has failed.
	Ready Status = "Ready"
	// Succeeded is reached when every Job of the targets has succeeded.
	Succeeded Status = "Succeeded"
)

// A Plan is the directed acyclic graph of the stages of one JobSet. The zero Plan has no stages. A Plan is immutable after New, so it may be
// shared.
type Plan struct {
	// Stages in an order in which each comes after all those that it waits for. The index of a stage is its position here.
	Stages []Stage
}

// A Stage is a set of ReplicatedJobs that start together, and are charged to quota together.
type Stage struct {
	// Name is unique in the plan and a valid label value: the name of the ReplicatedJob where there is only one.
	Name string
	// ReplicatedJobs of the stage, in the order of the JobSet's spec.
	ReplicatedJobs []string
	// PodSets has one entry for each of ReplicatedJobs, in the same order.
	PodSets []PodSet
	// After holds the conditions that open the stage: all of them together. A stage without any is open from the beginning.
	After []Condition
}

// A Condition is reached when all Targets, ReplicatedJobs of the earlier stage with index Stage, have the Status.
type Condition struct {
	Stage   int
	Targets []string
	Status  Status
}

// A PodSet is the pods of one ReplicatedJob: replicas × min(parallelism, completions) pods of the same shape.
type PodSet struct {
	// Name of the ReplicatedJob.
	Name string
	// Count of pods that can exist at once.
	Count int32
	// Requests of one pod as the scheduler counts them, with init containers, sidecars and overhead.
	Requests corev1.ResourceList
	// Template is the pod template of the ReplicatedJob. It is shared with the JobSet's spec and must not be changed.
	Template *corev1.PodTemplateSpec
}
