//go:build !invariants

package report

const verifies = false
