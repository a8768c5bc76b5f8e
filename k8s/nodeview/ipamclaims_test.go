package nodeview_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
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

func TestAnAddressIsHeldByTheOlderClaim(t *testing.T) {
	l := newLab(t)
	born := metav1.Now()
	for at, name := range []string{"b", "a", "c"} {
		network := "blue"
		if name == "c" {
			network = "red"
		}
		l.Put(claimResource, &npwg.IPAMClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(born.Add(time.Duration(at) * time.Minute)),
			},
			Spec:   npwg.IPAMClaimSpec{Network: network},
			Status: npwg.IPAMClaimStatus{IPs: []string{"10.5.0.7/24"}},
		})
	}
	c := l.Known(nil)
	l.Eventually("claims are known", func() bool {
		v := c.View()
		return fmt.Sprint(v.IPAMClaims) == "[IPAMClaim shop/b IPAMClaim shop/c]" && len(v.Faults) == 1 &&
			strings.Contains(v.Faults[0].String(), "shop/a: status.ips: 10.5.0.7 of network blue is held by IPAMClaim shop/b")
	})
}

// After a restart the API server may be away.
func TestClaimsOfAnEarlierRunHold(t *testing.T) {
	claim := pod.IPAMClaim{
		Namespace: "shop", Name: "db-0", UID: "u", Network: "blue",
		Addresses: []netip.Addr{netip.MustParseAddr("10.5.0.7")},
	}
	l := newLab(t)
	c, err := nodeview.New(nodeview.Config{
		Node: "n1", Client: l.Client(), Question: 5 * time.Second, // nothing is watched
		Known: &nodeview.View{IPAMClaims: []pod.IPAMClaim{claim}},
	})
	if err != nil {
		t.Fatal(err)
	}
	before := len(l.Requests())
	got, err := c.IPAMClaim(t.Context(), "shop", "db-0")
	if err != nil || fmt.Sprint(got) != fmt.Sprint(claim) || len(got.Addresses) != 1 || len(l.Requests()) != before {
		t.Errorf("got %+v, %v with %d requests", got, err, len(l.Requests())-before)
	}
	if held := c.View().IPAMClaims; len(held) != 1 {
		t.Errorf("held are %v", held)
	}
}

// Two writers of one agent may write the addresses of a pod at the same time, and users change other fields.
func TestAConflictDoesNotFailTheAssignment(t *testing.T) {
	l := newLab(t)
	claim := &npwg.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "u"},
		Spec:       npwg.IPAMClaimSpec{Network: "blue", Interface: "t1"},
	}
	l.Put(claimResource, claim)
	c := l.Known(nil)
	conflicts := 0
	l.Fail(func(r *http.Request) int {
		if r.Method == http.MethodPatch && conflicts == 0 {
			conflicts++
			claim.Labels = map[string]string{"team": "red"}
			l.Put(claimResource, claim)
		}
		return 0
	})
	own := []netip.Prefix{netip.MustParsePrefix("10.5.0.7/24")}
	if err := c.Assign(t.Context(), pod.IPAMClaim{Namespace: "shop", Name: "db-0", UID: "u"}, "db-0", own); err != nil {
		t.Error(err)
	}
	if conflicts != 1 || !l.Object(claimResource, "shop", "db-0", claim) || len(claim.Status.IPs) != 1 {
		t.Errorf("after %d conflicts the claim holds %v", conflicts, claim.Status.IPs)
	}
}
