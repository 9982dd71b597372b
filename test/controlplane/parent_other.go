//go:build !linux

package controlplane

import "syscall"

// dieWithParent cannot tie the life of a child to this process where the kernel is not Linux: there only Stop ends it.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
