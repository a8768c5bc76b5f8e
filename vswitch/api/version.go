package api

import (
	"strconv"
	"strings"
	"time"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/arp"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip6_nd"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/binapi/vpe_types"
)

// Version is what show_version says: whose API this is the likeness of, and that it is not VPP itself.
const (
	program = "weft-vswitch"
	version = "25.10-weft"
)

func (s *Server) addVersion() {
	handle(s, func(*client, *vpe.ShowVersion) (*vpe.ShowVersionReply, error) {
		return &vpe.ShowVersionReply{Program: program, Version: version}, nil
	})
	handle(s, func(*client, *vpe.ShowVpeSystemTime) (*vpe.ShowVpeSystemTimeReply, error) {
		now := float64(time.Now().UnixNano()) / float64(time.Second)
		return &vpe.ShowVpeSystemTimeReply{VpeSystemTime: vpe_types.Timestamp(now)}, nil
	})
}

// apiVersions are the versions of the .api files whose messages are here.
func apiVersions() []memclnt.ModuleVersion {
	return []memclnt.ModuleVersion{
		moduleVersion(memclnt.APIFile, memclnt.APIVersion),
		moduleVersion(vpe.APIFile, vpe.APIVersion),
		moduleVersion(vlib.APIFile, vlib.APIVersion),
		moduleVersion(interfaces.APIFile, interfaces.APIVersion),
		moduleVersion(tapv2.APIFile, tapv2.APIVersion),
		moduleVersion(af_packet.APIFile, af_packet.APIVersion),
		moduleVersion(memif.APIFile, memif.APIVersion),
		moduleVersion(acl.APIFile, acl.APIVersion),
		moduleVersion(arp.APIFile, arp.APIVersion),
		moduleVersion(ip6_nd.APIFile, ip6_nd.APIVersion),
		moduleVersion(ip.APIFile, ip.APIVersion),
		moduleVersion(ip_neighbor.APIFile, ip_neighbor.APIVersion),
	}
}

// moduleVersion reads "1.2.3".
func moduleVersion(file, version string) memclnt.ModuleVersion {
	var n [3]uint32
	for i, part := range strings.SplitN(version, ".", len(n)) {
		v, err := strconv.ParseUint(part, 10, 32)
		if err == nil {
			n[i] = uint32(v)
		}
	}
	return memclnt.ModuleVersion{Major: n[0], Minor: n[1], Patch: n[2], Name: file + ".api"}
}
