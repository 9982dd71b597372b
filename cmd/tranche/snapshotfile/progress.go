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

// A Progress shows how many objects were read: a bar for each resource on a terminal that is wide enough, else a line for each resource.
type Progress struct {
	out      io.Writer
	hasBars  bool
	resource string
	read     int64
	bar      *progressbar.ProgressBar
}

// NewProgress returns a Progress without resources.
func NewProgress(out io.Writer) *Progress {
	return &Progress{out: out, hasBars: fitsBar(out)}
}

// fitsBar reports whether a bar fits into one line of a terminal. Terminals that do not know their width have 0 columns.
func fitsBar(out io.Writer) bool {
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return false
	}
	width, _, err := term.GetSize(int(file.Fd()))
	return err == nil && (width == 0 || width >= minWidth)
}

// Report shows the number of objects of a resource, and an estimate of how many remain. Errors of the terminal are no errors of the command.
func (p *Progress) Report(resource string, read, remaining int64) {
	if resource != p.resource {
		p.Finish()
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
