package dra

import (
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// attachmentOf returns an attachment with a memif of an allocation.
func attachmentOf(allocation string) *pod.Attachment {
	return &pod.Attachment{
		Pod: pod.ID{Namespace: "shop", Name: "a", UID: "uid-a"}, Created: time.Now(),
		Interfaces: []pod.Interface{{Name: "eth0", Type: pod.TypeTap}, {
			Name:      "fast",
			Type:      pod.TypeMemif,
			MAC:       netaddr.MAC{2, 0xfe, 0, 0, 0, 1},
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.5.0.7/24")},
			Memif:     &pod.Memif{Allocation: allocation},
		}},
	}
}
