// Package podgroup reads which pods belong together, and what they and their PodGroup ask for. Package podgang decides on that basis.
//
//   - A Ref names a gang: its Kind, which is the way in which its pods name it, its namespace and its name.
//   - An Object is a PodGroup, of any API.
//   - A Gang is the pods of a Ref with what they and their PodGroup ask for. What cannot be granted is a problem, reported to its user.
//   - A Status is the status of a PodGroup that follows from its pods.
//
// A pod is gated until quota pays for it. It waits while it is gated and may still start, and is active from when it is ungated until it terminates.
package podgroup
