package linux

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	netfilter "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// Names of what is ours in nftables.
const (
	tableName = "weft"
	chainName = "postrouting"
)

// addressSet is one of the table's sets, and what of a value is in it.
type addressSet struct {
	name string
	is4  bool
	of   func(wire.Masquerade) []netip.Prefix
}

var addressSets = []addressSet{
	{"pods4", true, func(v wire.Masquerade) []netip.Prefix { return v.Pods }},
	{"pods6", false, func(v wire.Masquerade) []netip.Prefix { return v.Pods }},
	{"exclude4", true, func(v wire.Masquerade) []netip.Prefix { return v.Exclude }},
	{"exclude6", false, func(v wire.Masquerade) []netip.Prefix { return v.Exclude }},
	{"nodes4", true, func(v wire.Masquerade) []netip.Prefix { return v.Guard.Nodes }},
	{"nodes6", false, func(v wire.Masquerade) []netip.Prefix { return v.Guard.Nodes }},
}

// perMessage is how many elements of a set go into one message, whose length has 16 bits: an element has 48 bytes at most.
const perMessage = 1000

// largestBatch is how much one change may be: the kernel takes a change as one message, however many ranges it has. Where
// not root asks for it, the kernel may leave it at less.
const largestBatch = 4 << 20

// tables reaches nftables in the namespace of the calling thread.
func tables() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netfilter.Conn) error {
		return errors.Join(c.SetWriteBuffer(largestBatch), c.SetDeadline(time.Now().Add(socketLimit)))
	}))
}

func ourTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
}

// writeTable makes the table in place of the one that may be there, in one step.
func writeTable(v wire.Masquerade) error {
	c, err := tables()
	if err != nil {
		return err
	}
	table := ourTable()
	c.AddTable(table) // so that there is one to delete
	c.DelTable(table)
	c.AddTable(table)
	for _, s := range addressSets {
		set := s.in(table)
		if err := errors.Join(c.AddSet(set, nil), s.fill(c, set, v)); err != nil {
			return fmt.Errorf("make set %s of nftables: %w", s.name, err)
		}
	}
	for _, chain := range masqueradeChains(table, v) {
		c.AddChain(chain.Chain)
		for _, rule := range chain.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain.Chain, Exprs: rule})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write table inet %s of nftables: %w", tableName, err)
	}
	return nil
}

// masqueradeChains are the chains of the table: that of the translation, and those of the guard.
func masqueradeChains(table *nftables.Table, v wire.Masquerade) []tableChain {
	return append([]tableChain{{masqueradeChain(table), rulesOf(v)}}, guardChains(table, v)...)
}

func masqueradeChain(table *nftables.Table) *nftables.Chain {
	return &nftables.Chain{
		Name: chainName, Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource,
	}
}

// fillSets changes nothing but what is in the sets.
func fillSets(v wire.Masquerade) error {
	c, err := tables()
	if err != nil {
		return err
	}
	table := ourTable()
	for _, s := range addressSets {
		set := s.in(table)
		c.FlushSet(set)
		if err := s.fill(c, set, v); err != nil {
			return fmt.Errorf("fill set %s of nftables: %w", s.name, err)
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("fill the sets of table inet %s of nftables: %w", tableName, err)
	}
	return nil
}

func (s addressSet) in(table *nftables.Table) *nftables.Set {
	kind := nftables.TypeIP6Addr
	if s.is4 {
		kind = nftables.TypeIPAddr
	}
	return &nftables.Set{Table: table, Name: s.name, KeyType: kind, Interval: true}
}

// fill adds the elements that a value has in the set. A range that ends with the family's highest address has no end.
func (s addressSet) fill(c *nftables.Conn, set *nftables.Set, v wire.Masquerade) error {
	var elements []nftables.SetElement
	for _, r := range rangesOf(s.of(v), s.is4) {
		elements = append(elements, nftables.SetElement{Key: r.first.AsSlice()})
		if after := r.last.Next(); after.IsValid() {
			elements = append(elements, nftables.SetElement{Key: after.AsSlice(), IntervalEnd: true})
		}
	}
	for part := range slices.Chunk(elements, perMessage) {
		if err := c.SetAddElements(set, part); err != nil {
			return err
		}
	}
	return nil
}

// readTable gives the table as a value; link, egress and the guard's port only if the rules are those of one that is known.
func readTable(known []wire.Masquerade) (have wire.Masquerade, found bool, err error) {
	c, err := tables()
	if err != nil {
		return have, false, err
	}
	table, err := c.ListTableOfFamily(tableName, nftables.TableFamilyINet)
	if errors.Is(err, unix.ENOENT) || err == nil && table == nil {
		return have, false, nil
	}
	if err != nil {
		return have, false, fmt.Errorf("read table inet %s of nftables: %w", tableName, err)
	}
	complete := true
	for i, list := range []*[]netip.Prefix{&have.Pods, &have.Pods, &have.Exclude, &have.Exclude, &have.Guard.Nodes, &have.Guard.Nodes} {
		prefixes, there, err := addressSets[i].read(c, table)
		if err != nil {
			return have, false, err
		}
		complete = complete && there
		*list = append(*list, prefixes...)
	}
	for _, v := range known {
		same, err := hasRules(c, table, v)
		if err != nil {
			return have, false, err
		}
		if complete && same {
			have.Link, have.Egress = v.Link, v.Egress
			have.Guard.Port, have.Guard.Link = v.Guard.Port, v.Guard.Link
		}
	}
	return have, true, nil
}

// read gives what is in the set; not there if it is missing or of another kind.
func (s addressSet) read(c *nftables.Conn, table *nftables.Table) (prefixes []netip.Prefix, there bool, err error) {
	set, err := c.GetSetByName(table, s.name)
	if errors.Is(err, unix.ENOENT) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read set %s of nftables: %w", s.name, err)
	}
	elements, err := c.GetSetElements(s.in(table))
	if err != nil {
		return nil, false, fmt.Errorf("read elements of set %s of nftables: %w", s.name, err)
	}
	ranges, sound := rangesIn(elements)
	return prefixesOf(ranges), sound && set.Interval, nil
}

// rangesIn are the ranges of a set's elements, which the kernel gives in any order.
func rangesIn(elements []nftables.SetElement) (ranges []addressRange, sound bool) {
	slices.SortFunc(elements, func(a, b nftables.SetElement) int { return slices.Compare(a.Key, b.Key) })
	open := false
	for _, e := range elements {
		a, ok := netip.AddrFromSlice(e.Key)
		if !ok || e.IntervalEnd != open {
			return nil, false
		}
		if e.IntervalEnd {
			ranges[len(ranges)-1].last = a.Prev()
		} else {
			ranges = append(ranges, addressRange{a, lastOf(netip.PrefixFrom(a, 0))})
		}
		open = !open
	}
	return ranges, true
}
