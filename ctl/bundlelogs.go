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

// logParts are the ends of the logs: of the agent if it logs to a file, of the dataplane, and of the files that the operator names.
func logParts(a agent, files []string) []part {
	parts := []part{
		{"agent.log", func(ctx context.Context) ([]byte, error) {
			path, err := agentLog(ctx, a.socket)
			if err != nil {
				return nil, err
			}
			return tail(path)
		}},
		{"dataplane.log", func(ctx context.Context) ([]byte, error) {
			s, err := settingsOf(ctx, a)
			if err != nil {
				return nil, err
			}
			if s.Dataplane.Type != "embedded" || s.Dataplane.Log == "" {
				return []byte("the agent starts no dataplane with a log file\n"), nil
			}
			return tail(s.Dataplane.Log)
		}},
	}
	for i, file := range files {
		parts = append(parts, part{fmt.Sprintf("log-%d-%s", i+1, filepath.Base(file)), func(context.Context) ([]byte, error) { return tail(file) }})
	}
	return parts
}

// agentLog returns the file that is the standard error of the process at the socket.
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
	err = raw.Control(func(fd uintptr) { peer, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, credErr); err != nil {
		return "", fmt.Errorf("log of the agent: %w", err)
	}
	path := fmt.Sprintf("/proc/%d/fd/2", peer.Pid)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", errors.New("log of the agent: it is no file on this machine; add the output of kubectl logs or journalctl, or name its file with --log")
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
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-maxLog), maxLog))
}
