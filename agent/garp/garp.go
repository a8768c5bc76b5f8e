// Package garp announces the addresses of new memifs to the other interfaces of their networks. The kernel does so for
// taps and veths. A memif has no kernel, and the program in the pod may be silent until it receives a packet: so the
// agent is the first client of the memif, before the containers of the pod start.
package garp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weftnet/weft/internal/neighbour"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/pod"
)

const (
	// longest bounds what announcements add to an ADD: the pod works without them.
	longest = 500 * time.Millisecond
	// lookEvery is the time between two looks whether the dataplane has read the frames.
	lookEvery = time.Millisecond
	// slots and bufferSize of the ring hold a packet of any MTU, and the frames of an interface with an address of each
	// family. A ring of the size that the program will have needs more memory.
	slots      = 64
	bufferSize = 2048
)

// Announcer announces the addresses of memifs.
type Announcer struct {
	// Secret returns the secret of an allocation of memifs, or "".
	Secret func(allocation string) secret.Text
	// IsBridged reports whether the interfaces of the network are on one link: others have no neighbours but the
	// dataplane, which knows their MACs.
	IsBridged func(at *pod.Attachment, i *pod.Interface) bool
	Log       *slog.Logger
}

// Announce announces the addresses of the memifs of a new attachment. What cannot be announced is logged: the
// neighbours learn the MAC when the program sends.
func (a *Announcer) Announce(ctx context.Context, at *pod.Attachment) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for n := range at.Interfaces {
		i := &at.Interfaces[n]
		if !hasNeighbours(i) || !a.IsBridged(at, i) {
			continue
		}
		err := a.announce(ctx, i)
		if err == nil {
			continue
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return // the pod is gone, or the runtime does not wait any longer
		}
		a.Log.Warn("the addresses of a memif are not announced: neighbours may use another MAC until its program sends",
			"pod", at.Name(), "interface", i.Name, "err", err)
		if ctx.Err() != nil {
			return // there is no time for the other interfaces either
		}
	}
}

// hasNeighbours reports whether an interface is a memif of the dataplane with addresses and a MAC.
func hasNeighbours(i *pod.Interface) bool {
	return i.Memif != nil && !i.Memif.IsDirect() && i.Memif.Mode == memif.Ethernet.String() &&
		len(i.Addresses) > 0 && i.MAC.IsUnicast()
}

// announce connects to the memif as its client, and waits until the dataplane has the frames.
func (a *Announcer) announce(ctx context.Context, i *pod.Interface) error {
	conn, err := memif.Connect(ctx, memif.ClientConfig{
		Socket:     i.Memif.SocketPath,
		ID:         i.Memif.ID,
		Secret:     memif.Secret(a.Secret(i.Memif.Allocation)),
		Name:       i.Name,
		RingSize:   min(slots, i.Memif.RingSize),
		BufferSize: max(bufferSize, i.Memif.BufferSize),
		MTU:        i.MTU,
		Timeout:    longest,
	})
	if err != nil {
		return err
	}
	defer conn.Release()
	queue := conn.TxQueues()[0]
	empty := queue.Free()
	for _, prefix := range i.Addresses {
		queue.Append(neighbour.Frame(i.MAC, prefix.Addr()))
	}
	queue.Flush()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for queue.Free() < empty {
		select {
		case <-look.C:
		case <-conn.Gone():
			return fmt.Errorf("the dataplane ended the connection: %w", conn.Err())
		case <-ctx.Done():
			return fmt.Errorf("the dataplane did not read the frames: %w", ctx.Err())
		}
	}
	return nil
}
