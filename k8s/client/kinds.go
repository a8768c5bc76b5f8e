package client

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/weftnet/weft/k8s/api/adminpolicy"
	"github.com/weftnet/weft/k8s/api/npwg"
	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Typed is access to the objects of one kind.
type Typed[T interface {
	runtime.Object
	metav1.Object
}, L runtime.Object] = gentype.ClientWithList[T, L]

// group is the connection for the kinds of one group and version.
type group struct {
	rest.Interface

	codec runtime.ParameterCodec
}

// typed makes access to the objects of a kind; namespace "" is all of them.
func typed[T, L any, PT interface {
	*T
	runtime.Object
	metav1.Object
}, PL interface {
	*L
	runtime.Object
}](g group, resource, namespace string) *Typed[PT, PL] {
	return gentype.NewClientWithList(resource, g.Interface, g.codec, namespace, func() PT { return new(T) }, func() PL {
		return new(L)
	})
}

// kubernetesKinds are the kinds of Kubernetes.
type kubernetesKinds struct{ core, coordination, discovery, networking group }

// Pods is access to the pods of a namespace; "": of all namespaces.
func (k *kubernetesKinds) Pods(namespace string) *Typed[*corev1.Pod, *corev1.PodList] {
	return typed[corev1.Pod, corev1.PodList](k.core, "pods", namespace)
}

// Namespaces is access to the Namespaces.
func (k *kubernetesKinds) Namespaces() *Typed[*corev1.Namespace, *corev1.NamespaceList] {
	return typed[corev1.Namespace, corev1.NamespaceList](k.core, "namespaces", "")
}

// Nodes is access to the Nodes.
func (k *kubernetesKinds) Nodes() *Typed[*corev1.Node, *corev1.NodeList] {
	return typed[corev1.Node, corev1.NodeList](k.core, "nodes", "")
}

// ConfigMaps is access to the ConfigMaps of a namespace.
func (k *kubernetesKinds) ConfigMaps(namespace string) *Typed[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return typed[corev1.ConfigMap, corev1.ConfigMapList](k.core, "configmaps", namespace)
}

// Events is access to the Events of a namespace.
func (k *kubernetesKinds) Events(namespace string) *Typed[*corev1.Event, *corev1.EventList] {
	return typed[corev1.Event, corev1.EventList](k.core, "events", namespace)
}

// Leases is access to the Leases of a namespace.
func (k *kubernetesKinds) Leases(namespace string) *Typed[*coordinationv1.Lease, *coordinationv1.LeaseList] {
	return typed[coordinationv1.Lease, coordinationv1.LeaseList](k.coordination, "leases", namespace)
}

// Services is access to the Services of a namespace; "": of all namespaces.
func (k *kubernetesKinds) Services(namespace string) *Typed[*corev1.Service, *corev1.ServiceList] {
	return typed[corev1.Service, corev1.ServiceList](k.core, "services", namespace)
}

// EndpointSlices is access to the EndpointSlices of a namespace; "": of all namespaces.
func (k *kubernetesKinds) EndpointSlices(
	namespace string,
) *Typed[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList] {
	return typed[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](k.discovery, "endpointslices", namespace)
}

// ServiceRanges is access to the ServiceCIDRs. Kubernetes before 1.33 does not have the kind.
func (k *kubernetesKinds) ServiceRanges() *Typed[*networkingv1.ServiceCIDR, *networkingv1.ServiceCIDRList] {
	return typed[networkingv1.ServiceCIDR, networkingv1.ServiceCIDRList](k.networking, "servicecidrs", "")
}

// FullNetworkPolicies is access to all NetworkPolicies with their specs.
func (k *kubernetesKinds) FullNetworkPolicies() *Typed[*networkingv1.NetworkPolicy, *networkingv1.NetworkPolicyList] {
	return typed[networkingv1.NetworkPolicy, networkingv1.NetworkPolicyList](k.networking, "networkpolicies", "")
}

// weftKinds are Weft's own kinds.
type weftKinds struct{ weft group }

// Networks is access to the CustomNetworks.
func (k *weftKinds) Networks() *Typed[*v1.CustomNetwork, *v1.CustomNetworkList] {
	return typed[v1.CustomNetwork, v1.CustomNetworkList](k.weft, "customnetworks", "")
}

// Pools is access to the IPPools.
func (k *weftKinds) Pools() *Typed[*v1.IPPool, *v1.IPPoolList] {
	return typed[v1.IPPool, v1.IPPoolList](k.weft, "ippools", "")
}

