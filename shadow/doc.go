// Package shadow reports what a cluster would gain from stages. A Recorder folds the objects of a cluster into what happened: when JobSets arrived, how
// long each of their Jobs took, and what quota they held meanwhile. A Report compares that with two replays of the same arrivals: with each JobSet
// admitted as a whole, as Kueue does, and in stages, as Tranche does. The difference between the replays is the gain. The difference between the first
// replay and what happened is the error of the simulation.
package shadow
