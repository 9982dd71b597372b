// Package check decides whether a stage may be admitted, and with which flavors and victims.
//
// A stage that is checked is a candidate. The checks are listed in check.go in the order in which they are reported to the owner of the stage. A
// check refuses the stage or adds to the candidate: the flavors that it would get, the stages to preempt first, the changes that make another check
// worthwhile. Checks change no charges: hypotheses are made in the quota tree and rolled back.
package check
