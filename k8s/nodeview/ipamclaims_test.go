package nodeview_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/api/npwg"
)

const claimResource = "ipamclaims.k8s.cni.cncf.io"

func TestAClaimIsAssignedOnce(t *testing.T) {
	l := newLab(t)
	l.Put(claimResource, &npwg.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "u"},
		Spec:       npwg.IPAMClaimSpec{Network: "blue", Interface: "t1"},
	})
	c := l.Known(nil)
	claim, err := c.IPAMClaim(t.Context(), "shop", "db-0")
	if err != nil || claim.Network != "blue" || claim.Interface != "t1" || len(claim.Addresses) != 0 {
		t.Fatalf("claim %+v, %v", claim, err)
	}
	own := []netip.Prefix{netip.MustParsePrefix("10.5.0.7/24")}
	for range 2 { // repeated, as after a lost reply
		if err := c.Assign(t.Context(), claim, "db-0", own); err != nil {
			t.Fatal(err)
		}
	}
	l.Eventually("the address is held", func() bool {
		return fmt.Sprint(c.View().IPAMClaims) == "[IPAMClaim shop/db-0]" &&
			fmt.Sprint(c.View().IPAMClaims[0].Addresses) == "[10.5.0.7]"
	})
	other := []netip.Prefix{netip.MustParsePrefix("10.5.0.8/24")}
	if err := c.Assign(t.Context(), claim, "db-1", other); err == nil || !strings.Contains(err.Error(), "holds [10.5.0.7/24]") {
		t.Errorf("another pod changed the claim: %v", err)
	}
	claim.UID = "v"
	if err := c.Assign(t.Context(), claim, "db-0", own); err == nil || !strings.Contains(err.Error(), "was replaced") {
		t.Errorf("another claim of the name was written: %v", err)
	}
	if _, err := c.IPAMClaim(t.Context(), "shop", "none"); err == nil ||
		!strings.Contains(err.Error(), "there is no IPAMClaim shop/none") {
		t.Errorf("a claim that does not exist: %v", err)
	}
}
