package ipnet

import (
	"net/netip"
	"reflect"

	"github.com/weftnet/weft/eventloop"
)

// values are desired values under their keys, in the order in which people read them.
type values []eventloop.Setting

func (v *values) add(key string, value any) {
	*v = append(*v, eventloop.Setting{Key: key, Value: value})
}

func (v values) put(t *eventloop.Txn) {
	for _, s := range v {
		t.Put(s.Key, s.Value)
	}
}

func (v values) keys() []string {
	keys := make([]string, len(v))
	for i, s := range v {
		keys[i] = s.Key
	}
	return keys
}

// single is the prefix that holds nothing but a.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// replace asks for what is another than it was: what is gone, and what is new or has another value.
func replace(t *eventloop.Txn, was, is values) {
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
