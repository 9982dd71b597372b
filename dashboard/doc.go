// Package dashboard answers the questions of a page about queues and JobSets: what a ClusterQueue and a Cohort hold, which quota Workloads wait in
// which order and why, and what each stage of a JobSet did and waits for.
//
// A Model keeps the few facts of each object that the answers need, and changes with each observed object: no answer reads all objects again.
// Answers about lists come in pages. A Viewer limits them to what its reader may see: objects of other namespaces are counted and not named.
package dashboard
