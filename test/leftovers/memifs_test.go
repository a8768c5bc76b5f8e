package leftovers_test

import (
	"path/filepath"
	"testing"

	"go.fd.io/govpp/binapi/memif"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/must"
)

func TestSnapshotShowsALeftoverMemif(t *testing.T) {
	netnstest.Require(t)
	p, socket := newPlanter(t)
	file := filepath.Join(filepath.Dir(socket), "memif.sock")
	places := leftovers.Places{Dataplane: socket}
	rpc := memif.NewServiceClient(p)
	for _, step := range []struct {
		plant func() error
		line  string
	}{
		{func() error {
			_, err := rpc.MemifSocketFilenameAddDelV2(t.Context(), &memif.MemifSocketFilenameAddDelV2{
				IsAdd:          true,
				SocketID:       7,
				SocketFilename: file,
			})
			return err
		}, "+ memif-socket dataplane 7 " + file},
		{func() error {
			_, err := rpc.MemifCreateV2(t.Context(), &memif.MemifCreateV2{
				ID:         3,
				SocketID:   7,
				RingSize:   1024,
				BufferSize: 2048,
			})
			return err
		}, "+ memif dataplane memif7/3 3 of socket 7 MEMIF_ROLE_API_MASTER MEMIF_MODE_API_ETHERNET"},
	} {
		before, err := leftovers.Take(t.Context(), places)
		must.Succeed(t, err)
		must.Succeed(t, step.plant())
		after, err := leftovers.Take(t.Context(), places)
		must.Succeed(t, err)
		if lines := after.Since(before); !anyBegins(lines, step.line) {
			t.Errorf("no line begins with %q: %q", step.line, lines)
		}
	}
}
