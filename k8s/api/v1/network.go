package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CustomNetwork is a network in addition to the network of pods' main interfaces. Pods get an interface in it by the
// annotation contivpp.io/custom-if. Networks are isolated and may use the same addresses.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cnet,categories=weft
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="CIDRs",type=string,JSONPath=`.spec.cidrs`
// +kubebuilder:printcolumn:name="VNI",type=integer,JSONPath=`.status.vni`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="the name must be a DNS label: at most 63 letters, digits and dashes"
// +kubebuilder:validation:XValidation:rule="!(self.metadata.name in ['default', 'stub'])",message="default and stub are predefined networks"
type CustomNetwork struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired state of the network.
	// +required
	Spec CustomNetworkSpec `json:"spec"`

	// Observed state of the network.
	// +optional
	Status CustomNetworkStatus `json:"status,omitempty"`
}

// VNI returns the VXLAN network identifier of the network: the one of its spec, else the one of its status.
func (n *CustomNetwork) VNI() int32 {
	if n.Spec.VNI != nil {
		return *n.Spec.VNI
	}
	return n.Status.VNI
}

// FinalizerInUse keeps a deleted CustomNetwork, and its VNI, until no pod uses it.
const FinalizerInUse = "contivpp.io/in-use"

// CustomNetworkSpec is the desired state of a custom network.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'L3' || (has(self.cidrs) && self.cidrs.size() > 0)",message="a network of type L3 needs cidrs"
// +kubebuilder:validation:XValidation:rule="!has(self.mtu) || self.mtu >= 1280 || !has(self.cidrs) || self.cidrs.all(c, !isCIDR(c) || cidr(c).ip().family() == 4)",message="with IPv6 the mtu must be at least 1280"
// +kubebuilder:validation:XValidation:rule="!has(self.cidrs) || self.cidrs.all(c, !isCIDR(c) || cidr(c).ip().family() == 6 || (cidr(c).prefixLength() <= self.blockSize && self.blockSize <= cidr(c).prefixLength() + 32))",message="blockSize is not within the IPv4 CIDR"
// +kubebuilder:validation:XValidation:rule="!has(self.cidrs) || self.cidrs.all(c, !isCIDR(c) || cidr(c).ip().family() == 4 || cidr(c).prefixLength() <= self.blockSizeV6)",message="blockSizeV6 is not within the IPv6 CIDR"
// +kubebuilder:validation:XValidation:rule="!has(self.direct) || !self.direct || self.type == 'L2' && (!has(self.cidrs) || self.cidrs.size() == 0) && (!has(self.antiSpoof) || !self.antiSpoof)",message="a direct network is of type L2 and has neither cidrs nor antiSpoof: the dataplane does not see its packets"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || self.gateway != 'none' || self.type == 'L2'",message="a network of type L3 needs a gateway: the dataplane routes between its pods"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || self.gateway.size() == 0 || has(self.cidrs) && self.cidrs.size() > 0",message="only a network with cidrs has a gateway"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || self.gateway == 'none' || !has(self.cidrs) || self.gateway.split(',').all(g, !isIP(g.trim()) || self.cidrs.exists(c, isCIDR(c) && cidr(c).containsIP(g.trim())))",message="the gateway is not within the cidrs"
// +kubebuilder:validation:XValidation:rule="!has(self.reserved) || self.reserved.all(r, has(self.cidrs) && self.cidrs.exists(c, isCIDR(c) && (isCIDR(r) ? cidr(c).containsCIDR(r) : r.split('-').all(a, !isIP(a.trim()) || cidr(c).containsIP(a.trim())))))",message="reserved is not within the cidrs"
// +kubebuilder:validation:XValidation:rule="!has(self.excluded) || self.excluded.all(r, has(self.cidrs) && self.cidrs.exists(c, isCIDR(c) && (isCIDR(r) ? cidr(c).containsCIDR(r) : r.split('-').all(a, !isIP(a.trim()) || cidr(c).containsIP(a.trim())))))",message="excluded is not within the cidrs"
// +kubebuilder:validation:XValidation:rule="!has(self.routes) || !has(self.direct) || !self.direct",message="pods of a direct network have routes of their own"
// +kubebuilder:validation:XValidation:rule="!has(self.routes) || !has(self.cidrs) || self.routes.all(r, has(r.interface) || self.cidrs.all(c, c != r.to))",message="a route leads to the network itself"
// +kubebuilder:validation:XValidation:rule="!has(self.allowedAddresses) && !has(self.virtualRouters) && !has(self.permissions) || self.type == 'L2' && (!has(self.direct) || !self.direct)",message="only a network of type L2 that is not direct has allowedAddresses, virtualRouters and permissions"
// +kubebuilder:validation:XValidation:rule="!has(self.routedPrefixes) || self.type == 'L3'",message="only a network of type L3 has routedPrefixes"
// +kubebuilder:validation:XValidation:rule="!has(self.routedPrefixes) || self.routedPrefixes.all(p, !isCIDR(p) || has(self.cidrs) && self.cidrs.exists(c, isCIDR(c) && cidr(c).ip().family() == cidr(p).ip().family()))",message="routedPrefixes need a CIDR of their family: the next hop is the address of a pod"
// +kubebuilder:validation:XValidation:rule="!has(self.routedPrefixes) || !has(self.cidrs) || self.routedPrefixes.all(p, !isCIDR(p) || self.cidrs.all(c, !isCIDR(c) || !cidr(c).containsCIDR(p) && !cidr(p).containsCIDR(c)))",message="routedPrefixes overlap the cidrs, whose addresses belong to pods"
// +kubebuilder:validation:XValidation:rule="!has(self.vlans) || self.vlans.size() == 0 || self.type == 'L2' && (!has(self.direct) || !self.direct)",message="vlans: only a network of type L2 that is not direct has vlans"
// +kubebuilder:validation:XValidation:rule="!has(self.vlans) || self.vlans.size() == 0 || !has(self.vni) || self.vni <= 255 || self.vni >= 1048576 && self.vni < 1051392",message="vlans: the VNIs of VLANs follow from the vni of the network: choose 1 to 255, or let the controller assign one"
// +kubebuilder:validation:XValidation:rule="(has(self.direct) && self.direct) == (has(oldSelf.direct) && oldSelf.direct)",message="direct cannot be changed"
type CustomNetworkSpec struct {
	// How its interfaces are connected. L2: one bridge domain, all interfaces share a subnet and a broadcast domain.
	// L3: one VRF, each interface has its own address and all packets are routed. Cannot be changed.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the type of a network cannot be changed"
	Type NetworkType `json:"type"`

	// The addresses of its interfaces, at most one CIDR of each family. In an L2 network without CIDRs pods
	// configure their addresses themselves.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || !isCIDR(self[0]) || !isCIDR(self[1]) || cidr(self[0]).ip().family() != cidr(self[1]).ip().family()",message="at most one CIDR of each family is possible"
	// +kubebuilder:validation:XValidation:rule="self.all(c, !isCIDR(c) || cidr(c).ip().isGlobalUnicast() || cidr(c).ip().family() == 4 && cidr(c).ip().isLinkLocalUnicast())",message="a CIDR has no unicast addresses for pods"
	CIDRs []CIDR `json:"cidrs,omitempty"`

	// Prefix length of the blocks of an IPv4 CIDR; each block belongs to one node. Cannot be changed.
	// +optional
	// +kubebuilder:default=26
	// +kubebuilder:validation:Minimum=20
	// +kubebuilder:validation:Maximum=30
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the size of blocks cannot be changed"
	BlockSize int32 `json:"blockSize,omitempty"`

	// Prefix length of the blocks of an IPv6 CIDR. Cannot be changed.
	// +optional
	// +kubebuilder:default=122
	// +kubebuilder:validation:Minimum=116
	// +kubebuilder:validation:Maximum=126
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the size of blocks cannot be changed"
	BlockSizeV6 int32 `json:"blockSizeV6,omitempty"`

	// Address of the dataplane on the network, the gateway of its pods: one of each family, separated by a comma.
	// Unset: the first address of each CIDR. none: the dataplane has no address on a network of type L2, for a network
	// whose router is a pod or outside of the cluster. Cannot be changed while pods use the network.
	// +optional
	// +kubebuilder:validation:MaxLength=91
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self == 'none' || self.split(',').all(a, isIP(a.trim()))",message="expected none, an address, or one address of each family separated by a comma"
	// +kubebuilder:validation:XValidation:rule="self.split(',').size() <= 2 && (self.split(',').size() < 2 || !self.split(',').all(a, isIP(a.trim())) || ip(self.split(',')[0].trim()).family() != ip(self.split(',')[1].trim()).family())",message="one address of each family is possible"
	Gateway string `json:"gateway,omitempty"`

	// Addresses that no pod gets: addresses, prefixes and ranges such as 10.7.0.1-10.7.0.20. Pods keep addresses that
	// they have.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Reserved []AddressRange `json:"reserved,omitempty"`

	// Addresses that pods get on request only, like reserved.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Excluded []AddressRange `json:"excluded,omitempty"`

	// Routes that pods get with an interface of the network, except for the pod that is their next hop and for pods
	// that are connected to the destination. Running pods keep the routes that they have.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.to == b.to && (has(a.metric) ? a.metric : 0) == (has(b.metric) ? b.metric : 0)))",message="two routes have the same destination and metric"
	Routes []Route `json:"routes,omitempty"`

	// Addresses that move between pods, such as the virtual addresses of VRRP: addresses, prefixes and ranges, within
	// the CIDRs or outside of them. No pod gets one as its own, and pods that request it by the option allowedAddresses
	// may send from it. Running pods keep what they have.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.map(r, r.split('-')[0].split('/')[0].trim()).all(a, !isIP(a) || ip(a).isGlobalUnicast())",message="expected unicast addresses that are routed"
	AllowedAddresses []AddressRange `json:"allowedAddresses,omitempty"`

	// IDs of virtual routers (VRRP, CARP) whose MACs pods may use, if they request it by the option virtualRouters.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=255
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=255
	VirtualRouters []int32 `json:"virtualRouters,omitempty"`

	// Addresses and virtual routers that pods may use without a request, because of their labels. They follow the
	// labels of running pods. No pod gets one of the addresses as its own.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.map(p, has(p.allowedAddresses) ? p.allowedAddresses.size() : 0).sum() <= 32 && self.map(p, has(p.virtualRouters) ? p.virtualRouters.size() : 0).sum() <= 32",message="permissions: at most 32 allowedAddresses and 32 virtualRouters are possible in all"
	Permissions []Permission `json:"permissions,omitempty"`

	// Prefixes outside of the CIDRs that pods of a network of type L3 may request, in whole or in part, by the option
	// routedPrefixes: the network routes them to the pod from all nodes, and the pod may send from them. A prefix leads
	// to one pod at a time. If one is removed here, other nodes do not route it any more.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(p, !isCIDR(p) || cidr(p).ip().isGlobalUnicast())",message="expected unicast addresses that are routed"
	RoutedPrefixes []CIDR `json:"routedPrefixes,omitempty"`

	// VLANs of the network: 300, or a range such as 100-199, at most 256 in all. Each is a segment of its own, beside
	// that of untagged frames. Pods with the option vlans, and external interfaces with vlans, send and receive its
	// frames with a tag. Pods that have a VLAN that is removed are disconnected from it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, int(b.split('-')[0]) <= int(a.split('-')[a.split('-').size() - 1]) && int(a.split('-')[0]) <= int(b.split('-')[b.split('-').size() - 1])))",message="a VLAN occurs twice"
	// +kubebuilder:validation:XValidation:rule="self.map(v, int(v.split('-')[v.split('-').size() - 1]) - int(v.split('-')[0]) + 1).sum() <= 256",message="at most 256 VLANs are possible"
	VLANs []VLANRange `json:"vlans,omitempty"`

	// DNS of the network, for the CNI result of pods whose interface has the option dns. Kubelet writes resolv.conf
	// from the spec of the pod, and ignores it. Running pods keep the one that they have.
	// +optional
	DNS *DNS `json:"dns,omitempty"`

	// MTU of the network in bytes. Unset: the node's MTU minus the overhead of the tunnel.
	// +optional
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=9600
	MTU *int32 `json:"mtu,omitempty"`

	// VXLAN network identifier. Unset: the controller allocates one, see status.vni.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777215
	VNI *int32 `json:"vni,omitempty"`

	// Labels of the namespaces whose pods may use the network. Unset or empty: all namespaces.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Whether pods may send only from their own MAC and IP addresses. Unset: true if the network has cidrs. Pods that
	// route, or choose their MACs, need false.
	// +optional
	AntiSpoof *bool `json:"antiSpoof,omitempty"`

	// Whether the network connects two memifs of a node, a client and a server (option role), without the dataplane:
	// they share memory. Pods configure their addresses themselves, and policies that select a member disconnect it.
	// Cannot be changed.
	// +optional
	Direct bool `json:"direct,omitempty"`
}

