package forward

import "github.com/weftnet/weft/vswitch/frame"

// Mirror copies frames of an interface to another interface with a port: Rx those that its port receives, as they
// arrive, Tx those that its port sends. The copies are not mirrored again.
type Mirror struct {
	To     uint32
	Rx, Tx bool
}

// mirrors are the targets of an interface's mirrors.
type mirrors struct {
	rx, tx []uint32
}

// newMirrors returns nil without mirrors, so that other interfaces pay one comparison per vector.
func newMirrors(all []Mirror) *mirrors {
	if len(all) == 0 {
		return nil
	}
	m := new(mirrors)
	for _, t := range all {
		if t.Rx {
			m.rx = append(m.rx, t.To)
		}
		if t.Tx {
			m.tx = append(m.tx, t.To)
		}
	}
	return m
}

// mirrorBuffers is the number of frames that are copied at once.
const mirrorBuffers = 32

// mirrorer sends copies of frames to the targets of mirrors. Copies that a target refuses are lost: they neither wait
// nor use buffers of forwarded frames.
type mirrorer struct {
	*view
	buffers []*frame.Buffer
}

func newMirrorer(v *view) mirrorer {
	m := mirrorer{view: v, buffers: make([]*frame.Buffer, mirrorBuffers)}
	frame.NewPool(frame.BufferSize, mirrorBuffers).Take(m.buffers)
	return m
}

// copyAll sends copies of frames of an interface to targets.
func (m *mirrorer) copyAll(from *iface, targets []uint32, v []*frame.Buffer) {
	for _, index := range targets {
		out := m.snapshot.iface(index)
		a := m.ports.at(index)
		if out == nil || !out.up || a == nil || a.failure.Load() != nil {
			continue
		}
		for rest := v; len(rest) > 0; {
			n := min(len(rest), len(m.buffers))
			m.send(out, a, m.fill(from, rest[:n]))
			rest = rest[n:]
		}
	}
}

// fill copies frames, with complete checksums unless they are GSO frames, which stay whole. Frames of a bare interface
// begin with the IP header.
func (m *mirrorer) fill(from *iface, v []*frame.Buffer) []*frame.Buffer {
	copies := m.buffers[:len(v)]
	for i, b := range v {
		c := copies[i]
		c.SetLen(copy(c.Room(), b.Bytes()))
		if c.Virtio = b.Virtio; c.Virtio.NeedsChecksum() && !c.Virtio.IsGSO() && c.Len() >= frame.EthernetLen &&
			c.Virtio.ChecksumIsSafe(c.Bytes()) {
			frame.Complete(c.Bytes(), &c.Virtio)
		}
		if from.bare {
			c.Pull(frame.EthernetLen)
			c.Virtio = frame.Virtio{}
		}
	}
	return copies
}

func (m *mirrorer) send(out *iface, a *attachedPort, copies []*frame.Buffer) {
	size := 0
	for _, c := range copies {
		size += c.Len()
	}
	sent, err := a.port.Transmit(copies)
	if err != nil {
		a.fail(err)
	}
	c := out.counters[m.id]
	c.txPackets.Add(uint64(sent))
	c.txBytes.Add(uint64(size))
	c.txErrors.Add(uint64(len(copies) - sent))
	frame.Reset(copies)
}
