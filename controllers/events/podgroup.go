package events

import corev1 "k8s.io/api/core/v1"

// GangStatus reports the state of a gang on its PodGroup and pods. The topic is the action, so that another cause is a new Event and not
// counted as the same one.
func GangStatus(reason, topic, message string) Event {
	return Event{corev1.EventTypeNormal, reason, topic, message}
}

// GangWarning reports on a PodGroup and its pods what has to be changed before their gang can be admitted.
func GangWarning(reason, topic, message string) Event {
	return Event{corev1.EventTypeWarning, reason, topic, message}
}

// GangFinished reports on a PodGroup, or on pods, that their gang has finished and released its quota.
func GangFinished(message string) Event {
	return Event{corev1.EventTypeNormal, "GangFinished", "Finish", message}
}

// PodEvicted reports that a pod is deleted because its gang must release its quota. Its controller, if it has one, recreates it.
func PodEvicted(message string) Event {
	return Event{corev1.EventTypeWarning, "Evicted", "Evict", "Deleted because its gang was evicted: " + message}
}

// BarePodEvicted reports that a pod which no controller recreates is deleted because its gang must release its quota.
func BarePodEvicted(message string) Event {
	return Event{corev1.EventTypeWarning, "Evicted", "Evict", "Deleted because its gang was evicted; no controller will recreate it: " + message}
}
