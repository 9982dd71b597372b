package snapshotfile

import (
	"fmt"
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A Progress shows how many objects were read: a bar for each resource on a terminal, else a line for each resource.
type Progress struct {
	out        io.Writer
	isTerminal bool
	resource   string
	read       int64
	bar        *progressbar.ProgressBar
}

// NewProgress returns a Progress without resources.
func NewProgress(out io.Writer) *Progress {
	file, isFile := out.(*os.File)
	return &Progress{out: out, isTerminal: isFile && term.IsTerminal(int(file.Fd()))}
}

// Report shows the number of objects of a resource, and an estimate of how many remain. Errors of the terminal are no errors of the command.
func (p *Progress) Report(resource string, read, remaining int64) {
	if resource != p.resource {
		p.Finish()
		p.resource = resource
		if p.isTerminal {
			p.bar = progressbar.NewOptions64(read+remaining, progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(resource),
				progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))
		}
	}
	p.read = read
	if p.bar != nil {
		p.bar.ChangeMax64(read + remaining)
		_ = p.bar.Set64(read)
	}
}

// Finish ends the resource.
func (p *Progress) Finish() {
	switch {
	case p.resource == "":
	case p.bar != nil:
		_ = p.bar.Finish()
	default:
		_, _ = fmt.Fprintf(p.out, "read %d %s\n", p.read, p.resource)
	}
	p.resource, p.bar = "", nil
}
