// Package main stands in for the program of a release: it prints its version.
package main

import (
	"fmt"

	"golang.org/x/mod/semver"
)

var version string

func main() { fmt.Println(version, semver.IsValid(version)) }
