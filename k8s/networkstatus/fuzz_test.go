package networkstatus

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzAddressesOn reads the network status of a pod, which any author of pods can write.
func FuzzAddressesOn(f *testing.F) {
	f.Add(`[{"name":"a","interface":"m1","ips":["10.0.0.1","fd00::1"]}]`)
	f.Add(`[{"interface":"m1","ips":["",null,"fe80::1%eth0"]},null]`)
	f.Fuzz(func(t *testing.T, text string) {
		addresses, err := AddressesOn(map[string]string{Annotation: text}, "m1")
		if err != nil &&
			(len(addresses) > 0 || !strings.Contains(err.Error(), "m1") && !strings.Contains(err.Error(), Annotation)) {
			t.Errorf("%q: %v, %v", text, addresses, err)
		}
		if err == nil && !json.Valid([]byte(text)) {
			t.Errorf("%q was taken", text)
		}
	})
}
