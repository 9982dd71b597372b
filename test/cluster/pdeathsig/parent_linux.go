package main

import "syscall"

// dieWithParent has the kernel kill this process as soon as its parent ends, however that happens.
func dieWithParent() error {
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
