// Command pdeathsig runs a binary of the test control plane so that the kernel kills it when the process that started it ends (prctl
// PR_SET_PDEATHSIG).
//
// It is called through a symbolic link named after the binary: the link kube-apiserver runs the kube-apiserver that lies
// beside pdeathsig itself. Before it becomes that binary it asks the kernel to be killed together with its parent, and writes
// its process id to the link's path plus ".pid".
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

func main() {
	// The request to die with the parent belongs to the thread that makes it, and exec keeps the calling thread only.
	runtime.LockOSThread()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "pdeathsig:", err)
		os.Exit(1)
	}
}

func run() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find pdeathsig: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return fmt.Errorf("find pdeathsig: %w", err)
	}
	parent := os.Getppid()
	if err := dieWithParent(); err != nil {
		return fmt.Errorf("ask to die with process %d: %w", parent, err)
	}
	if os.Getppid() != parent {
		return fmt.Errorf("process %d ended before its child asked to die with it", parent)
	}
	if err := writePID(os.Args[0] + ".pid"); err != nil {
		return err
	}
	target := filepath.Join(filepath.Dir(self), filepath.Base(os.Args[0]))
	args := append([]string{target}, os.Args[1:]...)
	if err := syscall.Exec(target, args, os.Environ()); err != nil {
		return fmt.Errorf("run %s: %w", target, err)
	}
	return nil
}

// writePID replaces the file in one step, so that a reader never sees half a number.
func writePID(path string) error {
	pid := strconv.Itoa(os.Getpid())
	if err := os.WriteFile(path+"."+pid, []byte(pid), 0o600); err != nil {
		return fmt.Errorf("write process id: %w", err)
	}
	if err := os.Rename(path+"."+pid, path); err != nil {
		return fmt.Errorf("write process id: %w", err)
	}
	return nil
}
