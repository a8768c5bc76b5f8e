package cni

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	cniversion "github.com/containernetworking/cni/pkg/version"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// printing is an IPAM plugin that prints a text.
type printing struct {
	*cniversion.PluginDecoder
	text []byte
}

func (p printing) ExecPlugin(context.Context, string, []byte, []string) ([]byte, error) {
	return p.text, nil
}

func (p printing) FindInPath(string, []string) (string, error) { return "/opt/cni/bin/host-local", nil }

// FuzzForeignResult parses results of third-party IPAM plugins. An accepted result has valid addresses and routes.
func FuzzForeignResult(f *testing.F) {
	for _, text := range []string{
		`{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{"nameservers":["1.1.1.1"]}}`,
		`{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.1.2.3/24"}]}`,
		`{"cniVersion":"0.2.0","ip4":{"ip":"10.1.2.3/24","routes":[null]}}`,
		`{"cniVersion":"1.0.0","ips":[null]}`, `{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}],"routes":[null]}`,
		`{"cniVersion":"1.0.0","ips":[{}]}`, `{"cniVersion":"9"}`, `null`, ``,
	} {
		f.Add([]byte(text))
	}
	stdin := []byte(`{"cniVersion":"1.1.0","name":"n","type":"weft-cni","ipam":{"type":"host-local"}}`)
	f.Fuzz(func(t *testing.T, text []byte) {
		plugin := &ipamPlugin{name: "host-local", stdin: stdin, exec: printing{text: text}}
		result, err := plugin.lease(t.Context())
		if err != nil {
			if e, is := errors.AsType[*types.Error](err); !is || e.Code == 0 {
				t.Errorf("the error has no code: %v", err)
			}
			return
		}
		var req weftv1.AddRequest
		setDelegated(&req, result)
		if !json.Valid(text) || len(req.GetDelegatedIps()) == 0 {
			t.Errorf("%s was taken", text)
		}
		for _, ip := range req.GetDelegatedIps() {
			if _, err := netip.ParsePrefix(ip.GetAddress()); err != nil {
				t.Errorf("%s gives address %q", text, ip.GetAddress())
			}
		}
		for _, r := range req.GetDelegatedRoutes() {
			if _, err := netip.ParsePrefix(r.GetDestination()); err != nil {
				t.Errorf("%s gives destination %q", text, r.GetDestination())
			}
		}
	})
}
