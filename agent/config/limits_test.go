package config

import (
	"path"
	"strings"
	"testing"
	"time"
)

// Each key with a range accepts both ends of the range, and rejects values beyond. check-config prints the values of
// timers.
func TestLimitsOfValues(t *testing.T) {
	const (
		four = "pools: [a=10.1.0.0/24]\n"
		six  = "pools: ['a=fd00::/64']\n"
	)
	for _, tc := range []struct{ file, key, below, least, most, above string }{
		{four, "coolDown", "-1ns", "0s", "1h0m0s", "1h0m1s"},
		{four, "gcGrace", "-1ns", "0s", "1h0m0s", "1h0m1s"},
		{four, "audit", "999ms", "1s", "24h0m0s", "24h0m1s"},
		{four, "kubernetes.blockWait", "999ms", "1s", "1m0s", "1m1s"},
		{four, "mtu", "575", "576", "9600", "9601"},
		{six, "mtu", "1279", "1280", "9600", "9601"},
		{four, "podQueues", "0", "1", "4", "5"},
		{four, "maxPodQueues", "0", "1", "16", "17"},
		{four, "hostLink", "''", "x", "a23456789012345", "a234567890123456"},
		{four, "dataplane.vethsPerThread", "-1", "0", "15", "16"},
		{four, "dataplane.vethRxFrames", "5", "6", "64", "65"},
		{four, "dataplane.vethTxFrames", "15", "16", "1024", "1025"},
		{four, "devices.memif.count", "-1", "0", "1024", "1025"},
		{four, "devices.memif.collectAfter", "999ms", "1s", "1h0m0s", "1h0m1s"},
		{four, "devices.memif.maxRingSize", "1", "2", "16384", "16385"},
		{four, "devices.memif.maxBufferSize", "63", "64", "65536", "65537"},
		{four, "devices.memif.maxQueues", "0", "1", "255", "256"},
		{"", "pools", "[a=10.1.0.0/31]", "[a=10.1.0.0/30]", "[a=10.0.0.0/8]", "[a=10.1.0.0/33]"},
		{"", "pools", "['a=fd00::/127']", "['a=fd00::/126']", "['a=fc00::/7']", "['a=fd00::/129']"},
	} {
		t.Run(tc.key, func(t *testing.T) {
			for _, value := range []string{tc.least, tc.most} {
				c, err := configOf(t, tc.file+tc.key+": "+value, nil, nil)
				if err != nil {
					t.Errorf("%s: %s is rejected: %v", tc.key, value, err)
				}
				if _, err := time.ParseDuration(value); err == nil &&
					!strings.Contains(c.String(), path.Base(strings.ReplaceAll(tc.key, ".", "/"))+": "+value+"\n") {
					t.Errorf("%s: %s is not in\n%s", tc.key, value, c)
				}
			}
			for _, value := range []string{tc.below, tc.above} {
				if _, err := configOf(t, tc.file+tc.key+": "+value, nil, nil); err == nil ||
					!strings.Contains(err.Error(), tc.key) {
					t.Errorf("%s: %s: got %v", tc.key, value, err)
				}
			}
		})
	}
}
