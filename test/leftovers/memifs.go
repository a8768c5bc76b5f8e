package leftovers

import (
	"context"
	"fmt"
	"strings"

	"go.fd.io/govpp/binapi/memif"
)

// addMemifs records memifs and their sockets.
func (s *Snapshot) addMemifs(ctx context.Context, d *dataplane) error {
	rpc := memif.NewServiceClient(d)
	sockets, err := rpc.MemifSocketFilenameDump(ctx, &memif.MemifSocketFilenameDump{})
	err = each(sockets, err, func(f *memif.MemifSocketFilenameDetails) {
		s.add("memif-socket", "dataplane", "%d %s", f.SocketID, strings.TrimRight(f.SocketFilename, "\x00"))
	})
	if err != nil {
		return fmt.Errorf("list sockets of memifs: %w", err)
	}
	stream, err := rpc.MemifDump(ctx, &memif.MemifDump{})
	err = each(stream, err, func(m *memif.MemifDetails) {
		s.add("memif", "dataplane", "%s %d of socket %d %s %s", d.names[m.SwIfIndex], m.ID, m.SocketID, m.Role, m.Mode)
	})
	if err != nil {
		return fmt.Errorf("list memifs: %w", err)
	}
	return nil
}
