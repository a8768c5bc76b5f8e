package operations

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/policy"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	"github.com/weftnet/weft/wire"
)

// Explainer explains decisions of network policies.
type Explainer interface {
	Explain(from, to policy.End, protocol uint8, port uint16) (policy.Verdict, error)
	ExcessOf(id policy.ID) []policy.Excess
}

// policies explains the rules of pods and their decisions.
type policies struct {
	explainer Explainer // nil: policies are not enforced
	pods      *podmanager.Manager
	network   *ipnet.Network
	scheduler *kvscheduler.Scheduler
	dataplane *vpp.Client
}

// Policy explains which rules of network policies a pod has, and how they decide about a connection.
func (p *policies) Policy(ctx context.Context, req *operatorv1.PolicyRequest) (*operatorv1.PolicyReply, error) {
	if p.explainer == nil {
		return nil, status.Error(codes.FailedPrecondition,
			"this agent enforces no network policies: kubernetes.enforcePolicies is off")
	}
	if req.From != "" || req.To != "" {
		return p.explain(req)
	}
	reply := &operatorv1.PolicyReply{}
	known := false
	matches, err := p.dataplane.Statistics().ACLMatches(ctx)
	if err != nil { // the rules are known nevertheless
		matches = nil
		reply.CountsError = err.Error()
	}
	objects := map[string]string{} // of the pod, by interface
	for _, a := range p.pods.Attachments() {
		if a.Pod.String() != req.Pod {
			continue
		}
		known = true
		reply.Interfaces = rulesOf(p.network.Pods.Lists(a.Pod), req.Interface)
		for _, i := range a.Interfaces {
			objects[i.Name] = i.Object
		}
	}
	for _, i := range reply.Interfaces {
		i.Counts = p.policyCounts(objects[i.Interface], matches)
	}
	if !known {
		return nil, status.Errorf(codes.NotFound,
			"pod %s has no attachment on this node: ask the agent of its node, or add --from or --to", req.Pod)
	}
	reply.OverLimits = overLimits(p.explainer.ExcessOf(endOf(req.Pod).Pod))
	return reply, nil
}

// maxOverLimits is the number of policies and Services over a limit that are listed: there may be thousands.
const maxOverLimits = 20

func overLimits(excess []policy.Excess) []string {
	var list []string
	for _, x := range excess {
		if text := x.String(); !slices.Contains(list, text) { // it may be the same in both directions
			list = append(list, text)
		}
		if len(list) == maxOverLimits {
			return append(list, "and others")
		}
	}
	return list
}

// policyCounts returns the counters of the rules of an interface.
func (p *policies) policyCounts(
	object string, matches map[vpp.ACLIndex][]vpp.Matches,
) (counts []*operatorv1.PolicyCount) {
	view := p.scheduler.View()
	applied, _, _ := view.Applied(kvscheduler.Ref{Kind: wire.KindInterfaceACL, Name: object})
	lists, _ := applied.(wire.InterfaceACL)
	for _, d := range []struct {
		direction policy.Direction
		names     []string
	}{{policy.Ingress, lists.Output}, {policy.Egress, lists.Input}} {
		for _, name := range d.names {
			ref := kvscheduler.Ref{Kind: wire.KindACL, Name: name}
			want, _ := view.Desired(ref)
			_, meta, _ := view.Applied(ref)
			acl, isACL := want.(wire.ACL)
			index, isIndex := meta.(vpp.ACLIndex)
			if !isACL || !isIndex {
				continue
			}
			sums, _ := vpp.MatchesByOrigin(acl, matches[index])
			for _, s := range sums {
				counts = append(counts, &operatorv1.PolicyCount{
					Direction: d.direction.String(),
					Allow:     s.Permit,
					Origin:    s.Origin,
					Packets:   s.Packets,
					Bytes:     s.Bytes,
				})
			}
		}
	}
	return counts
}

func (p *policies) explain(req *operatorv1.PolicyRequest) (*operatorv1.PolicyReply, error) {
	if req.From != "" && req.To != "" {
		return nil, status.Error(codes.InvalidArgument, "either from or to: the other end is the pod")
	}
	protocol, err := policy.ParseProtocol(req.Protocol)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if req.Port > 65535 {
		return nil, status.Errorf(codes.InvalidArgument, "port %d is above 65535", req.Port)
	}
	own := endOf(req.Pod)
	other := endOf(req.From + req.To)
	own.Interface = req.Interface
	from := other
	to := own
	if req.To != "" {
		from = own
		to = other
	}
	v, err := p.explainer.Explain(from, to, protocol, uint16(req.Port))
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	return &operatorv1.PolicyReply{Verdict: &operatorv1.PolicyVerdict{
		From: v.From.String(), To: v.To.String(),
		Egress:  &operatorv1.PolicyDecision{Allow: v.Egress.Allowed, Origin: v.Egress.Origin},
		Ingress: &operatorv1.PolicyDecision{Allow: v.Ingress.Allowed, Origin: v.Ingress.Origin},
	}}, nil
}

// endOf parses an address, or NAMESPACE/NAME; NAME is in the namespace default.
func endOf(text string) policy.End {
	if a, err := netip.ParseAddr(text); err == nil {
		return policy.End{Address: a.Unmap()}
	}
	namespace, name, found := strings.Cut(text, "/")
	if !found {
		namespace = "default"
		name = text
	}
	return policy.End{Pod: policy.ID{Namespace: namespace, Name: name}}
}

// rulesOf converts the rules of a pod; "" means all interfaces.
func rulesOf(rules map[string]policy.Lists, nic string) []*operatorv1.PolicyRules {
	var list []*operatorv1.PolicyRules
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		if nic == "" || nic == name {
			list = append(list, &operatorv1.PolicyRules{
				Interface: name,
				Ingress:   listOf(rules[name][policy.Ingress]),
				Egress:    listOf(rules[name][policy.Egress]),
			})
		}
	}
	return list
}

// listOf converts the rules of a list: one for each family of addresses and range of ports.
func listOf(l *policy.List) []*operatorv1.PolicyRule {
	var list []*operatorv1.PolicyRule
	for i := range l.Rules {
		r := &l.Rules[i]
		for _, remotes := range policy.ByFamily(r.Remotes) {
			of := func(protocol uint8, ports string) {
				list = append(list, &operatorv1.PolicyRule{
					Allow:    r.Action == policy.Allow,
					Remote:   remotesOf(remotes),
					Protocol: policy.ProtocolName(protocol),
					Ports:    ports,
					Origin:   r.Origin,
				})
			}
			for _, p := range r.Ports {
				of(p.Protocol, portsOf(p.Range))
			}
			if len(r.Ports) == 0 {
				of(policy.AnyProtocol, "")
			}
		}
	}
	return list
}

// maxRemotes is the number of prefixes of a rule that are listed: a rule may have thousands.
const maxRemotes = 8

func remotesOf(prefixes []netip.Prefix) string {
	var texts []string
	for _, p := range prefixes[:min(len(prefixes), maxRemotes)] {
		texts = append(texts, p.String())
	}
	if more := len(prefixes) - len(texts); more > 0 {
		texts = append(texts, strconv.Itoa(more)+" more")
	}
	return strings.Join(texts, ", ")
}

func portsOf(r policy.Range) string {
	switch {
	case r == policy.Range{Last: 65535}:
		return ""
	case r.First == r.Last:
		return strconv.Itoa(int(r.First))
	}
	return strconv.Itoa(int(r.First)) + "-" + strconv.Itoa(int(r.Last))
}
