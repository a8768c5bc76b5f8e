package ui

import (
	"encoding/json"
	"net/http"

	"github.com/weftnet/weft/proto/document"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// objectKinds are the kinds of the objects of networks and of links of the node.
var objectKinds = []string{"vpp.bridge-domain/", "vpp.vrf/"}

// link is the part of an interface's value that the topology shows.
type link struct {
	Type  string `json:"type"`
	VXLAN struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
		VNI         uint32 `json:"vni"`
	} `json:"vxlan"`
}

// topology returns attachments, devices, the objects of networks, and the dataplane's interfaces that belong to no pod.
func (a *API) topology(w http.ResponseWriter, r *http.Request) {
	attached, err := a.Operations.Attachments(r.Context(), &operatorv1.AttachmentsRequest{})
	if err != nil {
		reply(w, nil, err)
		return
	}
	doc := document.Of(attached.ProtoReflect())
	ofPods := map[string]bool{}
	for _, at := range attached.Attachments {
		for _, i := range at.Interfaces {
			ofPods[i.Object] = true
		}
	}
	networks := []any{}
	for _, kind := range objectKinds {
		found, err := a.Operations.Objects(r.Context(), &operatorv1.ObjectsRequest{Prefix: kind})
		if err != nil {
			reply(w, nil, err)
			return
		}
		for _, o := range found.Objects {
			networks = append(networks, document.Of(o.ProtoReflect()))
		}
	}
	interfaces, err := a.Operations.Objects(r.Context(), &operatorv1.ObjectsRequest{Prefix: "vpp.interface/"})
	if err != nil {
		reply(w, nil, err)
		return
	}
	doc["networks"] = networks
	doc["links"] = linksOf(interfaces.Objects, ofPods)
	reply(w, doc, nil)
}

// linksOf returns the interfaces that belong to no pod: the host link, tunnels, the uplink.
func linksOf(objects []*operatorv1.Object, ofPods map[string]bool) []any {
	links := []any{}
	for _, o := range objects {
		name := o.Ref[len("vpp.interface/"):]
		if ofPods[name] {
			continue
		}
		value := o.Desired
		if len(value) == 0 {
			value = o.Applied
		}
		var l link
		if json.Unmarshal(value, &l) != nil {
			continue
		}
		links = append(links, map[string]any{"name": name, "phase": o.Phase, "value": json.RawMessage(value)})
	}
	return links
}
