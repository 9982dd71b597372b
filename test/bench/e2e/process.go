package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// A usage is what a process has used since it began.
type usage struct {
	cpu time.Duration
	// resident and peak are bytes of memory, now and at most.
	resident, peak int64
}

// readUsage reads the usage of a process from the kernel.
func readUsage(pid int) (usage, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}, fmt.Errorf("read usage of process %d: %w", pid, err)
	}
	stat, err1 := process.Stat()
	status, err2 := process.NewStatus()
	if err := errors.Join(err1, err2); err != nil {
		return usage{}, fmt.Errorf("read usage of process %d: %w", pid, err)
	}
	return usage{cpu: inSeconds(stat.CPUTime()), resident: int64(status.VmRSS), peak: int64(status.VmHWM)}, nil
}

// busy is how much time all processes of the machine have taken from its processors, since it began. cores is how many there are.
func busy() (spent time.Duration, cores int, err error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, 0, fmt.Errorf("read usage of the machine: %w", err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0, 0, fmt.Errorf("read usage of the machine: %w", err)
	}
	// Time that the host has stolen is lost to us, too.
	c := stat.CPUTotal
	return inSeconds(c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal), len(stat.CPU), nil
}

func inSeconds(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
