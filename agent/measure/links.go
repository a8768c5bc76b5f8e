package measure

import (
	"strconv"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/metrics"
)

// links are the values of the label link, by interface of the dataplane.
var links = map[string]string{
	desired.HostObject: "host", desired.TunnelObject: "tunnel", desired.UplinkObject: "uplink",
	desired.PuntingObject: "punt",
}

// addLinks adds the counters of the links of the node, and of the tunnels to other nodes: all networks of one node are
// summed.
func (src Source) addLinks(s *metrics.State, c *vpp.Counters) {
	var names map[uint32]string
	if src.Member != nil {
		names = src.Member.NodeNames()
	}
	s.Links = make(map[string]metrics.Traffic)
	s.Tunnels = make(map[string]metrics.Traffic)
	for object, t := range c.Interfaces {
		if link, ok := links[object]; ok {
			s.Links[link] = trafficOf(t)
			continue
		}
		if id, ok := desired.NodeOfTunnel(object); ok {
			name := nameOf(names, id)
			s.Tunnels[name] = s.Tunnels[name].Add(trafficOf(t))
		}
	}
}

// nameOf returns the name of a node, or its ID before the API server has shown its name.
func nameOf(names map[uint32]string, id uint32) string {
	if name := names[id]; name != "" {
		return name
	}
	return "node " + strconv.FormatUint(uint64(id), 10)
}

func trafficOf(t vpp.Traffic) metrics.Traffic {
	return metrics.Traffic{
		RxPackets: t.RxPackets, RxBytes: t.RxBytes, RxDrops: t.RxDrops,
		TxPackets: t.TxPackets, TxBytes: t.TxBytes, TxDrops: t.TxDrops,
	}
}
