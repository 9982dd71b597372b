package snapshotfile_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
)

// TestProgressElsewhere: where no user waits for it, the progress is one line.
func TestProgressElsewhere(t *testing.T) {
	var out bytes.Buffer
	p := snapshotfile.NewProgress(&out)
	p.Report("nodes", 1, 1)
	p.Report("nodes", 2, 0)
	p.Report("pods", 0, 0)
	p.Report("jobs.batch", 40, 0)
	p.Finish()
	p.Finish()
	if want := "read 42 objects of 3 kinds\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestProgressOnTerminal reads two resources on terminals of several widths: one line that each bar overwrites and clears, or whole lines if a bar
// would not fit.
func TestProgressOnTerminal(t *testing.T) {
	const lines = "read 100000 workloads.kueue.x-k8s.io\r\nread 2 nodes\r\n"
	for width, hasBars := range map[uint16]bool{200: true, 80: true, 60: true, 59: false, 20: false, 0: true} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			shown := onTerminal(t, width, func(terminal *os.File) {
				p := snapshotfile.NewProgress(terminal)
				p.Report("workloads.kueue.x-k8s.io", 500, 99_500)
				p.Report("workloads.kueue.x-k8s.io", 99_500, 500)
				p.Report("workloads.kueue.x-k8s.io", 100_000, 0)
				p.Report("nodes", 2, 0)
				p.Finish()
			})
			if !hasBars {
				if shown != lines {
					t.Errorf("the terminal shows %q, want %q", shown, lines)
				}
				return
			}
			for _, want := range []string{`workloads +0% \|.*\| \(500/100000\)`, `nodes +0% \|.*\| \(0/2\)`, `workloads +99% \|█.*\| \(99500/100000\)`} {
				if !regexp.MustCompile(want).MatchString(shown) {
					t.Errorf("the terminal shows %q, want %s", shown, want)
				}
			}
			states := strings.Split(shown, "\r")
			if strings.Contains(shown, "\n") || strings.TrimSpace(states[len(states)-2])+states[len(states)-1] != "" {
				t.Errorf("the terminal shows %q, want one line that is empty at the end", shown)
			}
			for _, state := range states {
				if columns := len([]rune(state)); width > 0 && columns > int(width) {
					t.Errorf("%q has %d columns of %d", state, columns, width)
				}
			}
		})
	}
}

// onTerminal returns what a function writes to a new terminal.
func onTerminal(t *testing.T, width uint16, write func(terminal *os.File)) string {
	t.Helper()
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer controller.Close() //nolint:errcheck // nothing remains to be read
	fd := int(controller.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: width}); err != nil {
		t.Fatal(err)
	}
	shown := make(chan string)
	go func() {
		var text strings.Builder
		buffer := make([]byte, 1<<12)
		for { // the end of a terminal is an error, after everything was read
			n, err := controller.Read(buffer)
			text.Write(buffer[:n])
			if err != nil {
				shown <- text.String()
				return
			}
		}
	}()
	write(terminal)
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	return <-shown
}
