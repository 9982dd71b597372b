package events

import corev1 "k8s.io/api/core/v1"

// GangNews tells the owner of a PodGroup and of its pods how their gang stands. The topic is the action, so that another cause is told anew
// and not counted as the same Event once more.
func GangNews(reason, topic, message string) Event {
	return Event{corev1.EventTypeNormal, reason, topic, message}
}

// GangWarning tells the owner of a PodGroup and of its pods what has to be changed before their gang can be admitted.
func GangWarning(reason, topic, message string) Event {
	return Event{corev1.EventTypeWarning, reason, topic, message}
}

// GangFinished tells the owner of a PodGroup, or of pods, that their gang has given its quota back for good.
func GangFinished(message string) Event {
	return Event{corev1.EventTypeNormal, "GangFinished", "Finish", message}
}

// PodEvicted tells the owner of a pod that it is deleted, because its gang has to give back its quota. Its controller, if it has one, creates it again.
func PodEvicted(message string) Event {
	return Event{corev1.EventTypeWarning, "Evicted", "Evict", "Deleted because its gang is evicted: " + message}
}

// BarePodEvicted tells the owner of a pod, which nobody makes anew, that it is deleted because its gang has to give back its quota.
func BarePodEvicted(message string) Event {
	return Event{corev1.EventTypeWarning, "Evicted", "Evict", "Deleted because its gang is evicted, and no controller creates it again: " + message}
}
