package linux

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

func prefixes(list ...string) (all []netip.Prefix) {
	for _, p := range list {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

func masqueradeObject(v wire.Masquerade) object { return object{wire.MasqueradeKey(), v} }

// cluster is the value of most tests.
func cluster() wire.Masquerade {
	return wire.Masquerade{
		Link:    nodeLink,
		Egress:  true,
		Pods:    prefixes("10.1.0.0/24", "10.1.1.0/24", "fd00:1::/32"),
		Exclude: prefixes("198.51.100.0/24", "fd00:3::/64"),
		Guard: wire.TunnelGuard{Port: tunnelPort, Link: tunnelLink, Nodes: prefixes(
			"192.0.2.1/32", "192.0.2.2/32", "192.0.2.9/32", "2001:db8:ff::1/128", "2001:db8:ff::2/128",
			"fd00:2::1/128", "fd00:2::9/128")},
	}
}

// withClients gives the pods of this node client addresses that the other pods of this node see.
func withClients(v wire.Masquerade) wire.Masquerade {
	v.Clients = wire.ServiceClients{
		Ranges: prefixes("100.64.0.0/10", "fc00::/8"), Pods: prefixes("10.1.0.0/24", "fd00:1::/64"),
		Addresses: prefixes("100.65.0.0/24", "fc00:1::/64"), Endpoints: prefixes("10.1.0.0/24", "fd00:1::/64"),
	}
	return v
}

// newTableLab makes a lab on a node without the table, and removes the table after the test.
func newTableLab(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	t.Cleanup(func() { must(t, RemoveMasquerade()) })
	return l
}

// resync repairs differences.
func (l *lab) resync() {
	l.Helper()
	if _, err := l.s.Resync(l.Context(), kvscheduler.ResyncOpt{}); err != nil {
		l.Fatal(err)
	}
}

func nft(t *testing.T) *nftables.Conn {
	t.Helper()
	c, err := nftables.New()
	must(t, err)
	return c
}

// rulesThere returns the rules of Weft's chain; none without the table.
func rulesThere(t *testing.T) []*nftables.Rule {
	t.Helper()
	rules, err := nft(t).GetRules(inetTable(tableName), &nftables.Chain{Name: chainName})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	must(t, err)
	return rules
}

func TestMasqueradeTableIsCreatedReadUpdatedAndDeleted(t *testing.T) {
	l := newTableLab(t)
	all := cluster()
	none := wire.Masquerade{Link: nodeLink}
	changed := cluster()
	changed.Exclude = prefixes("0.0.0.0/0", "::/0")
	changed.Link = "other0"
	changed.Guard = wire.TunnelGuard{Port: 8472}
	translated := withClients(cluster())
	less := withClients(cluster())
	less.Clients.Ranges = less.Clients.Ranges[1:]
	for _, v := range []wire.Masquerade{all, none, translated, less, changed, translated, all} {
		l.mustCommit(masqueradeObject(v))
		l.quiet()
	}
	l.mustCommit(object{key: wire.MasqueradeKey()})
	l.quiet()
	tables, err := nft(t).ListTables()
	must(t, err)
	if len(tables) != 0 {
		t.Errorf("%d tables are left", len(tables))
	}
}

// Foreign changes of the table are repaired. The table without a desired value is removed.
func TestAChangedTableIsRepaired(t *testing.T) {
	table := inetTable(tableName)
	chain := &nftables.Chain{Name: chainName, Table: table}
	spoils := map[string]func(t *testing.T, c *nftables.Conn){
		"the table is gone": func(_ *testing.T, c *nftables.Conn) { c.DelTable(table) },
		"rules are gone":    func(_ *testing.T, c *nftables.Conn) { c.FlushChain(chain) },
		"a rule is gone":    func(t *testing.T, c *nftables.Conn) { must(t, c.DelRule(rulesThere(t)[2])) },
		"a rule was added": func(_ *testing.T, c *nftables.Conn) {
			c.InsertRule(&nftables.Rule{
				Table: table,
				Chain: chain,
				Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}},
			})
		},
		"the guard's rules are gone": func(_ *testing.T, c *nftables.Conn) {
			c.FlushChain(&nftables.Chain{Name: "guard-forward", Table: table})
		},
		// a chain of another table may come first then
		"a chain comes at another priority": func(t *testing.T, _ *nftables.Conn) {
			there := masqueradeTable.table(withClients(cluster()))
			moved := *there.chains[0].Chain
			moved.Priority = new(*moved.Priority + 1)
			there.chains[0].Chain = &moved
			must(t, there.replace())
		},
		"the translation of clients is gone": func(t *testing.T, c *nftables.Conn) {
			must(t, c.DelRule(rulesThere(t)[0]))
		},
		"a client is gone": func(_ *testing.T, c *nftables.Conn) {
			c.FlushSet(addressSets[6].in(table))
		},
		"a node is gone": func(_ *testing.T, c *nftables.Conn) {
			c.FlushSet(addressSets[4].in(table))
		},
		"elements are gone": func(_ *testing.T, c *nftables.Conn) {
			c.FlushSet(addressSets[0].in(table))
		},
		"an element was added": func(t *testing.T, c *nftables.Conn) {
			must(t, c.SetAddElements(addressSets[2].in(table), []nftables.SetElement{
				{Key: []byte{192, 0, 2, 0}}, {Key: []byte{192, 0, 3, 0}, IntervalEnd: true},
			}))
		},
	}
	l := newTableLab(t)
	l.mustCommit(masqueradeObject(withClients(cluster())))
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			c := nft(t)
			spoil(t, c)
			must(t, c.Flush())
			l.staysDifferent(wire.MasqueradeKey())
			if got := l.different(); !slices.Equal(got, []string{wire.MasqueradeKey()}) {
				t.Errorf("objects %v differ", got)
			}
			l.resync()
			l.quiet()
		})
	}
}

