package plan_test

import (
	"testing"

	"github.com/weftnet/weft/kvscheduler/plan"
)

func TestAKeyIsAKindAndAName(t *testing.T) {
	for key, want := range map[string]plan.Ref{
		"vpp.interface/tap1": {Kind: "vpp.interface", Name: "tap1"},
		"route/a/10.0.0.0/8": {Kind: "route", Name: "a/10.0.0.0/8"},
	} {
		if got, err := plan.ParseRef(key); err != nil || got != want || got.String() != key {
			t.Errorf("%q: %v, %v", key, got, err)
		}
	}
	for _, key := range []string{"", "kind", "kind/", "/name", "/"} {
		if got, err := plan.ParseRef(key); err == nil {
			t.Errorf("%q is accepted as %v", key, got)
		}
	}
}

func TestADependencyIsDescribedWithItsLabel(t *testing.T) {
	for want, dep := range map[string]plan.Dep{
		"o/a":               {On: ref("a")},
		"o/a (the uplink)":  {On: ref("a"), Label: "the uplink"},
		`any o of "x"`:      anyOf("x"),
		`any o of "x" (up)`: {Any: &plan.Select{Kind: "o", Bucket: "x"}, Label: "up"},
	} {
		if got := dep.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
