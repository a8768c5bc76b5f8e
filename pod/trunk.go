package pod

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weftnet/weft/internal/netaddr"
)

// maxVLANs limits the VLANs of a network: each is a bridge domain with a tunnel to each node.
const maxVLANs = 256

// The VNIs of VLANs follow from the VNI of their network. A network with a chosen VNI, 1 to lastOwnBlock, has the block
// of 4096 that begins at 4096 times the VNI. A network with an assigned VNI has a block at the end of all VNIs. Blocks
// overlap neither each other nor the VNIs that the controller assigns.
const (
	vniBlock      = 1 << 12
	lastOwnBlock  = 1<<8 - 1
	firstAssigned = 1 << 20 // as k8s/controller assigns
	assignedBlock = 11 << 8 // blocks for as many assigned VNIs
	endOfVNIs     = 1 << 24
)

// VNIOfVLAN returns the VNI of a VLAN of a network; false if the network's VNI has no block.
func VNIOfVLAN(network uint32, vlan int) (uint32, bool) {
	switch {
	case network >= 1 && network <= lastOwnBlock:
		return network*vniBlock + uint32(vlan), true
	case network >= firstAssigned && network < firstAssigned+assignedBlock:
		return endOfVNIs - vniBlock*(network-firstAssigned+1) + uint32(vlan), true
	}
	return 0, false
}

// HasVNI reports whether the network, with its own VNI in use, has a VNI for itself or for a VLAN.
func (n *Network) HasVNI(own, vni uint32) bool {
	if own == vni {
		return true
	}
	base, ok := VNIOfVLAN(own, 0)
	return ok && vni > base && n.VLANs.Contains(int(vni-base))
}

// checkVLANs rejects VLANs that do not suit the network.
func (n *Network) checkVLANs() error {
	if len(n.VLANs) == 0 {
		return nil
	}
	if n.Type != L2 || n.Direct {
		return errors.New("vlans: only a network of type L2 that is not direct has vlans")
	}
	if err := checkCount(n.VLANs); err != nil {
		return err
	}
	if _, ok := VNIOfVLAN(n.VNI, 0); n.VNI != 0 && !ok {
		return fmt.Errorf("vlans: the VNIs of VLANs follow from the vni of the network: choose 1 to %d, or let the "+
			"controller assign one", lastOwnBlock)
	}
	return nil
}

func checkCount(vlans netaddr.VLANs) error {
	if count := vlans.Len(); count > maxVLANs {
		return fmt.Errorf("vlans: %d VLANs, at most %d are possible", count, maxVLANs)
	}
	return nil
}

// HasVLANs rejects VLANs that the network does not have.
func (n *Network) HasVLANs(vlans netaddr.VLANs) error {
	if len(vlans) == 0 {
		return nil
	}
	if len(n.VLANs) == 0 {
		return fmt.Errorf("network %s has no vlans: add them to the network, which is a custom network of type L2",
			n.Name)
	}
	if missing := vlans.Missing(n.VLANs); missing != 0 {
		return fmt.Errorf("network %s has no VLAN %d: its vlans are %s", n.Name, missing, n.VLANs)
	}
	return nil
}

// suitsTrunk rejects a trunk that the network cannot have.
func (n *Network) suitsTrunk(o InterfaceOptions) error {
	if len(o.VLANs) == 0 {
		return nil
	}
	if o.Memif.Mode == MemifIP {
		return errors.New("vlans: mode ip has no VLAN tags: use mode ethernet")
	}
	if err := n.HasVLANs(o.VLANs); err != nil {
		return fmt.Errorf("vlans: %w", err)
	}
	return nil
}

// setVLANs sets the VLANs of an interface that is a trunk.
func (o *InterfaceOptions) setVLANs(raw json.RawMessage) error {
	return o.VLANs.UnmarshalJSON(raw)
}

// IsTrunk reports whether the interface connects VLANs of the network by their tags.
func (e External) IsTrunk() bool { return len(e.VLANs) > 0 || e.Native != nil || e.Outer != 0 }

// ValidateTrunk rejects VLANs that contradict each other.
func (e External) ValidateTrunk() error {
	switch err := checkCount(e.VLANs); {
	case !e.IsTrunk():
		return nil
	case err != nil:
		return err
	case e.VLAN != 0:
		return errors.New("vlan and vlans exclude each other: vlan is the untagged network, vlans are its VLANs")
	case len(e.VLANs) == 0:
		return errors.New("nativeVLAN and outerVLAN need vlans")
	case len(e.Addresses) > 0:
		return errors.New("ips: an interface with vlans has no addresses: its network is bridged")
	case e.Outer < 0 || e.Outer > netaddr.MaxVLAN:
		return fmt.Errorf("outerVLAN %d is not within 1 and %d", e.Outer, netaddr.MaxVLAN)
	case e.Native == nil:
		return nil
	case *e.Native < 0 || *e.Native > netaddr.MaxVLAN:
		return fmt.Errorf("nativeVLAN %d is not within 0 and %d", *e.Native, netaddr.MaxVLAN)
	case e.VLANs.Contains(*e.Native):
		return errors.New("nativeVLAN is in vlans, too: its frames have either a tag or none")
	case e.Outer != 0:
		return errors.New("nativeVLAN and outerVLAN exclude each other: untagged frames have no outer tag")
	}
	return nil
}

// SuitsExternal rejects an external interface with VLANs that the network does not have.
func (n *Network) SuitsExternal(e External) error {
	vlans := e.VLANs
	if e.Native != nil && *e.Native != 0 {
		vlans = append(vlans[:len(vlans):len(vlans)], netaddr.VLANRange{First: *e.Native, Last: *e.Native})
	}
	return n.HasVLANs(vlans)
}

// SharesTags returns why two external interfaces of a card exclude each other, one of which is a trunk; "" if they do
// not. Linux takes the frames of a single VLAN, and the dataplane takes the frames of trunks.
func (e External) SharesTags(other External) string {
	common := e.tags().Common(other.tags())
	switch {
	case !e.IsTrunk() && e.VLAN == 0 || !other.IsTrunk() && other.VLAN == 0:
		return fmt.Sprintf("interface %s is already used by external interface %s: vlans and untagged frames share "+
			"a card by nativeVLAN", e.Interface, other.Name)
	case e.Native != nil && other.Native != nil:
		return fmt.Sprintf("untagged frames of interface %s already belong to external interface %s", e.Interface,
			other.Name)
	case common == 0 || e.Outer != other.Outer:
		return ""
	case e.Outer != 0:
		return fmt.Sprintf("VLAN %d in outer VLAN %d of interface %s is already used by external interface %s", common,
			e.Outer, e.Interface, other.Name)
	}
	return fmt.Sprintf("VLAN %d of interface %s is already used by external interface %s", common, e.Interface,
		other.Name)
}

// tags returns the VLANs in the tags of the interface.
func (e External) tags() netaddr.VLANs {
	if e.IsTrunk() {
		return e.VLANs
	}
	return netaddr.VLANs{{First: e.VLAN, Last: e.VLAN}}
}
