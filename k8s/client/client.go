// Package client is access to the API server: typed, for the kinds that Weft uses, and limited.
package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

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
	"k8s.io/utils/ptr"

	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/k8s/api/adminpolicy"
	"github.com/weftnet/weft/k8s/api/npwg"
	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Limits of the requests of one agent, a second and in a burst. Most of its work needs only watches; a node that starts
// claims and reports.
const (
	requestRate  = 20
	requestBurst = 40
)

// Client is typed access to the kinds that Weft uses. The clientset of client-go has the kinds of all groups of
// Kubernetes, and the linker can drop none of them.
type Client struct {
	core, weft, npwg, npwgPolicy, npwgClaim, admin, coordination, discovery, networking rest.Interface

	metadata   metadata.Interface // any kind, without spec and status
	codec      runtime.ParameterCodec
	connection *rest.Config
}

// Typed is access to the objects of one kind.
type Typed[T interface {
	runtime.Object
	metav1.Object
}, L runtime.Object] = gentype.ClientWithList[T, L]

// typed makes access to the objects of a kind; namespace "" is all of them.
func typed[T, L any, PT interface {
	*T
	runtime.Object
	metav1.Object
}, PL interface {
	*L
	runtime.Object
}](c *Client, group rest.Interface, resource, namespace string) *Typed[PT, PL] {
	return gentype.NewClientWithList(resource, group, c.codec, namespace, func() PT { return new(T) }, func() PL {
		return new(L)
	})
}

// Connection reads how to reach the API server: from a kubeconfig file, or as a pod if file is "". It sends nothing.
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

// OperatorContext reads how an operator reaches the API server, like kubectl: from the file, else from the files in
// KUBECONFIG, else from ~/.kube/config, else as a pod. context is a context of the kubeconfig; "" is its current one.
// It sends nothing.
func OperatorContext(file, context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	rules.WarnIfAllMissing = false
	overrides := &clientcmd.ConfigOverrides{CurrentContext: context}
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err) && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "":
		return nil, noneOf(rules.Precedence)
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New(
			"no API server to ask: there is neither a kubeconfig (--kubeconfig, KUBECONFIG, ~/.kube/config) nor a pod's service account")
	case err != nil:
		return nil, fmt.Errorf("read kubeconfig: %w", OneLine(err))
	}
	c.UserAgent = "weftctl/" + version.String()
	return c, nil
}

// noneOf says why no file of KUBECONFIG has an API server.
func noneOf(files []string) error {
	var reasons []string
	for _, file := range files {
		reason := "has no API server"
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			reason = "does not exist"
			if directory, err := os.Getwd(); err == nil && !filepath.IsAbs(file) {
				reason += " in " + directory
			}
		}
		reasons = append(reasons, file+" "+reason)
	}
	return fmt.Errorf("no API server to ask: KUBECONFIG is set, and %s", strings.Join(reasons, ", "))
}

// newScheme returns the kinds of the methods of a client.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme),
		discoveryv1.AddToScheme(scheme),
		networkingv1.AddToScheme(scheme), v1.AddToScheme(scheme), npwg.AddToScheme(scheme),
		npwg.AddPoliciesToScheme(scheme),
		npwg.AddClaimsToScheme(scheme), adminpolicy.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	return scheme, nil
}