// Blocks is access to the IPBlocks.
func (k *weftKinds) Blocks() *Typed[*v1.IPBlock, *v1.IPBlockList] {
	return typed[v1.IPBlock, v1.IPBlockList](k.weft, "ipblocks", "")
}

// NodeNetworks is access to the NodeNetworks.
func (k *weftKinds) NodeNetworks() *Typed[*v1.NodeNetwork, *v1.NodeNetworkList] {
	return typed[v1.NodeNetwork, v1.NodeNetworkList](k.weft, "nodenetworks", "")
}

// Externals is access to the ExternalInterfaces.
func (k *weftKinds) Externals() *Typed[*v1.ExternalInterface, *v1.ExternalInterfaceList] {
	return typed[v1.ExternalInterface, v1.ExternalInterfaceList](k.weft, "externalinterfaces", "")
}

// PodInterfaces is access to the PodInterfaces of a namespace; "": of all namespaces.
func (k *weftKinds) PodInterfaces(namespace string) *Typed[*v1.PodInterfaces, *v1.PodInterfacesList] {
	return typed[v1.PodInterfaces, v1.PodInterfacesList](k.weft, "podinterfaces", namespace)
}

// Configs is access to the WeftConfig.
func (k *weftKinds) Configs() *Typed[*v1.WeftConfig, *v1.WeftConfigList] {
	return typed[v1.WeftConfig, v1.WeftConfigList](k.weft, "weftconfigs", "")
}

// npwgKinds are the kinds of the Network Plumbing Working Group.
type npwgKinds struct{ definitions, claims, policies group }

// Definitions is access to the NetworkAttachmentDefinitions of a namespace; "": of all namespaces.
func (k *npwgKinds) Definitions(
	namespace string,
) *Typed[*npwg.NetworkAttachmentDefinition, *npwg.NetworkAttachmentDefinitionList] {
	return typed[npwg.NetworkAttachmentDefinition, npwg.NetworkAttachmentDefinitionList](k.definitions,
		"network-attachment-definitions", namespace)
}

// IPAMClaims is access to the IPAMClaims of a namespace; "": of all namespaces.
func (k *npwgKinds) IPAMClaims(namespace string) *Typed[*npwg.IPAMClaim, *npwg.IPAMClaimList] {
	return typed[npwg.IPAMClaim, npwg.IPAMClaimList](k.claims, "ipamclaims", namespace)
}

// MultiNetworkPolicies is access to all MultiNetworkPolicies.
func (k *npwgKinds) MultiNetworkPolicies() *Typed[*npwg.MultiNetworkPolicy, *npwg.MultiNetworkPolicyList] {
	return typed[npwg.MultiNetworkPolicy, npwg.MultiNetworkPolicyList](k.policies, "multi-networkpolicies", "")
}

// adminKinds are the policies of administrators of clusters.
type adminKinds struct{ admin group }

// AdminNetworkPolicies is access to the AdminNetworkPolicies.
func (k *adminKinds) AdminNetworkPolicies() *Typed[
	*adminpolicy.AdminNetworkPolicy, *adminpolicy.AdminNetworkPolicyList,
] {
	return typed[adminpolicy.AdminNetworkPolicy, adminpolicy.AdminNetworkPolicyList](k.admin, "adminnetworkpolicies",
		"")
}

// BaselineAdminNetworkPolicies is access to the BaselineAdminNetworkPolicy of the cluster.
func (k *adminKinds) BaselineAdminNetworkPolicies() *Typed[
	*adminpolicy.BaselineAdminNetworkPolicy, *adminpolicy.BaselineAdminNetworkPolicyList,
] {
	return typed[adminpolicy.BaselineAdminNetworkPolicy, adminpolicy.BaselineAdminNetworkPolicyList](k.admin,
		"baselineadminnetworkpolicies", "")
}

// metadataOnly is access to objects without spec and status.
type metadataOnly struct{ kinds metadata.Interface }

// PodMetadata is access to the metadata of all pods.
func (k *metadataOnly) PodMetadata() metadata.Getter {
	return k.kinds.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
}

// NetworkPolicies is access to the metadata of all NetworkPolicies.
func (k *metadataOnly) NetworkPolicies() metadata.Getter {
	return k.kinds.Resource(networkingv1.SchemeGroupVersion.WithResource("networkpolicies"))
}

// CountPolicies returns the number of NetworkPolicies. The API server counts them; its answer has at most one object.
func (k *metadataOnly) CountPolicies(ctx context.Context) (int, error) {
	list, err := k.NetworkPolicies().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("count NetworkPolicies: %w", OneLine(err))
	}
	return len(list.Items) + int(ptr.Deref(list.RemainingItemCount, 0)), nil
}
