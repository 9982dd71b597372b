// Package page has the files of the dashboard's page. They are built from src by `make page`, and committed.
package page

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Files returns the files by the paths at which they are served.
func Files() (fs.FS, error) { return fs.Sub(dist, "dist") }
