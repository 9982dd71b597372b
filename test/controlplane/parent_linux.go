package controlplane

import "syscall"

// dieWithParent has the kernel kill a child as soon as the thread that started it ends. The child gets a process group of its
// own, so that an interrupt from the keyboard reaches this process only, which then stops the children in order.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
