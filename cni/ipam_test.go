package cni

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
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
		`{"cniVersion":"1.0.0","ips":[null]}`,
		`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}],"routes":[null]}`,
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

func TestLeaseRejectsIncompleteResults(t *testing.T) {
	for text, want := range map[string]string{
		`{"cniVersion":"1.0.0"}`:                                                                   "it returned no address",
		`{"cniVersion":"1.0.0","ips":[]}`:                                                          "it returned no address",
		`{"cniVersion":"1.0.0","ips":[null]}`:                                                      errIncomplete.Error(),
		`{"cniVersion":"1.0.0","ips":[{"address":""}]}`:                                            "invalid CIDR address",
		`{"cniVersion":"1.0.0","ips":[{}]}`:                                                        errIncomplete.Error(),
		`{"cniVersion":"0.4.0","ips":[null]}`:                                                      errIncomplete.Error(),
		`{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}],"routes":[null]}`:                 errIncomplete.Error(),
		`{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}],"routes":[{}]}`:                   errIncomplete.Error(),
		`{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}],"routes":[{"dst":"10.0.0.0/8"}]}`: "",
	} {
		_, err := (&ipamPlugin{
			name:  "host-local",
			stdin: []byte(`{"cniVersion":"1.0.0"}`),
			exec:  printing{text: []byte(text)},
		}).lease(t.Context())
		if got := textOfError(err); want == "" && err != nil || !strings.Contains(got, want) ||
			err != nil && !strings.HasPrefix(got, "ADD of ipam host-local: ") {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestErrorsOfAnIPAMPluginKeepOnlyCodesOfTheSpecification(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		err  error
		want types.Error
	}{
		"a code of the specification": {
			t.Context(), types.NewError(11, "busy", "later"),
			types.Error{Code: 11, Msg: "DEL of ipam dhcp: busy", Details: "later"},
		},
		"a code of the plugin": {
			t.Context(), types.NewError(100, "no lease", "eth0"),
			types.Error{Code: 999, Msg: "DEL of ipam dhcp: no lease", Details: "its code 100: eth0"},
		},
		"the last code below 100": {
			t.Context(), types.NewError(99, "x", ""), types.Error{Code: 99, Msg: "DEL of ipam dhcp: x"},
		},
		"no details": {
			t.Context(), types.NewError(200, "no lease", ""),
			types.Error{Code: 999, Msg: "DEL of ipam dhcp: no lease", Details: "its code 200"},
		},
		"no code": {
			t.Context(), types.NewError(0, "odd", ""),
			types.Error{Code: 999, Msg: "DEL of ipam dhcp: odd", Details: "its code 0"},
		},
		"not executable": {
			t.Context(), os.ErrPermission, types.Error{Code: 999, Msg: "DEL of ipam dhcp: permission denied"},
		},
		"a timeout": {
			ended, types.NewError(11, "signal: killed", ""),
			types.Error{Code: 106, Msg: "DEL of ipam dhcp: it did not answer in time"},
		},
	} {
		err := (&ipamPlugin{name: "dhcp"}).verbError(tt.ctx, "DEL", tt.err)
		if got, is := errors.AsType[*types.Error](err); !is || *got != tt.want {
			t.Errorf("%s: %#v, want %#v", name, err, tt.want)
		}
	}
}

func TestJoinedErrorsHaveTheCodeOfTheFirst(t *testing.T) {
	agent := types.NewError(103, "refused", "see the docs")
	plugin := types.NewError(11, "busy", "later")
	for name, tt := range map[string]struct {
		first, second error
		want          types.Error
	}{
		"two CNI errors": {
			agent, plugin, types.Error{Code: 103, Msg: "refused; and busy", Details: "see the docs"},
		},
		"a plain first error": {os.ErrPermission, plugin, types.Error{Code: 999, Msg: "permission denied; and busy"}},
	} {
		if got, is := errors.AsType[*types.Error](joinErrors(tt.first, tt.second)); !is || *got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	if err := joinErrors(nil, nil); err != nil {
		t.Errorf("no errors: %v", err)
	}
	for _, one := range []error{joinErrors(agent, nil), joinErrors(nil, agent)} {
		if got, is := errors.AsType[*types.Error](one); !is || got.Code != 103 || got.Details != "see the docs" {
			t.Errorf("one error: %v", one)
		}
	}
}

// serve sets CNI_NETNS_OVERRIDE for its own library. The IPAM plugin gets the runtime's value.
func TestTheIPAMPluginGetsTheEnvironmentOfTheRuntime(t *testing.T) {
	t.Setenv("CNI_COMMAND", "ADD")
	t.Setenv(netnsOverride, "1")
	t.Setenv("CNI_ARGS", "A=b")
	for override, want := range map[string][]string{
		"":      {"CNI_ARGS=A=b", "CNI_COMMAND=DEL"},
		"false": {"CNI_ARGS=A=b", "CNI_COMMAND=DEL", "CNI_NETNS_OVERRIDE=false"},
	} {
		env := ipamEnv{"DEL", override}.AsEnv()
		got := slices.DeleteFunc(slices.Sorted(slices.Values(env)), func(pair string) bool {
			return !strings.HasPrefix(pair, "CNI_")
		})
		if !slices.Equal(got, want) {
			t.Errorf("override %q: %v, want %v", override, got, want)
		}
	}
}

func TestDelegatedAddressesAreSentInTheFormOfTheAgent(t *testing.T) {
	var req weftv1.AddRequest
	setDelegated(&req, &types100.Result{
		IPs:    []*types100.IPConfig{{Address: cidr(t, "10.7.0.9/16")}},
		Routes: []*types.Route{{Dst: cidr(t, "::/0")}},
	})
	if ip := req.GetDelegatedIps()[0]; ip.GetAddress() != "10.7.0.9/16" || ip.GetGateway() != "" ||
		req.GetDelegatedRoutes()[0].GetGateway() != "" {
		t.Errorf("a missing gateway is sent as %q", ip.GetGateway())
	}
	if req.GetDelegatedDns() != nil {
		t.Error("empty DNS settings are sent: they would replace those of the configuration")
	}
}

func TestOutcomeOfAFailedAdd(t *testing.T) {
	if outcomeUnknown(nil) || outcomeUnknown(&unreachableError{"/run/a.sock", os.ErrNotExist}) ||
		!outcomeUnknown(context.DeadlineExceeded) {
		t.Error("only a call that reached the agent, and has no reply, has an unknown outcome")
	}
}
