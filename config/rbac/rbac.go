// Package rbac contains the roles that Tranche installs.
package rbac

import "embed"

// Files has the manifests.
//
//go:embed *.yaml
var Files embed.FS
