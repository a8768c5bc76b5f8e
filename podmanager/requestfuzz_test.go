package podmanager

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// FuzzRequested reads any ADD request. What is taken has valid addresses, at most one a family.
func FuzzRequested(f *testing.F) {
	for _, req := range []*weftv1.AddRequest{
		{Mac: "02:00:00:00:00:01", Ips: []string{"10.0.0.1/24", "fd00::1"}},
		{Ips: []string{"10.0.0.1", "::ffff:10.0.0.2"}, Mac: "01:00:00:00:00:01"},
		{Mode: pod.ModeDelegate, InterfaceNetwork: "blue", InterfaceType: "memif", InterfaceOptions: `{"ringSize":512}`},
		{DelegatedIps: []*weftv1.IP{{Address: "10.0.0.1/24", Gateway: "10.0.0.2"}}, DelegatedRoutes: []*weftv1.Route{{Destination: "0.0.0.0/0"}}},
	} {
		raw, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var req weftv1.AddRequest
		if proto.Unmarshal(raw, &req) != nil {
			return
		}
		got, err := requested(&req)
		if err != nil {
			if e, is := errors.AsType[*pod.Error](err); !is || e.Code == 0 {
				t.Errorf("the error has no code: %v", err)
			}
			return
		}
		if len(got.Addresses) > 2 || len(got.Delegated) > 2 || len(got.DelegatedGateways) != len(got.Delegated) || strings.ContainsAny(got.MAC, " \n") {
			t.Errorf("%v was taken: %+v", &req, got)
		}
		for _, a := range got.Addresses {
			if !a.IsValid() || a.Addr().Is4In6() {
				t.Errorf("%v was taken: address %v", &req, a)
			}
		}
		for _, p := range got.Delegated {
			if !p.IsValid() {
				t.Errorf("%v was taken: address %v", &req, p)
			}
		}
	})
}