// AddressRange is an address, a prefix, or two addresses with a dash, both included.
//
// +kubebuilder:validation:MaxLength=91
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="a prefix has no host bits"
// +kubebuilder:validation:XValidation:rule="self.split('-').size() != 2 || !self.split('-').all(a, isIP(a.trim())) || ip(self.split('-')[0].trim()).family() == ip(self.split('-')[1].trim()).family()",message="a range has addresses of one family"
// +kubebuilder:validation:XValidation:rule="isIP(self) || isCIDR(self) || self.split('-').size() == 2 && self.split('-').all(a, isIP(a.trim()))",message="expected an address, a prefix, or a range such as 10.7.0.1-10.7.0.20"
type AddressRange string

// Permission lets pods use addresses and virtual routers that move between pods of a network.
//
// +kubebuilder:validation:XValidation:rule="has(self.allowedAddresses) && self.allowedAddresses.size() > 0 || has(self.virtualRouters) && self.virtualRouters.size() > 0",message="permissions: each needs allowedAddresses or virtualRouters"
type Permission struct {
	// Labels of the pods. An empty selector selects all pods.
	// +required
	PodSelector metav1.LabelSelector `json:"podSelector"`

	// Labels of the namespaces of the pods. Unset or empty: all namespaces.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Addresses and prefixes that the pods may send from, within the CIDRs or outside of them, without the gateway.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	AllowedAddresses []AddressOrPrefix `json:"allowedAddresses,omitempty"`

	// IDs of virtual routers (VRRP, CARP) whose MACs the pods may use.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=255
	VirtualRouters []int32 `json:"virtualRouters,omitempty"`
}

