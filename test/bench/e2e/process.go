package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit in which the kernel counts the time of processes, on every platform that Go runs on.
const ticksPerSecond = 100

// A usage is what a process has used since it began.
type usage struct {
	cpu time.Duration
	// resident and peak are bytes of memory, now and at most.
	resident, peak int64
}

// readUsage reads the usage of a process from the kernel.
func readUsage(pid int) (usage, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return usage{}, fmt.Errorf("read usage of process %d: %w", pid, err)
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return usage{}, fmt.Errorf("read usage of process %d: %w", pid, err)
	}
	u, err := parseUsage(string(stat), string(status))
	if err != nil {
		return usage{}, fmt.Errorf("read usage of process %d: %w", pid, err)
	}
	return u, nil
}

// parseUsage reads /proc/PID/stat and /proc/PID/status; proc(5) describes both.
func parseUsage(stat, status string) (usage, error) {
	// The second field is the name of the program, which may hold anything, in parentheses.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const userField, systemField = 14 - 3, 15 - 3
	if len(fields) <= systemField {
		return usage{}, fmt.Errorf("parse stat: only %d fields", len(fields))
	}
	user, err1 := strconv.ParseInt(fields[userField], 10, 64)
	system, err2 := strconv.ParseInt(fields[systemField], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return usage{}, fmt.Errorf("parse stat: %w", err)
	}
	u := usage{cpu: time.Duration(user+system) * time.Second / ticksPerSecond}
	if u.peak, err1 = statusBytes(status, "VmHWM"); err1 == nil {
		u.resident, err1 = statusBytes(status, "VmRSS")
	}
	if err1 != nil {
		return usage{}, fmt.Errorf("parse status: %w", err1)
	}
	return u, nil
}

// statusBytes returns an amount of memory in /proc/PID/status.
func statusBytes(status, name string) (int64, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no %s", name)
}

// findChild finds the process that this one has started with this text among its arguments.
func findChild(text string) (int, error) {
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return 0, err
	}
	for _, task := range tasks {
		children, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for child := range strings.FieldsSeq(string(children)) {
			arguments, err := os.ReadFile(filepath.Join("/proc", child, "cmdline"))
			if err == nil && bytes.Contains(arguments, []byte(text)) {
				return strconv.Atoi(child)
			}
		}
	}
	return 0, fmt.Errorf("find the child process with %s: there is none", text)
}

// busy is how much time all processes of the machine have taken from its processors, since it began. cores is how many there are.
func busy() (spent time.Duration, cores int, err error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("read usage of the machine: %w", err)
	}
	return parseBusy(string(stat))
}

// parseBusy reads /proc/stat; proc(5) describes it.
func parseBusy(stat string) (spent time.Duration, cores int, err error) {
	for line := range strings.Lines(stat) {
		fields := strings.Fields(line)
		if len(fields) < 9 || !strings.HasPrefix(fields[0], "cpu") {
			continue
		}
		if fields[0] != "cpu" {
			cores++
			continue
		}
		// user nice system idle iowait irq softirq steal: time stolen by the host is lost to us, too
		for i, field := range fields[1:9] {
			ticks, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, 0, fmt.Errorf("parse usage of the machine: %w", err)
			}
			if i != 3 && i != 4 {
				spent += time.Duration(ticks) * time.Second / ticksPerSecond
			}
		}
	}
	if cores == 0 {
		return 0, 0, errors.New("parse usage of the machine: no processors")
	}
	return spent, cores, nil
}
