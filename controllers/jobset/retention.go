package jobset

import "slices"

// expire deletes the quota Workloads of a finished JobSet when they have been finished for as long as the configuration says. It is not
// begun before the JobSet has finished: until then they say which stages have succeeded, and would be made again.
func (w *wanted) expire(s *seen, stages []stage) {
	if s.retention == nil {
		return
	}
	for i := range stages {
		workload := stages[i].workload
		if workload == nil || stages[i].hasPods || !workload.DeletionTimestamp.IsZero() || slices.Contains(w.drop, workload) {
			continue
		}
		finished := finishedAt(workload)
		if finished == nil {
			continue
		}
		left := finished.Add(s.retention.Duration).Sub(s.now)
		switch {
		case left <= 0:
			w.drop = append(w.drop, workload)
		case w.again == 0 || left < w.again:
			w.again = left
		}
	}
}
