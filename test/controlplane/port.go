package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// The range of the ports that programs listen on. The kernel gives connections ports from 32768 on, so that no connection takes a port
// between the check that the port is free and the start of the program that listens on it.
const (
	firstPort = 10000
	lastPort  = 32767
)

// portLocks are the locked files of the ports that this process has drawn. They are unlocked when the process ends.
var portLocks struct {
	sync.Mutex
	files []*os.File
}

// FreePort returns a port that nothing listens on, and that no other call returns while this process lives, in whichever process: a control plane
// that starts at the same time would otherwise draw it before anything listens, and its program would end, or answer in place of ours.
func FreePort() (int, error) {
	const tries = 100
	var last error
	for range tries {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if last = reservePort(port); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port from %d to %d: %w", firstPort, lastPort, last)
}

// reservePort locks the file of a port, and checks that nothing listens on the port.
func reservePort(port int) error {
	directory := filepath.Join(os.TempDir(), "tranche-ports")
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(directory, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		var listener net.Listener
		if listener, err = net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port))); err == nil {
			err = listener.Close()
		}
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("reserve port %d: %w", port, err)
	}
	portLocks.Lock()
	defer portLocks.Unlock()
	portLocks.files = append(portLocks.files, file)
	return nil
}
