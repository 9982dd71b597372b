package snapshotfile

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/tranche-dev/tranche/snapshot"
)

// readMemory is the memory up to which garbage of the decoder is kept while a snapshot is read. 100,000 quota Workloads need 550 MiB.
const readMemory = 900 << 20

// Read reads a snapshot or manifests from a directory, a file, or standard input if the path is Stream.
func Read(path string, stdin io.Reader) (*snapshot.Snapshot, error) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(readMemory))
	if path == Stream {
		return snapshot.ReadStream("standard input", stdin)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		s, err := snapshot.ReadDir(os.DirFS(path))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return s, nil
	}
	file, err := os.Open(path) // #nosec G304 -- the user names the file
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // the file is only read
	return snapshot.ReadStream(path, file)
}
