package snapshotfile

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// minWidth is the width of a terminal, in columns, into which the text beside a bar fits.
const minWidth = 60

// A Progress shows how many objects were read: a bar for each resource on a terminal that is wide enough, or a line for each resource on another terminal.
// Elsewhere it shows one line at the end.
type Progress struct {
	out              io.Writer
	isShown, hasBars bool
	resource         string
	read             int64
	bar              *progressbar.ProgressBar
	// objects and resources are those that were read in all.
	objects, resources int64
}

// NewProgress returns a Progress without resources.
func NewProgress(out io.Writer) *Progress {
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return &Progress{out: out}
	}
	return &Progress{out: out, isShown: true, hasBars: fitsBar(file)}
}

// fitsBar reports whether a bar fits into one line of a terminal. Terminals that do not know their width have 0 columns.
func fitsBar(terminal *os.File) bool {
	width, _, err := term.GetSize(int(terminal.Fd()))
	return err == nil && (width == 0 || width >= minWidth)
}

// Report shows the number of objects of a resource, and an estimate of how many remain. Errors of the terminal are no errors of the command.
func (p *Progress) Report(resource string, read, remaining int64) {
	if resource != p.resource {
		p.endResource()
		p.resource = resource
		if p.hasBars {
			name, _, _ := strings.Cut(resource, ".")
			p.bar = progressbar.NewOptions64(read+remaining, progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(name),
				progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))
		}
	}
	p.read = read
	if p.bar != nil {
		p.bar.ChangeMax64(read + remaining)
		_ = p.bar.Set64(read)
	}
}

// endResource ends the resource, if there is one.
func (p *Progress) endResource() {
	switch {
	case p.resource == "":
		return
	case p.bar != nil:
		_ = p.bar.Finish()
	case p.isShown:
		_, _ = fmt.Fprintf(p.out, "read %d %s\n", p.read, p.resource)
	}
	p.objects, p.resources = p.objects+p.read, p.resources+1
	p.resource, p.bar = "", nil
}

// Finish ends the last resource.
func (p *Progress) Finish() {
	p.endResource()
	if !p.isShown && p.resources > 0 {
		_, _ = fmt.Fprintf(p.out, "read %d objects of %d kinds\n", p.objects, p.resources)
	}
	p.objects, p.resources = 0, 0
}
