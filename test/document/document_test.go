package document_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/test/document"
)

func TestBlocks(t *testing.T) {
	root := t.TempDir()
	content := "# Title\n```sh\n# a comment\nmake demo   # another\nhelm install \\\n  --set=a=b\n```\n1. step\n   ```yaml\n   a: 1\n   ---\n   b: 2\n   ```\n"
	if err := os.WriteFile(filepath.Join(root, "README.md"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "docs"), 0o700); err != nil {
		t.Fatal(err)
	}
	blocks, err := document.Blocks(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []document.Block{
		{File: "README.md", Line: 3, Language: "sh", Text: "# a comment\nmake demo   # another\nhelm install \\\n  --set=a=b\n"},
		{File: "README.md", Line: 10, Language: "yaml", Text: "a: 1\n---\nb: 2\n"},
	}
	if diff := cmp.Diff(want, blocks); diff != "" {
		t.Fatalf("blocks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"make demo", "helm install --set=a=b"}, blocks[0].Commands()); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a: 1", "b: 2\n"}, blocks[1].Objects()); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}
