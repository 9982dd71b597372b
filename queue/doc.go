// Package queue orders the pending stages of a ClusterQueue: it determines the next stage, and which stages are parked until a change or
// blocked by another stage. It knows nothing of quota: a stage is parked on topics of any type.
package queue
