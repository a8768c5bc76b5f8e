package traffic

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/weftnet/weft/test/netns"
)

// tricklePort is the port for discarded data (RFC 863).
const tricklePort = 9

// trickleInterval is the time between packets of Trickle.
const trickleInterval = 5 * time.Millisecond

// Trickle sends UDP packets of a size from the namespace at a path to an address, 200 a second, until ctx ends. Nothing
// has to receive them. The returned function waits for the end.
func Trickle(ctx context.Context, path string, to netip.Addr, size int) (wait func(), err error) {
	var conn net.Conn
	err = netns.Do(path, func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "udp", netip.AddrPortFrom(to, tricklePort).String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("send packets to %s: %w", to, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer conn.Close()
		tick := time.NewTicker(trickleInterval)
		defer tick.Stop()
		packet := make([]byte, size)
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_, _ = conn.Write(packet) // refused by the receiver's kernel now and then
			}
		}
	}()
	return func() { <-ended }, nil
}
