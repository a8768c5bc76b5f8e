package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
)

// repeat repeats an attack until ctx ends. It waits after an error, and prints an error that differs from the last one.
func repeat(ctx context.Context, underWay func(), once func() error) error {
	for last := ""; ctx.Err() == nil; {
		if err := once(); err != nil {
			if err.Error() != last {
				last = err.Error()
				fmt.Println(last)
			}
			pause(ctx, 10*time.Millisecond)
		}
		underWay() // also a refused attack has started
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// blockingEventfd: finding 3. It exhausts the machine's asynchronous I/O contexts, so that a dataplane that starts now
// gets none; then the client's eventfd is full and blocks.
func blockingEventfd(ctx context.Context, j job) error {
	exhaust := func() {
		for events := uintptr(1 << 16); events > 0; events /= 2 {
			for {
				var context uintptr
				if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, events, uintptr(unsafe.Pointer(&context)),
					0); errno != 0 {
					break
				}
			}
		}
	}
	exhaust()
	go func() { // takes the contexts that an ended dataplane releases
		for ctx.Err() == nil {
			exhaust()
			pause(ctx, time.Millisecond)
		}
	}()
	j.underWay()
	full := func() (int, error) {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err == nil {
			_, err = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1<<64-2))
		}
		return fd, err
	}
	return repeat(ctx, j.underWay, func() error {
		return whileConnected(j.target, offer{memory: shared{paid: true}, rings: 1, log2: 10, event: full},
			func(c *client) error {
				in := c.ring(false, 0)
				for i := range c.slots {
					descriptor{length: 2048, offset: uint32(len(c.memory) - 4096)}.put(in, i)
				}
				return sendUDP(ctx, j.target, j.Address, func() error {
					binary.LittleEndian.PutUint16(in[6:], binary.LittleEndian.Uint16(in[64:])+uint16(c.slots-1))
					return nil
				})
			})
	})
}

// sendUDP sends datagrams to an address from the pod's kernel; it calls each before every datagram.
func sendUDP(ctx context.Context, t target, to netip.Addr, each func() error) error {
	var socket *net.UDPConn
	err := netns.Do(t.Netns, func() (err error) {
		socket, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
		return err
	})
	if err != nil {
		return err
	}
	defer socket.Close()
	for ctx.Err() == nil {
		if err := each(); err != nil {
			return err
		}
		_, _ = socket.Write([]byte("x"))
	}
	return nil
}

// sparseMemory: finding 4. The dataplane touches memory without pages, so it allocates them; the client keeps the
// memory.
func sparseMemory(ctx context.Context, j job) error {
	sizes := []int{1 << 30, 256 << 20, 32 << 20, 16 << 20}
	keptClients := []*client{}
	return repeat(ctx, j.underWay, func() error {
		c, err := connected(j.target, offer{memory: shared{size: sizes[0]}, rings: 1, log2: 10, event: newEventfd})
		if err != nil {
			if len(sizes) > 1 {
				sizes = sizes[1:]
			}
			return fmt.Errorf("connect: %w", err)
		}
		gone := c.awaitEnd()
		out := c.ring(true, 0)
		for at, last := 1<<20, len(c.memory)-4096; at < last && ctx.Err() == nil; {
			for i := range c.slots {
				descriptor{length: 64, offset: uint32(at)}.put(out, i)
				at = min(at+4096, last)
			}
			c.publish(0, c.slots)
			for pending := true; pending && ctx.Err() == nil; {
				select {
				case err := <-gone:
					return err
				default:
				}
				pause(ctx, time.Millisecond)
				pending = binary.LittleEndian.Uint16(out[64:]) != binary.LittleEndian.Uint16(out[6:])
			}
		}
		c.leave()
		keptClients = append(keptClients, c)
		pause(ctx, time.Second)
		left := int64(0)
		for _, k := range keptClients {
			var stat unix.Stat_t
			if err := unix.Fstat(k.fd, &stat); err == nil {
				left += stat.Blocks * 512
			}
		}
		fmt.Println("left", left)
		if left > 4<<30 {
			<-ctx.Done() // enough for the verdict
		}
		return nil
	})
}

// ringAttack is an attack on the rings of a connection.
type ringAttack struct {
	memory  shared
	prepare func(c *client) // once, after the handshake
	each    func(c *client) // until the connection ends
}

// onRings connects and attacks until ctx ends, and reconnects when the connection ends.
func onRings(ctx context.Context, j job, a ringAttack) error {
	return repeat(ctx, j.underWay, func() error {
		c, err := greediest(j.target, a.memory)
		if err != nil {
			return err
		}
		defer c.free()
		defer c.leave()
		a.prepare(c)
		gone := c.awaitEnd()
		for ctx.Err() == nil {
			select {
			case err := <-gone:
				return err
			default:
			}
			j.underWay()
			a.each(c)
		}
		return nil
	})
}