// New makes a client. It sends nothing.
func New(connection *rest.Config) (*Client, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	base := rest.CopyConfig(connection)
	base.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if base.UserAgent == "" {
		base.UserAgent = "weft-agent/" + version.String()
	}
	base.QPS = requestRate
	base.Burst = requestBurst
	transport, err := rest.HTTPClientFor(base)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	c := &Client{codec: runtime.NewParameterCodec(scheme), connection: rest.CopyConfig(connection)}
	for _, group := range []struct {
		client *rest.Interface
		root   string
		gv     schema.GroupVersion
	}{{&c.core, "/api", corev1.SchemeGroupVersion}, {&c.weft, "/apis", v1.GroupVersion()}, {
		&c.npwg, "/apis", npwg.GroupVersion(),
	},
		{&c.npwgPolicy, "/apis", npwg.PolicyGroupVersion()}, {&c.npwgClaim, "/apis", npwg.ClaimGroupVersion()},
		{&c.admin, "/apis", adminpolicy.GroupVersion()},
		{&c.coordination, "/apis", coordinationv1.SchemeGroupVersion}, {
			&c.discovery, "/apis", discoveryv1.SchemeGroupVersion,
		},
		{&c.networking, "/apis", networkingv1.SchemeGroupVersion}} {
		config := rest.CopyConfig(base)
		config.APIPath = group.root
		config.GroupVersion = &group.gv
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

// Connection returns how the client reaches the API server; the caller must not change it.
func (c *Client) Connection() *rest.Config { return c.connection }

// ExecURL returns the URL that runs a program in a container of a pod.
func (c *Client) ExecURL(namespace, pod string, options *corev1.PodExecOptions) *url.URL {
	return c.core.Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").VersionedParams(options,
		c.codec).URL()
}

// Host is the host of the API server, without port.
func (c *Client) Host() string { return c.core.Get().URL().Hostname() }

// PodMetadata is access to the metadata of all pods.
func (c *Client) PodMetadata() metadata.Getter {
	return c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
}

// Pods is access to the pods of a namespace; "": of all namespaces.
func (c *Client) Pods(namespace string) *Typed[*corev1.Pod, *corev1.PodList] {
	return typed[corev1.Pod, corev1.PodList](c, c.core, "pods", namespace)
}

// Namespaces is access to the Namespaces.
func (c *Client) Namespaces() *Typed[*corev1.Namespace, *corev1.NamespaceList] {
	return typed[corev1.Namespace, corev1.NamespaceList](c, c.core, "namespaces", "")
}

// Nodes is access to the Nodes.
func (c *Client) Nodes() *Typed[*corev1.Node, *corev1.NodeList] {
	return typed[corev1.Node, corev1.NodeList](c, c.core, "nodes", "")
}

// ConfigMaps is access to the ConfigMaps of a namespace.
func (c *Client) ConfigMaps(namespace string) *Typed[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return typed[corev1.ConfigMap, corev1.ConfigMapList](c, c.core, "configmaps", namespace)
}

// Events is access to the Events of a namespace.
func (c *Client) Events(namespace string) *Typed[*corev1.Event, *corev1.EventList] {
	return typed[corev1.Event, corev1.EventList](c, c.core, "events", namespace)
}

// Leases is access to the Leases of a namespace.
func (c *Client) Leases(namespace string) *Typed[*coordinationv1.Lease, *coordinationv1.LeaseList] {
	return typed[coordinationv1.Lease, coordinationv1.LeaseList](c, c.coordination, "leases", namespace)
}

// Services is access to the Services of a namespace; "": of all namespaces.
func (c *Client) Services(namespace string) *Typed[*corev1.Service, *corev1.ServiceList] {
	return typed[corev1.Service, corev1.ServiceList](c, c.core, "services", namespace)
}

// EndpointSlices is access to the EndpointSlices of a namespace; "": of all namespaces.
func (c *Client) EndpointSlices(namespace string) *Typed[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList] {
	return typed[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](c, c.discovery, "endpointslices", namespace)
}

// ServiceRanges is access to the ServiceCIDRs. Kubernetes before 1.33 does not have the kind.
func (c *Client) ServiceRanges() *Typed[*networkingv1.ServiceCIDR, *networkingv1.ServiceCIDRList] {
	return typed[networkingv1.ServiceCIDR, networkingv1.ServiceCIDRList](c, c.networking, "servicecidrs", "")
}

// Networks is access to the CustomNetworks.
func (c *Client) Networks() *Typed[*v1.CustomNetwork, *v1.CustomNetworkList] {
	return typed[v1.CustomNetwork, v1.CustomNetworkList](c, c.weft, "customnetworks", "")
}

// Pools is access to the IPPools.
func (c *Client) Pools() *Typed[*v1.IPPool, *v1.IPPoolList] {
	return typed[v1.IPPool, v1.IPPoolList](c, c.weft, "ippools", "")
}

// Blocks is access to the IPBlocks.
func (c *Client) Blocks() *Typed[*v1.IPBlock, *v1.IPBlockList] {
	return typed[v1.IPBlock, v1.IPBlockList](c, c.weft, "ipblocks", "")
}

// NodeNetworks is access to the NodeNetworks.
func (c *Client) NodeNetworks() *Typed[*v1.NodeNetwork, *v1.NodeNetworkList] {
	return typed[v1.NodeNetwork, v1.NodeNetworkList](c, c.weft, "nodenetworks", "")
}

// Externals is access to the ExternalInterfaces.
func (c *Client) Externals() *Typed[*v1.ExternalInterface, *v1.ExternalInterfaceList] {
	return typed[v1.ExternalInterface, v1.ExternalInterfaceList](c, c.weft, "externalinterfaces", "")
}

// PodInterfaces is access to the PodInterfaces of a namespace; "": of all namespaces.
func (c *Client) PodInterfaces(namespace string) *Typed[*v1.PodInterfaces, *v1.PodInterfacesList] {
	return typed[v1.PodInterfaces, v1.PodInterfacesList](c, c.weft, "podinterfaces", namespace)
}

// Configs is access to the WeftConfig.
func (c *Client) Configs() *Typed[*v1.WeftConfig, *v1.WeftConfigList] {
	return typed[v1.WeftConfig, v1.WeftConfigList](c, c.weft, "weftconfigs", "")
}

// Definitions is access to the NetworkAttachmentDefinitions of a namespace; "": of all namespaces.
func (c *Client) Definitions(
	namespace string,
) *Typed[*npwg.NetworkAttachmentDefinition, *npwg.NetworkAttachmentDefinitionList] {
	return typed[npwg.NetworkAttachmentDefinition, npwg.NetworkAttachmentDefinitionList](c, c.npwg,
		"network-attachment-definitions", namespace)
}

// IPAMClaims is access to the IPAMClaims of a namespace; "": of all namespaces.
func (c *Client) IPAMClaims(namespace string) *Typed[*npwg.IPAMClaim, *npwg.IPAMClaimList] {
	return typed[npwg.IPAMClaim, npwg.IPAMClaimList](c, c.npwgClaim, "ipamclaims", namespace)
}

// FullNetworkPolicies is access to all NetworkPolicies with their specs.
func (c *Client) FullNetworkPolicies() *Typed[*networkingv1.NetworkPolicy, *networkingv1.NetworkPolicyList] {
	return typed[networkingv1.NetworkPolicy, networkingv1.NetworkPolicyList](c, c.networking, "networkpolicies", "")
}

// MultiNetworkPolicies is access to all MultiNetworkPolicies.
func (c *Client) MultiNetworkPolicies() *Typed[*npwg.MultiNetworkPolicy, *npwg.MultiNetworkPolicyList] {
	return typed[npwg.MultiNetworkPolicy, npwg.MultiNetworkPolicyList](c, c.npwgPolicy, "multi-networkpolicies", "")
}

// AdminNetworkPolicies is access to the AdminNetworkPolicies.
func (c *Client) AdminNetworkPolicies() *Typed[*adminpolicy.AdminNetworkPolicy, *adminpolicy.AdminNetworkPolicyList] {
	return typed[adminpolicy.AdminNetworkPolicy, adminpolicy.AdminNetworkPolicyList](c, c.admin, "adminnetworkpolicies",
		"")
}

// BaselineAdminNetworkPolicies is access to the BaselineAdminNetworkPolicy of the cluster.
func (c *Client) BaselineAdminNetworkPolicies() *Typed[
	*adminpolicy.BaselineAdminNetworkPolicy, *adminpolicy.BaselineAdminNetworkPolicyList,
] {
	return typed[adminpolicy.BaselineAdminNetworkPolicy, adminpolicy.BaselineAdminNetworkPolicyList](c, c.admin,
		"baselineadminnetworkpolicies", "")
}

// NetworkPolicies is access to the metadata of all NetworkPolicies.
func (c *Client) NetworkPolicies() metadata.Getter {
	return c.metadata.Resource(networkingv1.SchemeGroupVersion.WithResource("networkpolicies"))
}

// CountPolicies returns the number of NetworkPolicies. The API server counts them; its answer has at most one object.
func (c *Client) CountPolicies(ctx context.Context) (int, error) {
	list, err := c.NetworkPolicies().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("count NetworkPolicies: %w", OneLine(err))
	}
	return len(list.Items) + int(ptr.Deref(list.RemainingItemCount, 0)), nil
}

// oneLine is an error with its text in one line.
type oneLine struct{ error }

// Error returns the text without line breaks.
func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }

// Unwrap returns the original error.
func (e oneLine) Unwrap() error { return e.error }

// OneLine returns err with its text in one line.
func OneLine(err error) error { return oneLine{err} }
