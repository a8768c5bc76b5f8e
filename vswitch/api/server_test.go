package api

import (
	"errors"
	"path"
	"reflect"
	"slices"
	"testing"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/binapi/vxlan"
)

func TestGovppClientConnectsAndSendsRequests(t *testing.T) {
	conn := start(t, Limits{}).connect(t)
	ping, err := memclnt.NewServiceClient(conn).ControlPing(t.Context(), &memclnt.ControlPing{})
	if err != nil || ping.VpePID == 0 {
		t.Fatalf("control_ping: %+v, %v", ping, err)
	}
	v, err := vpe.NewServiceClient(conn).ShowVersion(t.Context(), &vpe.ShowVersion{})
	if err != nil || v.Program != program || v.Version != version {
		t.Fatalf("show_version: %+v, %v", v, err)
	}
	list := newTestClient(t.Context(), conn).interfaces(t)
	if len(list) != 1 || list[0].InterfaceName != "local0" {
		t.Fatalf("interfaces: %+v", list)
	}
}

func TestUnsupportedMessageIsUnknownToTheClient(t *testing.T) {
	conn := start(t, Limits{}).connect(t)
	_, err := vxlan.NewServiceClient(conn).SwInterfaceSetVxlanBypass(t.Context(), &vxlan.SwInterfaceSetVxlanBypass{})
	var unknown *adapter.UnknownMsgError
	if !errors.As(err, &unknown) {
		t.Fatalf("want UnknownMsgError, got %v", err)
	}
}

func TestAPIVersionsListTheModuleOfEachMessage(t *testing.T) {
	var modules []string
	for _, v := range apiVersions() {
		modules = append(modules, v.Name)
	}
	for _, h := range prepare(t, Limits{}).table.requests {
		m := h.newRequest()
		if module := path.Base(reflect.TypeOf(m).Elem().PkgPath()) + ".api"; !slices.Contains(modules, module) {
			t.Errorf("api_versions has no %s, the module of %s", module, m.GetMessageName())
		}
	}
}
