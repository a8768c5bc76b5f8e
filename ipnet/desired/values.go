// Package desired makes desired values: their names, and the values of a link between the dataplane and a namespace and
// of a VRF. It has no state.
package desired

import (
	"net/netip"
	"reflect"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
)

// LeastMTU is the lowest MTU that the families permit.
func LeastMTU(families []netaddr.Family) int {
	return pod.MinMTU(slices.Contains(families, netaddr.IP6))
}

// FamiliesOf lists the families of prefixes, IPv4 first.
func FamiliesOf(prefixes []netip.Prefix) []netaddr.Family {
	var families []netaddr.Family
	for _, f := range []netaddr.Family{netaddr.IP4, netaddr.IP6} {
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return netaddr.FamilyOf(p.Addr()) == f }) {
			families = append(families, f)
		}
	}
	return families
}

// Singles returns the addresses of prefixes as prefixes of full length.
func Singles(prefixes []netip.Prefix) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range prefixes {
		all = append(all, netaddr.Single(p.Addr()))
	}
	return all
}

// HasFamily reports whether a prefix is of the family.
func HasFamily(prefixes []netip.Prefix, f netaddr.Family) bool {
	for _, p := range prefixes {
		if netaddr.FamilyOf(p.Addr()) == f {
			return true
		}
	}
	return false
}

// Values are desired values under their keys, in the order of the log.
type Values []eventloop.Setting

// Add appends a value.
func (v *Values) Add(key string, value any) {
	*v = append(*v, eventloop.Setting{Key: key, Value: value})
}

// Put desires all values in the transaction.
func (v Values) Put(t *eventloop.Txn) {
	for _, s := range v {
		t.Put(s.Key, s.Value)
	}
}

// Keys lists the keys of the values.
func (v Values) Keys() []string {
	keys := make([]string, len(v))
	for i, s := range v {
		keys[i] = s.Key
	}
	return keys
}

// Replace adds the difference of two lists to the transaction.
func Replace(t *eventloop.Txn, was, is Values) {
	before := make(map[string]any, len(was))
	for _, s := range was {
		before[s.Key] = s.Value
	}
	after := make(map[string]bool, len(is))
	for _, s := range is {
		after[s.Key] = true
	}
	for _, s := range was {
		if !after[s.Key] {
			t.Delete(s.Key)
		}
	}
	for _, s := range is {
		if !reflect.DeepEqual(before[s.Key], s.Value) {
			t.Put(s.Key, s.Value)
		}
	}
}