// A table of an earlier agent that is not recorded belongs to Weft.
func TestUnknownTableIsRemovedOrAdopted(t *testing.T) {
	l := newTableLab(t)
	must(t, masqueradeTable.table(wire.Masquerade{Link: "old0", Pods: prefixes("10.9.0.0/16")}).replace())
	l.resync()
	if rules := rulesThere(t); len(rules) != 0 {
		t.Errorf("%d rules of an undesired table are left", len(rules))
	}
	must(t, masqueradeTable.table(wire.Masquerade{Link: "old0", Pods: prefixes("10.9.0.0/16")}).replace())
	l.mustCommit(masqueradeObject(cluster()))
	l.quiet()
}

func TestForeignTablesAreKept(t *testing.T) {
	l := newTableLab(t)
	c := nft(t)
	// with the name of Weft's, in another family
	other := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: tableName})
	chain := c.AddChain(&nftables.Chain{
		Name:     chainName,
		Table:    other,
		Type:     nftables.ChainTypeNAT,
		Hooknum:  nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource,
	})
	c.AddRule(&nftables.Rule{Table: other, Chain: chain, Exprs: []expr.Any{&expr.Counter{}}})
	must(t, c.Flush())
	t.Cleanup(func() { c.DelTable(other); must(t, c.Flush()) })
	before, err := c.GetRules(other, chain)
	must(t, err)
	l.mustCommit(masqueradeObject(cluster()))
	l.resync()
	l.mustCommit(object{key: wire.MasqueradeKey()})
	after, err := c.GetRules(other, chain)
	must(t, err)
	if len(before) != 1 || len(after) != 1 || before[0].Handle != after[0].Handle {
		t.Errorf("the rules of the foreign table were %v and are %v", before, after)
	}
}

func TestManyRangesAreWrittenAndReadBack(t *testing.T) {
	l := newTableLab(t)
	many := wire.Masquerade{Link: nodeLink, Egress: true}
	for i := range 1024 { // every other /24, and every other /104
		many.Pods = append(many.Pods,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 7), byte(i << 1), 0}), 25),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 11: byte(i >> 7), 12: byte(i << 1)}), 104))
	}
	slices.SortFunc(many.Pods, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	l.mustCommit(masqueradeObject(many))
	l.quiet()
	many.Pods = many.Pods[:len(many.Pods)/2]
	l.mustCommit(masqueradeObject(many))
	l.quiet()
}

func TestRangesCoverWhatPrefixesCover(t *testing.T) {
	bytes := rapid.SliceOfN(rapid.Byte(), 4, 4)
	one := rapid.Custom(func(t *rapid.T) netip.Prefix {
		raw := bytes.Draw(t, "address")
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10 + raw[0]%2*245, 0, raw[2], raw[3]}),
			rapid.IntRange(0, 32).Draw(t, "bits")).Masked()
	})
	rapid.Check(t, func(t *rapid.T) {
		given := rapid.SliceOfN(one, 0, 12).Draw(t, "prefixes")
		ranges := rangesOf(given, true)
		again := prefixesOf(ranges)
		if got := rangesOf(again, true); !slices.Equal(got, ranges) {
			t.Fatalf("%v became %v and then %v", given, ranges, got)
		}
		if len(again) > 0 && len(rangesOf(given, false)) > 0 {
			t.Fatalf("%v has ranges of IPv6", given)
		}
		for range 20 {
			raw := bytes.Draw(t, "probe")
			a := netip.AddrFrom4([4]byte{10 + raw[0]%2*245, 0, raw[2], raw[3]})
			within := func(p netip.Prefix) bool { return p.Contains(a) }
			if in := slices.ContainsFunc(given, within); in != slices.ContainsFunc(again, within) {
				t.Fatalf("%s in %v: %t, but not in %v", a, given, in, again)
			}
		}
	})
}

// An uplink that cannot be moved without nf_tables has to be released: addresses and routes would stay on the link to
// the dataplane.
func TestDeleteOfATableSucceedsWithoutNFTables(t *testing.T) {
	for what, tt := range map[string]struct{ err, want error }{
		"deleted":           {nil, nil},
		"missing":           {fmt.Errorf("receive: %w", unix.ENOENT), nil},
		"without nf_tables": {fmt.Errorf("receive: %w", unix.EOPNOTSUPP), nil},
		"not allowed":       {unix.EPERM, unix.EPERM},
	} {
		if err := tableDeleted(tableName, tt.err); !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", what, err, tt.want)
		}
	}
}
