// Package inventory implements the gRPC service Dataplane: the present objects of the dataplane, by the names of pods.
package inventory

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Server implements weft.operator.v1.Dataplane.
type Server struct {
	operatorv1.UnimplementedDataplaneServer

	Client   *vpp.Client
	Pods     *podmanager.Manager
	Counters *southbound.Counters
}

// Interfaces lists the interfaces.
func (s *Server) Interfaces(
	ctx context.Context, req *operatorv1.DataplaneRequest,
) (*operatorv1.DataplaneInterfaces, error) {
	entries, o, err := read(ctx, s, req, s.Client.Inventory().Interfaces)
	if err != nil {
		return nil, err
	}
	reply := &operatorv1.DataplaneInterfaces{}
	for _, e := range entries {
		owner := o.of(cmp.Or(e.Object, e.Name))
		if !o.admits(owner) {
			continue
		}
		owner.Name = e.Name
		reply.Interfaces = append(reply.Interfaces, &operatorv1.DataplaneInterface{
			Owner:  owner,
			Index:  uint32(e.Index),
			Type:   e.Type,
			Mac:    e.MAC.String(),
			Mtu:    uint32(e.MTU),
			Up:     e.Up,
			LinkUp: e.LinkUp,
			Vrfs:   e.VRFs, BridgeDomain: e.BridgeDomain,
		})
	}
	return reply, nil
}

// Memifs lists the memifs.
func (s *Server) Memifs(ctx context.Context, req *operatorv1.DataplaneRequest) (*operatorv1.DataplaneMemifs, error) {
	entries, o, err := read(ctx, s, req, s.Client.Inventory().Memifs)
	if err != nil {
		return nil, err
	}
	reply := &operatorv1.DataplaneMemifs{}
	for _, e := range entries {
		owner := o.of(cmp.Or(e.Object, e.Name))
		if !o.admits(owner) {
			continue
		}
		owner.Name = e.Name
		reply.Memifs = append(reply.Memifs, &operatorv1.DataplaneMemif{
			Owner:      owner,
			Id:         e.ID,
			Role:       e.Role,
			Mode:       e.Mode,
			Socket:     e.Socket,
			RingSize:   e.RingSize,
			BufferSize: uint32(e.BufferSize),
			Connected:  e.Connected,
		})
	}
	return reply, nil
}

// Drops lists dropped packets by interface, and error counters. With a pod it has no error counters, which count all
// interfaces.
func (s *Server) Drops(ctx context.Context, req *operatorv1.DataplaneRequest) (*operatorv1.DataplaneDrops, error) {
	c, o, err := read(ctx, s, req, s.Counters.Read)
	if err != nil {
		return nil, err
	}
	reply := &operatorv1.DataplaneDrops{}
	for object, t := range c.Interfaces {
		if owner := o.of(object); t.RxDrops+t.TxDrops > 0 && o.admits(owner) {
			reply.Interfaces = append(reply.Interfaces, &operatorv1.InterfaceDrops{
				Owner:   owner,
				FromPod: t.RxDrops,
				ToPod:   t.TxDrops,
			})
		}
	}
	slices.SortFunc(reply.Interfaces, func(a, b *operatorv1.InterfaceDrops) int {
		return cmp.Or(cmp.Compare(b.FromPod+b.ToPod, a.FromPod+a.ToPod), cmp.Compare(a.Owner.Object, b.Owner.Object))
	})
	if req.Pod != "" {
		return reply, nil
	}
	for _, e := range c.Errors {
		text, statistic := southbound.Explain(e.Node, e.Reason)
		reply.Reasons = append(reply.Reasons, &operatorv1.DropReason{
			Node:        e.Node,
			Reason:      e.Reason,
			Count:       e.Count,
			Explanation: text,
			Statistic:   statistic,
		})
	}
	slices.SortStableFunc(reply.Reasons, func(a, b *operatorv1.DropReason) int { return cmp.Compare(b.Count, a.Count) })
	return reply, nil
}

// FIB lists the routes of the selected VRFs, of all sources. With an address it lists those that cover it, the longest
// prefix first.
func (s *Server) FIB(ctx context.Context, req *operatorv1.DataplaneRequest) (*operatorv1.DataplaneFIB, error) {
	var to netip.Addr
	if req.Address != "" {
		var err error
		if to, err = netip.ParseAddr(req.Address); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "invalid address %q", req.Address)
		}
	}
	keep := func(vrf string) bool { return req.Network == "" || isOfNetwork(vrf, req.Network) }
	entries, o, err := read(ctx, s, req, func(ctx context.Context) ([]vpp.RouteEntry, error) {
		return s.Client.Inventory().FIB(ctx, keep)
	})
	if err != nil {
		return nil, err
	}
	reply := &operatorv1.DataplaneFIB{}
	for _, e := range entries {
		route := &operatorv1.DataplaneRoute{Vrf: e.VRF, Prefix: e.Prefix.String()}
		for _, p := range e.Paths {
			route.Paths = append(route.Paths, o.path(p))
		}
		leads := slices.ContainsFunc(route.Paths, func(p *operatorv1.DataplanePath) bool {
			return p.Owner != nil && o.admits(p.Owner)
		})
		if (req.Pod == "" || leads) && (!to.IsValid() || e.Prefix.Contains(to)) {
			reply.Routes = append(reply.Routes, route)
		}
	}
	if to.IsValid() {
		bits := func(r *operatorv1.DataplaneRoute) int { return netip.MustParsePrefix(r.Prefix).Bits() }
		slices.SortStableFunc(reply.Routes, func(a, b *operatorv1.DataplaneRoute) int {
			return cmp.Or(cmp.Compare(a.Vrf, b.Vrf), cmp.Compare(bits(b), bits(a)))
		})
	}
	return reply, nil
}

