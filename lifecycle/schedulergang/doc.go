// Package schedulergang turns the gang configuration of a JobSet (KEP-1068) into the objects and pod fields that a scheduler needs to place gangs as a
// whole. It decides, and writes nothing.
//
//   - A gang is the pods that are placed all together or not at all.
//   - A PodGroupTemplate is the gangs that one gangMode asks for: one gang of the whole JobSet, one of a ReplicatedJob, or one of each of its Jobs.
//   - A GangSet is all PodGroupTemplates of a JobSet in one attempt. New makes it from the JobSet and its stage plan, or returns what must be changed.
//   - A Provider supports one scheduler: a GangSet goes in, objects and fields of pods come out. The same GangSet gives the same objects, so that
//     a controller that compares them with the existing objects can repair these.
//
// # Pod counts
//
// The gang of a Job has min(parallelism, completions) pods, since a Job never has more at once; that of a ReplicatedJob has them once
// for each of its replicas; that of a JobSet is the sum over its ReplicatedJobs. minCount is the number of all of them.
//
// # Names
//
// The name of a gang changes with each attempt: pods of the previous attempt that are still terminating are no members of the new gang, so that
// it is again placed all or nothing. Names are no longer than a label value. They end with their unique part; the readable part at the beginning is
// cut if necessary:
//
//	<JobSet>-all-r<restarts>-<uid>                              of the JobSet
//	<JobSet>-<ReplicatedJob>-<index>-r<restarts>-<uid>          of the ReplicatedJob with this index in the spec
//	<JobSet>-<ReplicatedJob>-<index>x<job>-r<restarts>-<uid>    of one of its Jobs, r<restarts>j<restarts of the Job> once it has been restarted by itself
//
// where uid is the first twelve digits of the UID of the JobSet. It distinguishes JobSets that have the same name one after the other, or
// names with the same beginning. All parts of a name are known from the labels of a child Job and the index of its ReplicatedJob.
//
// # User-created gangs
//
// A pod template that names a gang itself belongs to a user-created gang. It stays unchanged; see GangSet.UserGangs.
package schedulergang
