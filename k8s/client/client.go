// Package client is access to the API server: typed, for the kinds that Weft uses, and limited.
package client

import (
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/k8s/api/npwg"
	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Requests a second that one agent sends at most, and in a burst. Its work is done by watches: this is for the claims and
// reports of a node that starts.
const (
	requestRate  = 20
	requestBurst = 40
)

// Client is typed access to the kinds that Weft uses, and to no others: client-go's own set of clients has those of all
// groups of Kubernetes, and the linker could drop none of them.
type Client struct {
	core, weft, npwg, coordination, discovery, networking rest.Interface
	metadata                                              metadata.Interface // of any kind, without spec and status
	codec                                                 runtime.ParameterCodec
}

// Typed is access to the objects of one kind.
type Typed[T interface {
	runtime.Object
	metav1.Object
}, L runtime.Object] = gentype.ClientWithList[T, L]

// Connection reads how to reach the API server: from a kubeconfig file, or as a pod does if file is "". Nothing is sent.
func Connection(file string) (*rest.Config, error) {
	if file == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("connect to the API server as a pod: %w", err)
		}
		return c, nil
	}
	c, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", file, err)
	}
	return c, nil
}

// New makes a client. Nothing is sent.
func New(connection *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme),
		networkingv1.AddToScheme(scheme), v1.AddToScheme(scheme), npwg.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	base := rest.CopyConfig(connection)
	base.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if base.UserAgent == "" {
		base.UserAgent = "weft-agent/" + version.String()
	}
	base.QPS, base.Burst = requestRate, requestBurst
	transport, err := rest.HTTPClientFor(base)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	c := &Client{codec: runtime.NewParameterCodec(scheme)}
	for _, group := range []struct {
		client *rest.Interface
		root   string
		gv     schema.GroupVersion
	}{{&c.core, "/api", corev1.SchemeGroupVersion}, {&c.weft, "/apis", v1.GroupVersion()}, {&c.npwg, "/apis", npwg.GroupVersion()},
		{&c.coordination, "/apis", coordinationv1.SchemeGroupVersion}, {&c.discovery, "/apis", discoveryv1.SchemeGroupVersion},
		{&c.networking, "/apis", networkingv1.SchemeGroupVersion}} {
		config := rest.CopyConfig(base)
		config.APIPath, config.GroupVersion = group.root, &group.gv
		client, err := rest.RESTClientForConfigAndClient(config, transport)
		if err != nil {
			return nil, fmt.Errorf("make a client of %s: %w", group.gv, err)
		}
		*group.client = client
	}
	if c.metadata, err = metadata.NewForConfigAndClient(base, transport); err != nil {
		return nil, fmt.Errorf("make a client of metadata: %w", err)
	}
	return c, nil
}

// Host is the API server's, without port.
func (c *Client) Host() string { return c.core.Get().URL().Hostname() }

// PodMetadata is access to the metadata of all pods.
func (c *Client) PodMetadata() metadata.Getter {
	return c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
}

// Pods is access to the pods of a namespace; "" is all of them.
func (c *Client) Pods(namespace string) *Typed[*corev1.Pod, *corev1.PodList] {
	return gentype.NewClientWithList("pods", c.core, c.codec, namespace,
		func() *corev1.Pod { return &corev1.Pod{} }, func() *corev1.PodList { return &corev1.PodList{} })
}

// Namespaces is access to namespaces.
func (c *Client) Namespaces() *Typed[*corev1.Namespace, *corev1.NamespaceList] {
	return gentype.NewClientWithList("namespaces", c.core, c.codec, "",
		func() *corev1.Namespace { return &corev1.Namespace{} }, func() *corev1.NamespaceList { return &corev1.NamespaceList{} })
}

// Nodes is access to nodes.
func (c *Client) Nodes() *Typed[*corev1.Node, *corev1.NodeList] {
	return gentype.NewClientWithList("nodes", c.core, c.codec, "",
		func() *corev1.Node { return &corev1.Node{} }, func() *corev1.NodeList { return &corev1.NodeList{} })
}

// ConfigMaps is access to the configuration maps of a namespace.
func (c *Client) ConfigMaps(namespace string) *Typed[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return gentype.NewClientWithList("configmaps", c.core, c.codec, namespace,
		func() *corev1.ConfigMap { return &corev1.ConfigMap{} }, func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} })
}

// Events is access to the events of a namespace.
func (c *Client) Events(namespace string) *Typed[*corev1.Event, *corev1.EventList] {
	return gentype.NewClientWithList("events", c.core, c.codec, namespace,
		func() *corev1.Event { return &corev1.Event{} }, func() *corev1.EventList { return &corev1.EventList{} })
}

// Leases is access to the leases of a namespace.
func (c *Client) Leases(namespace string) *Typed[*coordinationv1.Lease, *coordinationv1.LeaseList] {
	return gentype.NewClientWithList("leases", c.coordination, c.codec, namespace,
		func() *coordinationv1.Lease { return &coordinationv1.Lease{} },
		func() *coordinationv1.LeaseList { return &coordinationv1.LeaseList{} })
}

