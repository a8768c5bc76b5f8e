package forward

import "github.com/weftnet/weft/vswitch/frame"

// floodedBVI is the bridge's BVI where it takes part in the flooding of b, or nil. It listens to groups and to its own MAC.
func (w *worker) floodedBVI(br *bridge, in *iface, b *frame.Buffer) *iface {
	if br.bvi == NoInterface || br.bvi == in.index {
		return nil
	}
	bvi := w.snapshot.iface(br.bvi)
	if bvi == nil || !bvi.up || bvi.l2.slot != br.slot {
		return nil
	}
	if to := frame.Ethernet(b.Bytes()).Destination(); !to.IsMulticast() && to != bvi.mac {
		return nil
	}
	return bvi
}

// floodBVI hands a flooded frame to the BVI, after a copy to the last member, if any. What layer 3 has no use for is then
// no drop of the frame.
func (w *worker) floodBVI(bvi, last *iface, b *frame.Buffer) verdict {
	if last == nil {
		return w.toBVI(bvi, b)
	}
	w.replicate(last, b)
	w.drops[noteFlooded].Add(1)
	d := w.toBVI(bvi, b)
	if d.drop != kept {
		w.drops[d.drop].Add(1)
	}
	d.drop, w.how = kept, byFlood
	return d
}

// toBVI lets a frame enter layer 3 by the BVI, as if it had been received there.
func (w *worker) toBVI(bvi *iface, b *frame.Buffer) verdict {
	e := frame.Ethernet(b.Bytes())
	switch {
	case !bvi.up:
		return verdict{drop: dropInterfaceDown}
	case !e.Destination().IsMulticast() && e.Destination() != bvi.mac:
		return verdict{drop: dropBVIMAC}
	case e.Type() != frame.TypeIPv4 && e.Type() != frame.TypeIPv6 && e.Type() != frame.TypeARP:
		return verdict{drop: dropBVIType}
	}
	var tally vectorTally
	tally.bytes = uint64(b.Len())
	d := w.layer3(bvi, b, e)
	tally.add(b, d)
	tally.publish(bvi.counters[w.id], 1)
	if d.punt != 0 {
		// Here, and not where the frame's own interface is known only: the slow path answers on the BVI.
		w.punt(bvi, b, d)
		w.how = byBVI
		return verdict{drop: d.drop}
	}
	return d
}

// fromBVI sends a routed frame, or one of the slow path's, into the bridge. As in VPP the split-horizon group of the BVI does not
// hold back what it sends to one host, nor its questions for neighbours; it sends nothing else.
func (w *worker) fromBVI(bvi *iface, b *frame.Buffer) {
	c := bvi.counters[w.id]
	c.txPackets.Add(1)
	c.txBytes.Add(uint64(b.Len()))
	w.dispose(bvi, b, w.relay(w.snapshot.bridges[bvi.l2.slot], bvi, b))
}
