package events

import "time"

// JobStarted reports that a queued Job may run.
func JobStarted(queue string) Event {
	return normal("Started", "Release", "Released the Job, which is admitted in ClusterQueue %q", queue)
}

// JobAwaitsPods reports that an admitted Job waits for the end of its previous run.
func JobAwaitsPods() Event {
	return normal("AwaitsPods", "Hold", "The Job is admitted, and starts when the pods of its previous run have terminated: they use its quota")
}

// JobAdopted reports that a Job which ran before Tranche was installed is charged.
func JobAdopted(queue string) Event {
	return normal("Adopted", "Admit", "Charged the Job, which ran before Tranche was installed, to ClusterQueue %q; it runs on", queue)
}

// JobSetAdopted reports that a JobSet which ran before Tranche was installed is charged.
func JobSetAdopted(queue string) Event {
	return normal("Adopted", "Admit", "Charged the JobSet, which ran before Tranche was installed, to ClusterQueue %q; it runs on", queue)
}

// AdoptedRequeued reports that a JobSet which ran before Tranche was installed was suspended to be queued again.
func AdoptedRequeued(why string) Event {
	return normal("Stopped", "Hold", "Suspended the JobSet, which is queued again when its pods have terminated: %s", why)
}

// AdoptedStopped reports that a JobSet which ran before Tranche was installed was suspended until its user resumes it.
func AdoptedStopped(why string) Event {
	return normal("Stopped", "Hold", "Suspended the JobSet: %s; to queue it again, set spec.suspend to false", why)
}

// JobStopped reports that a queued Job was suspended.
func JobStopped(why string) Event { return normal("Stopped", "Hold", "Suspended the Job: %s", why) }

// JobRequeued reports that an evicted Job has released its quota.
func JobRequeued(message string) Event {
	return normal("Requeued", "Requeue", "The Job released its quota, and continues when it is admitted again: %s", message)
}

// JobSuspended reports that a Job has released its quota because its user has suspended it.
func JobSuspended() Event {
	return normal("Suspended", "Hold", "The Job released its quota: it is suspended by its user; set spec.suspend to false to queue again")
}

// JobFinished reports that a queued Job has finished and released its quota.
func JobFinished(outcome string) Event {
	return normal("FinishedWorkload", "Finish", "The Job has finished and released its quota: %s", outcome)
}

// JobDeleted reports that a Job was deleted because its quota Workload was deactivated for too long.
func JobDeleted(workload string, after time.Duration) Event {
	return warning("Deleted", "Delete", "Deleted the Job %s after its quota Workload %q was deactivated (objectRetentionPolicies.workloads.afterDeactivatedByKueue)", after, workload)
}

// JobGrows reports that an elastic Job queues for more pods.
func JobGrows(pods int32) Event {
	return normal("Grows", "Queue", "The Job queues for %s, and its current pods keep running", count(int(pods), "more pod"))
}

// JobResized reports that an elastic Job now has as many pods as there is admitted quota for.
func JobResized(pods int32) Event {
	return normal("Resized", "Resize", "Resized the Job to %s, which its admitted quota pays for", count(int(pods), "pod"))
}
