package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// localParts are facts of the machine and the ends of logs: of the agent if it logs to a file, and of the files that
// the operator names.
func localParts(a agent, files []string) []part {
	parts := []part{
		{"machine.txt", machine},
		{"agent.log", func(ctx context.Context) ([]byte, error) {
			path, err := agentLog(ctx, a.socket)
			if err != nil {
				return nil, err
			}
			if path == "" {
				return []byte(
					"the agent's log is not a file on this machine: see kubectl logs or journalctl, or name its file with --log\n"), nil
			}
			return tail(path)
		}},
	}
	for i, file := range files {
		parts = append(parts, part{
			fmt.Sprintf("log-%d-%s", i+1, filepath.Base(file)),
			func(context.Context) ([]byte, error) { return tail(file) },
		})
	}
	return parts
}

// dataplaneLog returns the end of the log of a dataplane that the agent starts.
func dataplaneLog(ctx context.Context, a agent) ([]byte, error) {
	s, err := settingsOf(ctx, a)
	if err != nil {
		return nil, err
	}
	if s.Dataplane.Type != "embedded" || s.Dataplane.Log == "" {
		return []byte("the agent starts no dataplane with a log file\n"), nil
	}
	return tail(s.Dataplane.Log)
}

// agentLog returns the file that is the standard error of the process at the socket, or "" if it is no file.
func agentLog(ctx context.Context, socket string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return "", fmt.Errorf("log of the agent: %w", err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return "", fmt.Errorf("log of the agent: %w", err)
	}
	var peer *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		peer, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return "", fmt.Errorf("log of the agent: %w", err)
	}
	path := fmt.Sprintf("/proc/%d/fd/2", peer.Pid)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", nil
	}
	return path, nil
}

// tail returns the last maxLog bytes of a regular file.
func tail(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-maxLog), maxLog))
}
