package model

// A Transfer is a change of the charges of a LocalQueue.
type Transfer struct {
	Queue       *LocalQueue
	Before, Now Entry
}

// transfer records a change for the accounts.
func (m *Model) transfer(before, now Entry) {
	if m.Decay == nil || !before.IsCharged() && !now.IsCharged() {
		return
	}
	if before.LocalQueue != nil && before.LocalQueue != now.LocalQueue {
		m.Transfers = append(m.Transfers, Transfer{Queue: before.LocalQueue, Before: before})
		before = Entry{}
	}
	if now.LocalQueue != nil {
		m.Transfers = append(m.Transfers, Transfer{Queue: now.LocalQueue, Before: before, Now: now})
	}
}
