// Command payload is the program of the containers on a real node. Without flags it runs until it is asked to end (SIGTERM, SIGINT), which is
// all that the container of a pod sandbox does.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	flag.String("team", "", "a name by which tests find the process of the container among those of the machine")
	run := flag.Duration("run", 0, "end after this time; 0 means to run until it is asked to end")
	linger := flag.Duration("linger", 0, "go on for so long after it is asked to end")
	allocate := flag.Int("allocate", 0, "MiB of memory to fill")
	await := flag.String("await", "", "a file for which to wait at first")
	say := flag.String("say", "", "a line to print at first")
	flag.Parse()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	if *say != "" {
		fmt.Println(*say)
	}
	awaitFile(*await)
	memory := fill(*allocate)
	var end <-chan time.Time
	if *run > 0 {
		end = time.After(*run)
	}
	select {
	case <-end:
		return
	case <-asked:
		time.Sleep(*linger)
		fmt.Fprintln(os.Stderr, "payload: asked to end, with", len(memory), "bytes")
		os.Exit(143)
	}
}

// awaitFile returns when there is a file, or at once if its name is empty.
func awaitFile(name string) {
	for name != "" {
		if _, err := os.Stat(name); err == nil {
			fmt.Println("found", name)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// fill returns so many MiB of memory, each page of which has been written to.
func fill(mebibytes int) []byte {
	memory := make([]byte, mebibytes<<20)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	return memory
}
