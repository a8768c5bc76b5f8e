package forward

import "github.com/weftnet/weft/vswitch/frame"

// vectorTally counts one vector in registers; the shared counters are touched once a vector.
type vectorTally struct {
	bytes, drops, punts, ip4, ip6 uint64
}

func (t *vectorTally) add(b *frame.Buffer, d verdict) {
	if d.drop != kept {
		t.drops++
	}
	if d.punt != 0 {
		t.punts++
	}
	t.count(b.EthernetType())
}

// count takes in what a frame carries.
func (t *vectorTally) count(ethernetType uint16) {
	switch ethernetType {
	case frame.TypeIPv4:
		t.ip4++
	case frame.TypeIPv6:
		t.ip6++
	}
}

func (t *vectorTally) publish(c *counters, packets int) {
	c.rxPackets.Add(uint64(packets))
	c.rxBytes.Add(t.bytes)
	c.rxIP4.Add(t.ip4)
	c.rxIP6.Add(t.ip6)
	if t.drops > 0 {
		c.drops.Add(t.drops)
	}
	if t.punts > 0 {
		c.punts.Add(t.punts)
	}
}
