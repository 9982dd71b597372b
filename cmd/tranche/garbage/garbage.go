// Package garbage sets how much garbage a process collects at a time.
package garbage

import (
	"os"
	"runtime/debug"
)

// Let lets the heap grow by so many per cent of what is in use before garbage is collected, unless the environment variable GOGC says how far. The default of
// Go is 100: less saves memory, and more saves time.
func Let(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
