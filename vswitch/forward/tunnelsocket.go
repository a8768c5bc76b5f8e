package forward

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// OpenTunnel lets the kernel carry the envelopes of tunnel interface index: by a UDP socket bound to source, which all tunnels
// with that source share. It does so from the next SetInterface on, and until ClosePort and the SetInterface or
// DelInterface behind that. False: the socket is broken or cannot be opened, most likely as the machine does not have the
// address; it is tried again, and PortUp tells that it works.
//
// Unlike envelopes that are routed here all come from source's own port, and have the UDP checksum that the kernel makes:
// without one it would not cut them itself. Those without one are taken.
func (e *Engine) OpenTunnel(index uint32, source netip.AddrPort) (up bool, err error) {
	return e.keeper.join(index, source)
}

// join makes the interface a user of the socket, which is made if there is none.
func (k *keeper) join(index uint32, source netip.AddrPort) (up bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.stopped:
		return false, ErrStopped
	case index >= MaxInterfaces:
		return false, ErrNoInterface
	case k.joined[index] != 0 || k.kept[index] != nil:
		return false, ErrPortExists
	}
	at := k.socketLocked(source)
	p := k.kept[at]
	p.users = append(p.users, index)
	k.joined[index] = at
	return p.attachment != nil, nil
}

// socketLocked finds the socket, or tries to open one, the first time at once.
func (k *keeper) socketLocked(source netip.AddrPort) uint32 {
	at := uint32(firstSocket)
	for ; k.kept[at] != nil; at++ {
		if k.kept[at].source == source {
			return at
		}
	}
	p := &keptPort{source: source, pause: firstPause, open: func() (vectorPort, error) { return port.OpenUDP(source) }}
	k.kept[at] = p
	if err := k.attachLocked(at, p); err != nil {
		k.log.Warn("socket not opened", "source", source, "err", err)
		p.due = time.Now().Add(p.pause)
		k.late = true
		k.bell.Ring()
	}
	return at
}

// leaveLocked ends an interface's use of its socket, and the socket with its last user. False: it uses none.
func (k *keeper) leaveLocked(index uint32) (bool, error) {
	at := k.joined[index]
	if at == 0 {
		return false, nil
	}
	delete(k.joined, index)
	p := k.kept[at]
	p.users = slices.DeleteFunc(p.users, func(user uint32) bool { return user == index })
	if len(p.users) > 0 {
		return true, nil
	}
	delete(k.kept, at)
	return true, k.detachLocked(p)
}

// socketOf is the port index of an interface's socket, or NoInterface.
func (k *keeper) socketOf(index uint32) uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at := k.joined[index]; at != 0 {
		return at
	}
	return NoInterface
}

// envelopes decides on a vector that a socket received, and flushes.
func (w *worker) envelopes(in *inlet, v []*frame.Buffer) {
	socket := in.of.socket
	local := socket.Local()
	for i, b := range v {
		from, size := socket.Sender(i)
		k := tunnelKey{local: local.Addr(), remote: from, port: local.Port(), bySocket: true}
		line := in.trace.begin(b)
		w.how = 0
		line.result = w.datagrams(b, size, k)
		line.how = w.how
	}
	w.flush()
}

// datagrams decides on all that came in one buffer, and returns what became of the last. Segments of a TCP flow that came
// together go on together: to hand them over one by one would cost a system call each.
func (w *worker) datagrams(b *frame.Buffer, size int, k tunnelKey) (d verdict) {
	if size <= 0 || size >= b.Len() {
		return w.openAndSend(b, 0, k)
	}
	var piece *frame.Buffer
	var g frame.Gatherer
	for rest := b.Bytes(); len(rest) > 0; {
		datagram := rest[:min(size, len(rest))]
		rest = rest[len(datagram):]
		if piece != nil {
			if sameTunnel(piece.Bytes(), datagram) && g.Append(datagram[frame.VXLANLen:]) {
				continue
			}
			g.Finish()
			d = w.openAndSend(piece, 0, k)
		}
		if piece = w.spare(); piece == nil {
			w.drops[dropNoBuffer].Add(1)
			break
		}
		piece.SetLen(copy(piece.Room(), datagram))
		g.Begin(piece, frame.VXLANLen)
	}
	b.Release()
	if piece != nil {
		g.Finish()
		d = w.openAndSend(piece, 0, k)
	}
	return d
}

// sameTunnel compares VXLAN headers.
func sameTunnel(a, b []byte) bool {
	return len(a) >= frame.VXLANLen && len(b) >= frame.VXLANLen && string(a[:frame.VXLANLen]) == string(b[:frame.VXLANLen])
}
