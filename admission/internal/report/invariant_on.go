//go:build invariants

package report

const verifies = true
