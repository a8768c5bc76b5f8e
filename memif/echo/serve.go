package echo

import (
	"context"

	"github.com/weftnet/weft/memif"
)

const burstSize = 64

// Serve connects to a memif and answers requests for the addresses in its description until ctx ends. It reconnects
// when the peer restarts.
func Serve(ctx context.Context, c memif.ClientConfig, d memif.Description, events memif.ClientEvents) {
	client, err := memif.Dial(ctx, c, events)
	if err != nil {
		return // ctx has ended; events has the failures
	}
	defer client.Close()
	h := NewHost(d)
	burst := make([][]byte, burstSize)
	memory := make([]byte, burstSize*memif.DefaultMaxPacket)
	for {
		for i := range burst {
			at := i * memif.DefaultMaxPacket
			burst[i] = memory[at : at : at+memif.DefaultMaxPacket]
		}
		n, err := client.ReadBurst(ctx, burst)
		if err != nil {
			return
		}
		replies := burst[:0]
		for _, packet := range burst[:n] {
			if reply := h.Answer(packet); reply != nil {
				replies = append(replies, reply)
			}
		}
		// The replies are lost if the connection has ended.
		_, _ = client.WriteBurst(ctx, replies)
	}
}
