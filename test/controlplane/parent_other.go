//go:build !linux

package controlplane

import "syscall"

// dieWithParent cannot tie the life of a child to this process where the kernel is not Linux: there only Stop ends it.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// canIsolate is false: there are no namespaces of processes and mounts where the kernel is not Linux.
const canIsolate = false

// isolate does nothing.
func isolate(*syscall.SysProcAttr) {}