// isOfNetwork reports whether a VRF is the named one, or belongs to the network of that name.
func isOfNetwork(vrf, name string) bool {
	network, _, _ := strings.Cut(vrf, "/")
	return vrf == name || network == name
}

// Bridges lists the bridge domains.
func (s *Server) Bridges(ctx context.Context, req *operatorv1.DataplaneRequest) (*operatorv1.DataplaneBridges, error) {
	entries, o, err := read(ctx, s, req, s.Client.Inventory().Bridges)
	if err != nil {
		return nil, err
	}
	reply := &operatorv1.DataplaneBridges{}
	for _, e := range entries {
		b := o.bridge(e)
		has := slices.ContainsFunc(b.Members, func(m *operatorv1.BridgeMember) bool { return o.admits(m.Owner) })
		if (req.Pod == "" || has) && (req.Network == "" || req.Network == e.Name) {
			reply.Bridges = append(reply.Bridges, b)
		}
	}
	return reply, nil
}

// Neighbours lists the neighbours.
func (s *Server) Neighbours(
	ctx context.Context, req *operatorv1.DataplaneRequest,
) (*operatorv1.DataplaneNeighbours, error) {
	entries, o, err := read(ctx, s, req, s.Client.Inventory().Neighbours)
	if err != nil {
		return nil, err
	}
	reply := &operatorv1.DataplaneNeighbours{}
	for _, e := range entries {
		if owner := o.of(e.Interface); o.admits(owner) {
			reply.Neighbours = append(reply.Neighbours, &operatorv1.DataplaneNeighbour{
				Address: e.Address.String(),
				Mac:     e.MAC.String(),
				Owner:   owner,
				Static:  e.Static,
				Age:     durationpb.New(e.Age),
			})
		}
	}
	return reply, nil
}

// Runtime returns the dataplane's report of the load of its threads.
func (s *Server) Runtime(ctx context.Context, req *operatorv1.DataplaneRequest) (*operatorv1.DataplaneRuntime, error) {
	report, _, err := read(ctx, s, req, s.Client.Inventory().Runtime)
	if err != nil {
		return nil, err
	}
	return &operatorv1.DataplaneRuntime{Dataplane: s.Client.Version(), Report: report}, nil
}

// read reads the dataplane and the owners of its interfaces.
func read[T any](
	ctx context.Context, s *Server, req *operatorv1.DataplaneRequest, from func(context.Context) (T, error),
) (found T, o owners, err error) {
	o = newOwners(s.Pods.Attachments(), req.Pod)
	if req.Pod != "" && !o.known {
		return found, o, status.Errorf(codes.NotFound,
			"pod %s has no attachment on this node; weftctl attachments lists them", req.Pod)
	}
	if found, err = from(ctx); err != nil {
		err = status.Error(codes.FailedPrecondition, err.Error())
	}
	return found, o, err
}

// owners finds the pods of interfaces.
type owners struct {
	byObject map[string]*operatorv1.Owner
	pod      string // selects interfaces; "" selects all
	known    bool   // the pod has an attachment
}

func newOwners(attachments []pod.Attachment, selected string) owners {
	o := owners{byObject: map[string]*operatorv1.Owner{}, pod: selected}
	for _, a := range attachments {
		o.known = o.known || a.Pod.String() == selected
		for _, i := range a.Interfaces {
			if i.Object != "" {
				o.byObject[i.Object] = &operatorv1.Owner{
					Object:    i.Object,
					Interface: i.Name,
					Pod:       &weftv1.Pod{Namespace: a.Pod.Namespace, Name: a.Pod.Name, Uid: a.Pod.UID},
				}
			}
		}
	}
	return o
}

// of returns the owner of an interface by the name of its object, or of a foreign interface by the dataplane's name.
func (o owners) of(name string) *operatorv1.Owner {
	if known, ok := o.byObject[name]; ok {
		return &operatorv1.Owner{Object: known.Object, Interface: known.Interface, Pod: known.Pod}
	}
	return &operatorv1.Owner{Object: name}
}

func (o owners) admits(owner *operatorv1.Owner) bool {
	return o.pod == "" || owner.Pod != nil && owner.Pod.Namespace+"/"+owner.Pod.Name == o.pod
}

func (o owners) path(p vpp.PathEntry) *operatorv1.DataplanePath {
	path := &operatorv1.DataplanePath{Action: p.Action, Weight: uint32(p.Weight)}
	if p.Interface != "" {
		path.Owner = o.of(p.Interface)
	}
	if p.NextHop.IsValid() {
		path.NextHop = p.NextHop.String()
	}
	return path
}

func (o owners) bridge(e vpp.BridgeEntry) *operatorv1.DataplaneBridge {
	b := &operatorv1.DataplaneBridge{
		Id:                  e.ID,
		Name:                e.Name,
		Learn:               e.Learn,
		Flood:               e.Flood,
		Forward:             e.Forward,
		UnknownUnicastFlood: e.UUFwd,
		Age:                 durationpb.New(e.Age),
	}
	for _, m := range e.Members {
		b.Members = append(b.Members, &operatorv1.BridgeMember{
			Owner:             o.of(m.Interface),
			Bvi:               m.BVI,
			SplitHorizonGroup: uint32(m.SplitHorizonGroup),
		})
	}
	for _, m := range e.MACs {
		b.Macs = append(b.Macs, &operatorv1.BridgeMAC{Mac: m.MAC.String(), Owner: o.of(m.Interface), Static: m.Static})
	}
	return b
}