// AddressOrPrefix is an address, or a prefix without host bits.
//
// +kubebuilder:validation:MaxLength=49
// +kubebuilder:validation:XValidation:rule="isIP(self) || isCIDR(self) && cidr(self) == cidr(self).masked()",message="expected an address, or a prefix such as 10.5.0.0/28"
// +kubebuilder:validation:XValidation:rule="!isIP(self.split('/')[0]) || ip(self.split('/')[0]).isGlobalUnicast()",message="expected unicast addresses that are routed"
type AddressOrPrefix string

// VLANRange is a VLAN, or two with a dash, both included.
//
// +kubebuilder:validation:MaxLength=9
// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,3}(-[1-9][0-9]{0,3})?$`
// +kubebuilder:validation:XValidation:rule="self.split('-').all(v, int(v) <= 4094) && int(self.split('-')[0]) <= int(self.split('-')[self.split('-').size() - 1])",message="expected a VLAN of 1 to 4094 or a range such as 100-199"
type VLANRange string

// Route is a route of pods.
//
// +kubebuilder:validation:XValidation:rule="!has(self.via) || !has(self.interface)",message="via and interface exclude each other"
// +kubebuilder:validation:XValidation:rule="!has(self.via) || !isIP(self.via) || !isCIDR(self.to) || ip(self.via).family() == cidr(self.to).ip().family()",message="to and via are of different families"
type Route struct {
	// Destination, such as 10.2.0.0/16 or 0.0.0.0/0. A default route without metric replaces that of the main
	// interface, through which the pods of the cluster stay reachable.
	// +required
	To CIDR `json:"to"`

	// Next hop: an address of the network, such as that of a pod that routes. Unset: the gateway of the network. On a
	// network of type L3 the dataplane routes, so only its gateway is possible.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="expected an address"
	Via string `json:"via,omitempty"`

	// Interface of the pod that the route leads through, instead of the one on this network. Pods without it do not get
	// the route.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`

	// Metric: of several routes to one destination the lowest is used.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Metric int32 `json:"metric,omitempty"`
}

