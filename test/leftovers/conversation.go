package leftovers

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// goodbye is how long the other side of a connection may take to close its end.
const goodbye = 20 * time.Second

// converse does what needs a connection to the socket at path, and waits until the other side has closed its end too: it
// must not be taken for something that is there when the next look counts descriptors.
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

// connected are the inodes of the connections that who listens on the socket at path has. Programs bind it under another name,
// which begins with this one, and rename it.
func connected(path string) (map[string]bool, error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("look at connections: %w", err)
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

// isSubset says whether all that are in few are in many. Numbers would not do: while one that was there before goes, it would
// hide that a new one stays.
func isSubset(few, many map[string]bool) bool {
	for inode := range few {
		if !many[inode] {
			return false
		}
	}
	return true
}
