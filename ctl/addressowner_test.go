package ctl

import (
	"testing"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func TestTheOwnerOfAnAddressIsShownWithItsClaim(t *testing.T) {
	db := &weftv1.Pod{Namespace: "shop", Name: "db-0"}
	for _, tt := range []struct {
		lease *operatorv1.Lease
		want  string
	}{
		{&operatorv1.Lease{Pod: db, Interface: "t1", State: "used", Holder: "weft/c1/eth0"}, "shop/db-0:t1"},
		{
			&operatorv1.Lease{Pod: db, Interface: "t1", State: "used", Holder: "weft/c1/eth0", Claim: "shop/db-0.t1"},
			"shop/db-0:t1, IPAMClaim shop/db-0.t1",
		},
		{
			&operatorv1.Lease{State: "occupied", Holder: "IPAMClaim shop/db-0.t1", Claim: "shop/db-0.t1"},
			"IPAMClaim shop/db-0.t1",
		},
	} {
		if got := leaseOwner(tt.lease); got != tt.want {
			t.Errorf("owner %q, want %q", got, tt.want)
		}
	}
}
