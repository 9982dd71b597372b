//go:build !linux

package main

// dieWithParent does nothing: only Linux ties the life of a process to its parent's. Elsewhere an orderly Stop ends it.
func dieWithParent() error { return nil }
