// Package report answers questions about the state of the Engine: why a stage waits, what the status of a queue is, what is charged.
//
// Answers share no memory with the Engine, and asking changes no decision.
package report
