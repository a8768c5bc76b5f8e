package pod

import (
	"slices"
	"strings"
	"testing"
)

// FuzzChoice reads the annotations by which a pod chooses pools and addresses.
func FuzzChoice(f *testing.F) {
	f.Add(`["blue","red"]`, `["10.0.0.1","fd00::1"]`)
	f.Add(`[""]`, `["10.0.0.1","10.0.0.2"]`)
	f.Add("null", "[\"::ffff:10.0.0.1\",\n\"fe80::1%eth0\"]")
	f.Fuzz(func(t *testing.T, pools, ips string) {
		annotations := map[string]string{AnnotationPools: pools, AnnotationIPs: ips}
		names, errPools := PoolsAsked(annotations)
		addresses, errIPs := AddressesAsked(annotations)
		for _, err := range []error{errPools, errIPs} {
			if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("the error is not one line: %q", err)
			}
		}
		if slices.Contains(names, "") || len(addresses) > 2 {
			t.Errorf("%q and %q were taken: %q, %v", pools, ips, names, addresses)
		}
		for i, a := range addresses {
			if !a.IsValid() || a.Zone() != "" || a.Is4In6() || i == 1 && a.Is4() == addresses[0].Is4() {
				t.Errorf("%q was taken: %v", ips, addresses)
			}
		}
	})
}
