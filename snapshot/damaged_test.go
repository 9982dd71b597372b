package snapshot_test

import (
	"bytes"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/snapshot"
)

// TestDamagedFiles: what is missing or damaged is a Gap, without a part of its objects, and all other kinds are complete.
func TestDamagedFiles(t *testing.T) {
	const again = "; copy it again, or take the snapshot again"
	for name, c := range map[string]struct {
		file   string
		change func(fstest.MapFS)
		want   string
	}{
		"a file is missing": {"nodes.jsonl", func(f fstest.MapFS) { delete(f, "nodes.jsonl") }, "nodes: nodes.jsonl is missing; copy all files of the snapshot, or take the snapshot again"},
		"a truncated file": {
			"nodes.jsonl", func(f fstest.MapFS) { f["nodes.jsonl"].Data = f["nodes.jsonl"].Data[:len(f["nodes.jsonl"].Data)-10] },
			"nodes: nodes.jsonl: line 2 ends early: the file is truncated" + again,
		},
		"missing lines": {
			"nodes.jsonl", func(f fstest.MapFS) { f["nodes.jsonl"].Data = slices.Concat(firstLine(f["nodes.jsonl"].Data)) }, "nodes: nodes.jsonl has 1 of 2 objects" + again,
		},
		"a damaged object": {
			"nodes.jsonl", func(f fstest.MapFS) { replace(f, "nodes.jsonl", `"kind"`, `"kind`) }, "nodes: nodes.jsonl line 1: decode Node: invalid character 'N' after object key" + again,
		},
		"an object of another kind": {
			"nodes.jsonl", func(f fstest.MapFS) { replace(f, "nodes.jsonl", `"kind":"Node"`, `"kind":"Pod"`) },
			"nodes: nodes.jsonl line 1: the object is a Pod of v1, must be a Node of v1" + again,
		},
		"no right to read a file": {"nodes.jsonl", nil, "nodes: nodes.jsonl: open nodes.jsonl: permission denied" + again},
		"no configuration": {
			"configuration.yaml", func(f fstest.MapFS) { delete(f, "configuration.yaml") },
			"configmaps: configuration.yaml is missing; copy all files of the snapshot, or take the snapshot again",
		},
		"a wrong configuration": {
			"configuration.yaml", func(f fstest.MapFS) {
				replace(f, "configuration.yaml", "stageAdmission: Safe", "stageAdmission: Unsafe")
			},
			`configmaps: configuration.yaml: stageAdmission: Unsupported value: "Unsafe": supported values: "Safe", "Reserve", "Greedy"` + again,
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole := anySnapshot(t)
			files := write(t, whole, nil)
			from := fs.FS(files)
			if c.change != nil {
				c.change(files)
			} else {
				from = deniedFS{files, c.file}
			}
			got, err := snapshot.ReadDir(from)
			if err != nil {
				t.Fatal(err)
			}
			gaps := got.Gaps[len(whole.Gaps):]
			if len(gaps) != 1 || gaps[0].String() != c.want {
				t.Errorf("%v, want one gap %q", gaps, c.want)
			}
			got.Gaps = whole.Gaps
			if c.file == "configuration.yaml" {
				whole.Configuration = nil
			} else {
				whole.Nodes = nil
			}
			if diff := cmp.Diff(text(t, whole), text(t, got)); diff != "" {
				t.Errorf("-written +read\n%s", diff)
			}
		})
	}
}

// A deniedFS has a file that the user may not open.
type deniedFS struct {
	fs.FS
	file string
}

// Open implements fs.FS.
func (d deniedFS) Open(name string) (fs.File, error) {
	if name == d.file {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return d.FS.Open(name)
}

// TestTruncatedArchive: an archive that is cut off has the kinds before the end of what is left, or nothing that can be answered about.
func TestTruncatedArchive(t *testing.T) {
	whole := anySnapshot(t)
	var archive bytes.Buffer
	if err := snapshot.Pack(&archive, write(t, whole, nil)); err != nil {
		t.Fatal(err)
	}
	const parts = 30
	refused, lacking := 0, map[int]bool{}
	for i := range parts {
		length := archive.Len() * i / parts
		got, err := snapshot.ReadStream("x.tar.gz", bytes.NewReader(archive.Bytes()[:length]))
		if err != nil {
			refused++
			if length > 2 && !strings.HasSuffix(err.Error(), "truncated or damaged; copy it again, or take the snapshot again") || !strings.Contains(err.Error(), "x.tar.gz") {
				t.Fatalf("%d of %d bytes: %v", length, archive.Len(), err)
			}
			continue
		}
		gaps := got.Gaps[len(whole.Gaps):]
		lacking[len(gaps)] = true
		for _, kind := range snapshot.Kinds() {
			has := 0
			for range got.Objects(kind) {
				has++
			}
			isLacked := slices.ContainsFunc(gaps, func(g snapshot.Gap) bool { return g.Resource == kind.FullResource() })
			if isLacked && has != 0 || !isLacked && has != 2 {
				t.Fatalf("%d of %d bytes: %d objects of %s, gaps %v", length, archive.Len(), has, kind.FullResource(), gaps)
			}
		}
	}
	if refused == 0 || len(lacking) < 3 {
		t.Errorf("%d of %d lengths are refused, others lack %v kinds", refused, parts, lacking)
	}
}

// TestDamagedArchive: if a byte has changed, nothing of an archive can be relied on.
func TestDamagedArchive(t *testing.T) {
	var archive bytes.Buffer
	if err := snapshot.Pack(&archive, write(t, anySnapshot(t), nil)); err != nil {
		t.Fatal(err)
	}
	archive.Bytes()[archive.Len()-8] ^= 1 // of the checksum
	_, err := snapshot.ReadStream("x.tar.gz", &archive)
	if err == nil || !strings.Contains(err.Error(), "the archive is truncated or damaged; copy it again, or take the snapshot again") {
		t.Errorf("the error is %v", err)
	}
}
