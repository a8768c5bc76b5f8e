package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// workerThreads is the name prefix of weft-vswitch's forwarding threads.
const workerThreads = "weft_wk_"

// leaveLastProcessor pins this process and its children to all processors but the last.
func leaveLastProcessor() error {
	last := runtime.NumCPU() - 1
	if last == 0 {
		return errors.New("the machine has one processor only")
	}
	var others unix.CPUSet
	for cpu := range last {
		others.Set(cpu)
	}
	_, err := placeThreads(os.Getpid(), "", &others)
	return err
}

// giveLastProcessor pins the workers of a dataplane to the machine's last processor.
func giveLastProcessor(dataplane int) error {
	var last unix.CPUSet
	last.Set(runtime.NumCPU() - 1)
	n, err := placeThreads(dataplane, workerThreads, &last)
	if err == nil && n == 0 { // older versions do not name their threads
		_, err = placeThreads(dataplane, "", &last)
	}
	return err
}

// placeThreads pins the process's threads with the name prefix, and threads that those create later. It returns the
// number of threads found.
func placeThreads(pid int, prefix string, set *unix.CPUSet) (n int, err error) {
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		return 0, err
	}
	for _, file := range names {
		name, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(name), prefix) {
			continue // the thread has ended or has another name
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return n, err
		}
		if err := unix.SchedSetaffinity(id, set); err != nil {
			return n, fmt.Errorf("pin thread %d: %w", id, err)
		}
		n++
	}
	return n, nil
}
