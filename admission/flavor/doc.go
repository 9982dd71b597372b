// Package flavor answers which ResourceFlavors a set of pods may use, and in which combinations.
package flavor
