package linux

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// deafTableName is the table of nftables that keeps the kernel from what a card receives. Packet sockets, and so the dataplane,
// get each frame before.
const deafTableName = "weft-uplink"

func deafTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyNetdev, Name: deafTableName}
}

// deafChain drops IPv4, ARP and IPv6. All else stays the kernel's, such as LLDP, 802.1X, and frames with VLAN tags, which have
// another type.
func deafChain(link string) tableChain {
	first := nftables.ChainPriority(-500)
	chain := tableChain{Chain: &nftables.Chain{
		Name: link, Table: deafTable(), Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookIngress, Priority: &first, Device: link,
	}}
	for _, kind := range []uint16{unix.ETH_P_IP, unix.ETH_P_ARP, unix.ETH_P_IPV6} {
		const at = 12 // where an Ethernet frame has its type
		chain.rules = append(chain.rules, []expr.Any{
			&expr.Payload{Base: expr.PayloadBaseLLHeader, Offset: at, Len: 2, DestRegister: register1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: binaryutil.BigEndian.PutUint16(kind)},
			&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop},
		})
	}
	return chain
}

// writeDeafTable makes the table in place of the one that may be there, in one step; one that is there stays.
func writeDeafTable(link string) error {
	if is, err := isDeaf(link); is || err != nil {
		return err
	}
	c, err := tables()
	if err != nil {
		return err
	}
	table, chain := deafTable(), deafChain(link)
	c.AddTable(table) // so that there is one to delete
	c.DelTable(table)
	c.AddTable(table)
	c.AddChain(chain.Chain)
	for _, rule := range chain.rules {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain.Chain, Exprs: rule})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write table netdev %s of nftables: %w", deafTableName, err)
	}
	return nil
}

// RemoveUplinkTable has the kernel receive again what a card receives that was the dataplane's. The table outlives the card: newer
// kernels (6.18 does) apply it to the next link of that name.
func RemoveUplinkTable() error {
	err := removeTable(deafTable())
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

// isDeaf tells whether the kernel is kept from what a card receives.
func isDeaf(link string) (bool, error) {
	c, err := tables()
	if err != nil {
		return false, err
	}
	is, err := deafChain(link).isThere(c)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	return is, err
}
