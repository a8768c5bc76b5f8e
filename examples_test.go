package weft_test

import (
	"os"
	"slices"
	"testing"
)

// referencePlugins are the programs of github.com/containernetworking/plugins.
var referencePlugins = []string{
	"bandwidth", "bridge", "dhcp", "dummy", "firewall", "host-device", "host-local", "ipvlan", "loopback", "macvlan", "portmap", "ptp", "sbr", "static",
	"tap", "tuning", "vlan", "vrf",
}

// A runtime that searches bin before the directory of the CNI plugins would execute an example instead of a plugin of that name.
func TestNoExampleHasTheNameOfACNIPlugin(t *testing.T) {
	examples, err := os.ReadDir("memif/examples")
	if err != nil || len(examples) == 0 {
		t.Fatal(examples, err)
	}
	for _, e := range examples {
		if slices.Contains(referencePlugins, e.Name()) {
			t.Errorf("memif/examples/%s has the name of a CNI plugin", e.Name())
		}
	}
}
