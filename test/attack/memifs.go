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

// again repeats an attack until ctx ends; what the server refuses is tried again after a moment. A new reason is said.
func again(ctx context.Context, underWay func(), once func() error) error {
	for last := ""; ctx.Err() == nil; {
		if err := once(); err != nil {
			if err.Error() != last {
				last = err.Error()
				fmt.Println(last)
			}
			pause(ctx, 10*time.Millisecond)
		}
		underWay() // a refusal is an answer too
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// blockingEventfd: finding 3. Asynchronous I/O is exhausted, so that a dataplane that starts now has none; then the client's eventfd
// is full and blocks.
func blockingEventfd(ctx context.Context, o campaign) error {
	exhaust := func() {
		for events := uintptr(1 << 16); events > 0; events /= 2 {
			for {
				var context uintptr
				if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, events, uintptr(unsafe.Pointer(&context)), 0); errno != 0 {
					break
				}
			}
		}
	}
	exhaust()
	go func() { // takes what a dataplane that ends gives back
		for ctx.Err() == nil {
			exhaust()
			pause(ctx, time.Millisecond)
		}
	}()
	o.underWay()
	full := func() (int, error) {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err == nil {
			_, err = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1<<64-2))
		}
		return fd, err
	}
	return again(ctx, o.underWay, func() error {
		return whileConnected(o.orders, offer{memory: shared{paid: true}, rings: 1, log2: 10, event: full}, func(c *client) error {
			in := c.ring(false, 0)
			for i := range c.slots {
				descriptor{length: 2048, offset: uint32(len(c.memory) - 4096)}.put(in, i)
			}
			return send(ctx, o.orders, o.Address, func() error {
				binary.LittleEndian.PutUint16(in[6:], binary.LittleEndian.Uint16(in[64:])+uint16(c.slots-1))
				return nil
			})
		})
	})
}

// send has the pod's kernel send to an address.
func send(ctx context.Context, o orders, to netip.Addr, each func() error) error {
	var socket *net.UDPConn
	err := netns.Do(o.Netns, func() (err error) {
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

// sparseMemory: finding 4. The dataplane touches memory without pages first, and so pays for them; the client keeps it.
func sparseMemory(ctx context.Context, o campaign) error {
	sizes := []int{1 << 30, 256 << 20, 32 << 20, 16 << 20}
	keptClients := []*client{}
	return again(ctx, o.underWay, func() error {
		c, err := connected(o.orders, offer{memory: shared{size: sizes[0]}, rings: 1, log2: 10, event: honestEvent})
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
			for waits := true; waits && ctx.Err() == nil; {
				select {
				case err := <-gone:
					return err
				default:
				}
				pause(ctx, time.Millisecond)
				waits = binary.LittleEndian.Uint16(out[64:]) != binary.LittleEndian.Uint16(out[6:])
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
			<-ctx.Done() // it is shown
		}
		return nil
	})
}

// ringAttack is one on the rings of a connection.
type ringAttack struct {
	memory  shared
	prepare func(c *client) // once, after the handshake
	each    func(c *client) // until the connection ends
}

// onRings connects and attacks until ctx ends, again whenever the connection does.
func onRings(ctx context.Context, o campaign, a ringAttack) error {
	return again(ctx, o.underWay, func() error {
		c, err := greediest(o.orders, a.memory)
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
			o.underWay()
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

// wrongDescriptors: finding 5. Rings that are always full of descriptors that point nowhere.
func wrongDescriptors(ctx context.Context, o campaign) error {
	return onRings(ctx, o, ringAttack{prepare: func(c *client) {
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

// endlessChains are packets of as many empty buffers as the ring has, and a last one.
func endlessChains(ctx context.Context, o campaign) error {
	return onRings(ctx, o, ringAttack{memory: shared{paid: true}, prepare: func(c *client) {
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

// kicks rings the dataplane all the time, with nothing to receive.
func kicks(ctx context.Context, o campaign) error {
	one := binary.NativeEndian.AppendUint64(nil, 1)
	return onRings(ctx, o, ringAttack{prepare: func(*client) {}, each: func(c *client) {
		for _, fd := range c.events {
			_, _ = unix.Write(fd, one)
		}
	}})
}

// changingRings writes at random into the rings while the dataplane works with them.
func changingRings(ctx context.Context, o campaign) error {
	random := rand.New(rand.NewPCG(1, 2))
	return onRings(ctx, o, ringAttack{memory: shared{paid: true}, prepare: func(c *client) {
		noise(c.memory[2*c.ringSpace():], random)
	}, each: func(c *client) {
		for range 64 {
			noise(c.memory[random.IntN(2*c.ringSpace()-8):][:8], random)
		}
		c.publishAll(random.IntN(c.slots + 2))
	}})
}

// shrinkingMemory takes pages away while the dataplane works with them.
func shrinkingMemory(ctx context.Context, o campaign) error {
	return onRings(ctx, o, ringAttack{memory: shared{unsealable: true}, prepare: func(c *client) {
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

// unreadAnswers: finding 10. A client that asks for as many rings as there can be and reads no answer.
func unreadAnswers(ctx context.Context, o campaign) error {
	return again(ctx, o.underWay, func() error {
		c, err := dial(o.orders)
		if err != nil {
			return err
		}
		defer c.free()
		defer c.leave()
		if err = c.allocate(shared{}, 255, 4); err == nil {
			err = c.initiate(o.orders)
		}
		if err == nil {
			err = c.say(addRegionMessage, c.fd, func(b []byte) { binary.LittleEndian.PutUint64(b[4:], uint64(len(c.memory))) })
		}
		for i := 0; err == nil && i < 510; i++ {
			err = c.addRing(i < 255, i%255, honestEvent)
		}
		o.underWay()
		pause(ctx, 3*time.Second)
		return err
	})
}

// reconnects connects as fast as it can.
func reconnects(ctx context.Context, o campaign) error {
	return again(ctx, o.underWay, func() error {
		return whileConnected(o.orders, modest, func(*client) error { return nil })
	})
}

// strangers say anything, without the secret, and pass descriptors with it.
func strangers(ctx context.Context, o campaign) error {
	random := rand.New(rand.NewPCG(3, 4))
	return again(ctx, o.underWay, func() error {
		c, err := dial(o.orders)
		if err != nil {
			return err
		}
		defer c.leave()
		for range 1 + random.IntN(8) {
			fd, err := honestEvent()
			if err != nil {
				return err
			}
			_ = c.say(uint16(random.IntN(10)), fd, func(b []byte) { noise(b[2:], random) })
			_ = unix.Close(fd)
		}
		return nil
	})
}