// DNS is the configuration of a resolver.
type DNS struct {
	// Addresses of name servers, in the order in which a resolver asks them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Nameservers []Nameserver `json:"nameservers,omitempty"`

	// Domain of the pod.
	// +optional
	Domain Domain `json:"domain,omitempty"`

	// Domains in which a resolver searches short names.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Search []Domain `json:"search,omitempty"`

	// Options of resolv.conf, such as ndots:2.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Options []ResolverOption `json:"options,omitempty"`
}

// Nameserver is the address of a name server.
//
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:XValidation:rule="isIP(self) && !ip(self).isUnspecified() && !self.matches('^(22[4-9]|23[0-9])[.]|^[fF][fF]')",message="expected the address of a name server"
type Nameserver string

// Domain is a domain, with or without a dot at its end.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*[.]?$`
type Domain string

// ResolverOption is an option of resolv.conf.
//
// +kubebuilder:validation:MaxLength=255
// +kubebuilder:validation:Pattern=`^[!-~]+$`
type ResolverOption string

// NetworkType is the way in which the interfaces of a network are connected.
//
// +kubebuilder:validation:Enum=L2;L3
type NetworkType string

// The types of a network.
const (
	L2 NetworkType = "L2"
	L3 NetworkType = "L3"
)

// CustomNetworkStatus is the observed state of a custom network.
type CustomNetworkStatus struct {
	// VXLAN network identifier in use: the one of the spec, or one that the controller allocated, which does not
	// change.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16777215
	VNI int32 `json:"vni,omitempty"`

	// Generation of the object at which the conditions were observed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Number of nodes that have the current generation of the network.
	// +optional
	ReadyNodes int32 `json:"readyNodes,omitempty"`

	// Ready: all nodes of the mesh have the network. Conflict: an older network has its VNI.
	// +optional
	Conditions Conditions `json:"conditions,omitempty"`
}

// CustomNetworkList is a list of custom networks.
//
// +kubebuilder:object:root=true
type CustomNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CustomNetwork `json:"items"`
}
