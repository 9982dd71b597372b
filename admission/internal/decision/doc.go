// Package decision has what an Engine decides: to admit a stage, to evict it, or to refuse it, and why.
package decision
