// Package crd contains the CustomResourceDefinitions that Tranche installs.
package crd

import "embed"

// Files has the manifests.
//
//go:embed *.yaml
var Files embed.FS
