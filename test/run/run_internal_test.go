package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/test/progress"
)

func TestMissing(t *testing.T) {
	jobs := []job{{pkg: "./test/e2e"}, {pkg: "./test/e2e/gang"}}
	got := missingIn(jobs, []string{"example.com/a/test/e2e", "example.com/a/test/e2e/gang", "example.com/a/test/e2e/new", "example.com/a/test/kueue"})
	if diff := cmp.Diff([]string{"example.com/a/test/e2e/new", "example.com/a/test/kueue"}, got); diff != "" {
		t.Errorf("missingIn(): -want +got\n%s", diff)
	}
}

// The suite of a directory and that of a directory below it are two.
func TestProgress(t *testing.T) {
	var printed bytes.Buffer
	b, err := newBoard(&printed)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	t.Setenv(progress.FileVariable, b.file)
	for _, pkg := range []string{"./test/e2e", "./test/e2e/gang", "./test/install"} {
		b.begin(job{pkg: pkg})
	}
	file, err := os.OpenFile(b.file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // the test reads it by name
	for _, text := range []string{
		`{"package":"/somewhere/test/e2e","specs":3}` + "\n" + `{"package":"/somewhere/test/e2e","spec":"a","seconds":2.6}` + "\n",
		`{"package":"/somewhere/test/e2e/gang","specs":7}` + "\n" + `{"package":"/somewhere/test/e2e","spec":"b","seconds":7,"fai`,
		`led":true}` + "\n",
	} {
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		b.update()
	}
	b.began = time.Now()
	for _, s := range b.running {
		s.began = b.began
	}
	want := "1m20s | test/e2e: 2 of 3 specs, 1 failed, 1m20s | test/e2e/gang: 0 of 7 specs, 1m20s | test/install, 1m20s"
	if got := b.line(b.began.Add(80 * time.Second)); got != want {
		t.Errorf("line() = %q, want %q", got, want)
	}
	b.printSlowest()
	if diff := cmp.Diff("   7 s  e2e: b\n   3 s  e2e: a\n", printed.String()); diff != "" {
		t.Errorf("printSlowest(): -want +got\n%s", diff)
	}
}

// A job that fails prints its output, and is named by the error; the others run.
func TestFailure(t *testing.T) {
	b, err := newBoard(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	err = b.run(t.Context(), job{pkg: "./" + filepath.Join("nothing", "here")}, "")
	if err == nil || len(b.running) > 0 {
		t.Errorf("run() = %v with %d jobs left, want an error and none", err, len(b.running))
	}
}
