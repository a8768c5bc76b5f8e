package memif

import "runtime/debug"

// touch runs f, which uses the peer's memory.
func (c *Conn) touch(f func() error) error {
	if err := c.guard(f); err != nil {
		return err
	}
	if c.broken.Load() {
		return c.Err()
	}
	return nil
}

func (c *Conn) guard(f func() error) error {
	defer c.recoverFault(debug.SetPanicOnFault(true))
	return f()
}

// describe completes what is known of the connection when its queues are there.
func (c *Conn) describe() {
	i := &c.info
	i.RxQueues, i.TxQueues = len(c.rx), len(c.tx)
	for _, q := range c.rx {
		i.RingSize = max(i.RingSize, q.Size())
	}
	for _, q := range c.tx {
		i.RingSize = max(i.RingSize, q.Size())
	}
	if len(c.tx) > 0 && i.BufferSize == 0 {
		i.BufferSize = int(c.tx[0].ring.descriptor(0).length)
	}
	i.Regions, i.Memory, i.Guarded = len(c.memory.regions), c.memory.size(), c.memory.guarded
}

// ringAt checks where a client says that a ring is.
func (c *Conn) ringAt(r newRing) (ring, error) {
	at, verdict := c.memory.at(descriptor{region: r.region, offset: r.offset, length: uint32(ringBytes(1 << r.log2))})
	switch {
	case verdict == badRegion:
		return ring{}, refusal("ring in unknown region")
	case verdict != good:
		return ring{}, refusal("ring out of region")
	case uintptr(at)%ringAlignment != 0:
		return ring{}, refusal("ring not aligned")
	}
	found := newRingAt(at, r.log2)
	if *found.cookie() != ringCookie {
		return ring{}, refusal("wrong cookie on ring")
	}
	c.memory.regions[r.region].ringed = true
	return found, nil
}

func (c *Conn) addRx(r newRing, eventfd, maxPacket int) error {
	at, err := c.ringAt(r)
	if err != nil {
		return err
	}
	at.setTail(0)
	at.maskInterrupts(true)
	c.rx = append(c.rx, &RxQueue{
		ring: at, memory: &c.memory, conn: c, server: true, maxPacket: uint32(maxPacket), eventfd: eventfd,
		segments: make([][]byte, 0, at.size),
	})
	return nil
}

func (c *Conn) addTx(r newRing, eventfd, maxPacket int) error {
	at, err := c.ringAt(r)
	if err != nil {
		return err
	}
	at.setTail(0)
	c.tx = append(c.tx, &TxQueue{
		ring: at, memory: &c.memory, conn: c, server: true, maxPacket: uint32(maxPacket), eventfd: eventfd,
	})
	return nil
}
