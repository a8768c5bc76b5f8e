package leftovers

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// goodbye is the timeout for the peer to close its end of a connection.
const goodbye = 20 * time.Second

// converse calls talk, which connects to the socket at path, and waits until the peer has closed its end too. Otherwise
// the next snapshot would count the peer's descriptor.
func converse(ctx context.Context, path string, talk func() error) error {
	before, err := connected(path)
	if err != nil {
		return err
	}
	if err := talk(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, goodbye)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		now, err := connected(path)
		if err != nil || isSubset(now, before) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil // another client connected
		}
	}
}

// connected returns the inodes of the server's connections at the socket path. Programs bind the socket under a
// temporary name with path as prefix, and rename it.
func connected(path string) (map[string]bool, error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("read connections: %w", err)
	}
	defer f.Close()
	const established = "03"
	inodes := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 8 && fields[5] == established && strings.HasPrefix(fields[7], path) {
			inodes[fields[6]] = true
		}
	}
	return inodes, nil
}

// isSubset reports whether few is a subset of many. A comparison of numbers would miss a new connection if another one
// closes.
func isSubset(few, many map[string]bool) bool {
	for inode := range few {
		if !many[inode] {
			return false
		}
	}
	return true
}