// allRings calls f with each ring to the server.
func (c *client) allRings(f func(ring []byte)) {
	for i := range c.rings {
		f(c.ring(true, i))
	}
}

// wrongDescriptors: finding 5. The rings are always full of descriptors of an unknown region.
func wrongDescriptors(ctx context.Context, j job) error {
	return onRings(ctx, j, ringAttack{prepare: func(c *client) {
		c.allRings(func(ring []byte) {
			for i := range c.slots {
				descriptor{region: 7, length: 64}.put(ring, i)
			}
		})
	}, each: func(c *client) {
		c.publishAll(c.slots)
		pause(ctx, 100*time.Microsecond)
	}})
}

// endlessChains sends chains of as many empty buffers as the ring has slots, minus a last one with data.
func endlessChains(ctx context.Context, j job) error {
	return onRings(ctx, j, ringAttack{memory: shared{paid: true}, prepare: func(c *client) {
		c.allRings(func(ring []byte) {
			for i := range c.slots - 1 {
				descriptor{flags: 1, offset: 1 << 20}.put(ring, i)
			}
			descriptor{length: 64, offset: uint32(len(c.memory) - 64)}.put(ring, c.slots-1)
		})
	}, each: func(c *client) {
		c.publishAll(c.slots)
		pause(ctx, 100*time.Microsecond)
	}})
}

// kicks signals the eventfds of empty rings all the time.
func kicks(ctx context.Context, j job) error {
	one := binary.NativeEndian.AppendUint64(nil, 1)
	return onRings(ctx, j, ringAttack{prepare: func(*client) {}, each: func(c *client) {
		for _, fd := range c.events {
			_, _ = unix.Write(fd, one)
		}
	}})
}

// changingRings writes random bytes into the rings while the dataplane uses them.
func changingRings(ctx context.Context, j job) error {
	random := rand.New(rand.NewPCG(1, 2))
	return onRings(ctx, j, ringAttack{memory: shared{paid: true}, prepare: func(c *client) {
		randomise(c.memory[2*c.ringSpace():], random)
	}, each: func(c *client) {
		for range 64 {
			randomise(c.memory[random.IntN(2*c.ringSpace()-8):][:8], random)
		}
		c.publishAll(random.IntN(c.slots + 2))
	}})
}

// shrinkingMemory truncates the memory while the dataplane uses it.
func shrinkingMemory(ctx context.Context, j job) error {
	return onRings(ctx, j, ringAttack{memory: shared{unsealable: true}, prepare: func(c *client) {
		c.allRings(func(ring []byte) {
			for i := range c.slots {
				descriptor{length: 64, offset: uint32(len(c.memory) - 4096)}.put(ring, i)
			}
		})
		c.publishAll(c.slots)
	}, each: func(c *client) {
		_ = unix.Ftruncate(c.fd, int64(len(c.memory)-8192))
		pause(ctx, time.Millisecond)
		_ = unix.Ftruncate(c.fd, int64(len(c.memory)))
		defer func() { _ = recover() }()
		c.publishAll(c.slots)
	}})
}

// unreadAnswers: finding 10. A client requests the maximum number of rings and reads no reply.
func unreadAnswers(ctx context.Context, j job) error {
	return repeat(ctx, j.underWay, func() error {
		c, err := dial(j.target)
		if err != nil {
			return err
		}
		defer c.free()
		defer c.leave()
		if err = c.allocate(shared{}, 255, 4); err == nil {
			err = c.initiate(j.target)
		}
		if err == nil {
			err = c.send(addRegionMessage, c.fd, func(b []byte) {
				binary.LittleEndian.PutUint64(b[4:], uint64(len(c.memory)))
			})
		}
		for i := 0; err == nil && i < 510; i++ {
			err = c.addRing(i < 255, i%255, newEventfd)
		}
		j.underWay()
		pause(ctx, 3*time.Second)
		return err
	})
}

// reconnects connects and disconnects in a loop.
func reconnects(ctx context.Context, j job) error {
	return repeat(ctx, j.underWay, func() error {
		return whileConnected(j.target, modest, func(*client) error { return nil })
	})
}

// strangers send random messages with descriptors, without the secret.
func strangers(ctx context.Context, j job) error {
	random := rand.New(rand.NewPCG(3, 4))
	return repeat(ctx, j.underWay, func() error {
		c, err := dial(j.target)
		if err != nil {
			return err
		}
		defer c.leave()
		for range 1 + random.IntN(8) {
			fd, err := newEventfd()
			if err != nil {
				return err
			}
			_ = c.send(uint16(random.IntN(10)), fd, func(b []byte) { randomise(b[2:], random) })
			_ = unix.Close(fd)
		}
		return nil
	})
}
