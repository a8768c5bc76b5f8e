package ipnet

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weftnet/weft/pod"
)

// Numbers are those that the dataplane has, by label.
type Numbers struct{ Tables, BridgeDomains map[string]uint32 }

// Recognise takes over the networks that are not known and that stand in the dataplane as they are wanted, with the
// numbers that they have there, and gives what is to be kept of them. The dataplane knows no VNI: one that was not chosen
// is given anew. What stands otherwise is not recognised.
func (n *Network) Recognise(wanted []pod.Network, there Numbers) []SavedNetwork {
	taken := make(map[uint32]bool)
	for _, c := range n.customNetworks() {
		taken[c.VNI] = true
	}
	for _, w := range wanted {
		taken[w.VNI] = true
	}
	var recognised []SavedNetwork
	for _, w := range slices.SortedFunc(slices.Values(wanted), chosenVNIFirst) {
		if n.custom(w.Name) != nil || sound(w) != nil {
			continue
		}
		s, err := n.recognise(ordered(w), there, taken)
		if errors.Is(err, errNew) {
			continue
		}
		if err != nil {
			n.config.Log.Warn("network not recognised in the dataplane", "network", w.Name, "err", err)
			continue
		}
		taken[s.VNI] = true
		recognised = append(recognised, s)
	}
	n.restoreNetworks(recognised)
	return slices.DeleteFunc(recognised, func(s SavedNetwork) bool { return n.custom(s.Network.Name) == nil })
}

// errNew means that the dataplane has nothing of a network.
var errNew = errors.New("nothing of it is there")

func (n *Network) recognise(w pod.Network, there Numbers, taken map[uint32]bool) (s SavedNetwork, err error) {
	label := labelOf(w.Name)
	s = SavedNetwork{Network: w, Table: there.Tables[label], BridgeDomain: there.BridgeDomains[label], VNI: w.VNI}
	needsTable, needsBridge := n.config.numbered(w)
	if (needsTable || w.Type == pod.L2) && s.Table == 0 && s.BridgeDomain == 0 {
		return s, errNew
	}
	if needsTable != (s.Table != 0) || (w.Type == pod.L2) != (s.BridgeDomain != 0) {
		return s, fmt.Errorf("it has VRF table %d and bridge domain %d there", s.Table, s.BridgeDomain)
	}
	if needsBridge && w.Type == pod.L3 { // none there: it is numbered when it is set
		s.BridgeDomain = there.BridgeDomains[meshLabelOf(w.Name)]
	}
	if s.VNI == 0 {
		s.VNI, err = n.config.VNIs.lowest("VNI", taken)
	}
	return s, err
}