// Services is access to the Services of a namespace; "" is all of them.
func (c *Client) Services(namespace string) *Typed[*corev1.Service, *corev1.ServiceList] {
	return gentype.NewClientWithList("services", c.core, c.codec, namespace,
		func() *corev1.Service { return &corev1.Service{} }, func() *corev1.ServiceList { return &corev1.ServiceList{} })
}

// EndpointSlices is access to the EndpointSlices of a namespace; "" is all of them.
func (c *Client) EndpointSlices(namespace string) *Typed[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList] {
	return gentype.NewClientWithList("endpointslices", c.discovery, c.codec, namespace,
		func() *discoveryv1.EndpointSlice { return &discoveryv1.EndpointSlice{} },
		func() *discoveryv1.EndpointSliceList { return &discoveryv1.EndpointSliceList{} })
}

// ServiceRanges is access to the ranges of Services. Kubernetes before 1.33 does not have the kind.
func (c *Client) ServiceRanges() *Typed[*networkingv1.ServiceCIDR, *networkingv1.ServiceCIDRList] {
	return gentype.NewClientWithList("servicecidrs", c.networking, c.codec, "",
		func() *networkingv1.ServiceCIDR { return &networkingv1.ServiceCIDR{} },
		func() *networkingv1.ServiceCIDRList { return &networkingv1.ServiceCIDRList{} })
}

// Networks is access to custom networks.
func (c *Client) Networks() *Typed[*v1.CustomNetwork, *v1.CustomNetworkList] {
	return gentype.NewClientWithList("customnetworks", c.weft, c.codec, "",
		func() *v1.CustomNetwork { return &v1.CustomNetwork{} }, func() *v1.CustomNetworkList { return &v1.CustomNetworkList{} })
}

// Pools is access to pools of addresses.
func (c *Client) Pools() *Typed[*v1.IPPool, *v1.IPPoolList] {
	return gentype.NewClientWithList("ippools", c.weft, c.codec, "",
		func() *v1.IPPool { return &v1.IPPool{} }, func() *v1.IPPoolList { return &v1.IPPoolList{} })
}

// Blocks is access to blocks of addresses.
func (c *Client) Blocks() *Typed[*v1.IPBlock, *v1.IPBlockList] {
	return gentype.NewClientWithList("ipblocks", c.weft, c.codec, "",
		func() *v1.IPBlock { return &v1.IPBlock{} }, func() *v1.IPBlockList { return &v1.IPBlockList{} })
}

// NodeNetworks is access to what nodes tell each other.
func (c *Client) NodeNetworks() *Typed[*v1.NodeNetwork, *v1.NodeNetworkList] {
	return gentype.NewClientWithList("nodenetworks", c.weft, c.codec, "",
		func() *v1.NodeNetwork { return &v1.NodeNetwork{} }, func() *v1.NodeNetworkList { return &v1.NodeNetworkList{} })
}

// Externals is access to external interfaces.
func (c *Client) Externals() *Typed[*v1.ExternalInterface, *v1.ExternalInterfaceList] {
	return gentype.NewClientWithList("externalinterfaces", c.weft, c.codec, "",
		func() *v1.ExternalInterface { return &v1.ExternalInterface{} },
		func() *v1.ExternalInterfaceList { return &v1.ExternalInterfaceList{} })
}

// PodInterfaces is access to what pods of a namespace got.
func (c *Client) PodInterfaces(namespace string) *Typed[*v1.PodInterfaces, *v1.PodInterfacesList] {
	return gentype.NewClientWithList("podinterfaces", c.weft, c.codec, namespace,
		func() *v1.PodInterfaces { return &v1.PodInterfaces{} }, func() *v1.PodInterfacesList { return &v1.PodInterfacesList{} })
}

// Configs is access to the cluster's switches.
func (c *Client) Configs() *Typed[*v1.WeftConfig, *v1.WeftConfigList] {
	return gentype.NewClientWithList("weftconfigs", c.weft, c.codec, "",
		func() *v1.WeftConfig { return &v1.WeftConfig{} }, func() *v1.WeftConfigList { return &v1.WeftConfigList{} })
}

// Definitions is access to the NetworkAttachmentDefinitions of a namespace; "" is all of them.
func (c *Client) Definitions(namespace string) *Typed[*npwg.NetworkAttachmentDefinition, *npwg.NetworkAttachmentDefinitionList] {
	return gentype.NewClientWithList("network-attachment-definitions", c.npwg, c.codec, namespace,
		func() *npwg.NetworkAttachmentDefinition { return &npwg.NetworkAttachmentDefinition{} },
		func() *npwg.NetworkAttachmentDefinitionList { return &npwg.NetworkAttachmentDefinitionList{} })
}

// OperatorConnection reads how an operator reaches the API server, as kubectl does: the file, else those that KUBECONFIG
// names, else ~/.kube/config, else as a pod. Nothing is sent.
func OperatorConnection(file string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	rules.WarnIfAllMissing = false
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no API server to ask: there is neither a kubeconfig (--kubeconfig, KUBECONFIG, ~/.kube/config) nor a pod's service account")
	case err != nil:
		return nil, fmt.Errorf("read kubeconfig: %w", OneLine(err))
	}
	c.UserAgent = "weftctl/" + version.String()
	return c, nil
}
