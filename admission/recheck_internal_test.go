package admission

// RecheckAll makes the next call of Decide check all pending stages again.
func (e *Engine) RecheckAll() {
	for _, q := range e.model.ClusterQueues {
		if q.CohortTree != nil {
			e.model.Schedule.WakeQueue(q)
		}
	}
}
