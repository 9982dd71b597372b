// Package policies contains the admission policies that Tranche installs only beside Kueue.
package policies

import "embed"

// Files has the manifests.
//
//go:embed *.yaml
var Files embed.FS
