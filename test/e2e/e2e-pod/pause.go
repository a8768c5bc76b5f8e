package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"
)

// pause waits for SIGTERM. It is the first process of a PID namespace, so it reaps orphans.
func pause(io.Writer, []string) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return nil
		}
		reap()
	}
	return nil
}

func reap() {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
			return
		}
	}
}
