// Package version tells observations of one object apart, and remembers deleted objects.
package version
