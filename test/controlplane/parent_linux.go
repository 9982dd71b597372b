package controlplane

import "syscall"

// dieWithParent has the kernel kill a child as soon as the thread that started it ends. The child gets a process group of its
// own, so that an interrupt from the keyboard reaches this process only, which then stops the children in order.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// canIsolate is true if isolate does something.
const canIsolate = true

// isolate has a child run in a PID namespace and a mount namespace of its own: when it ends, the kernel kills its descendants, and what they mounted is gone.
func isolate(child *syscall.SysProcAttr) {
	child.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
}
