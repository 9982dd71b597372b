// Package gang turns the gang configuration of a JobSet (KEP-1068) into what a scheduler needs to place gangs whole: objects, and
// fields of pods. It decides, and writes nothing.
//
//   - A gang is the pods that are placed all together or not at all.
//   - A Group is the gangs that one gangMode asks for: one gang of the whole JobSet, one of a ReplicatedJob, or one of each of its Jobs.
//   - A Shape is all groups of a JobSet in one attempt. New makes it from the JobSet and its stage plan, or says what must be changed.
//   - A Provider knows one scheduler: a Shape goes in, objects and fields of pods come out. The same Shape gives the same objects, so that
//     who compares them with what is there knows what to repair.
//
// # What is counted
//
// The gang of a Job has min(parallelism, completions) pods, since a Job never has more at once; that of a ReplicatedJob has them once
// for each of its replicas; that of a JobSet is the sum over its ReplicatedJobs. All of them are asked for: minCount is their number.
//
// # Names
//
// The name of a gang changes with each attempt: pods of the attempt before, which are still ending, are no members of the new gang, so
// that this is all or nothing again. Names are no longer than a label value. What makes them unique is at their end, and what had to be cut is the
// beginning, which is there to be read:
//
//	<JobSet>-all-r<restarts>-<uid>                              of the JobSet
//	<JobSet>-<ReplicatedJob>-<index>-r<restarts>-<uid>          of the ReplicatedJob with this index in the spec
//	<JobSet>-<ReplicatedJob>-<index>x<job>-r<restarts>-<uid>    of one of its Jobs, r<restarts>j<restarts of the Job> once it has been restarted by itself
//
// where uid is the first twelve digits of the UID of the JobSet. It tells JobSets apart that have the same name one after the other, or
// names that begin alike. Everything in a name is known from the labels of a child Job and the place of its ReplicatedJob.
//
// # What is not asked for
//
// A pod template that names a gang itself belongs to a gang of its user, who has made its objects. It is left as it is; see Shape.Own.
package gang
