// Package client is access to the API server: typed, for the kinds that Weft uses, and limited.
package client

import (
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

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
	kubernetesKinds
	weftKinds
	npwgKinds
	adminKinds
	metadataOnly

	connection *rest.Config
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
	codec := runtime.NewParameterCodec(scheme)
	c := &Client{connection: rest.CopyConfig(connection)}
	for _, kinds := range []struct {
		group *group
		root  string
		gv    schema.GroupVersion
	}{
		{&c.core, "/api", corev1.SchemeGroupVersion},
		{&c.coordination, "/apis", coordinationv1.SchemeGroupVersion},
		{&c.discovery, "/apis", discoveryv1.SchemeGroupVersion},
		{&c.networking, "/apis", networkingv1.SchemeGroupVersion},
		{&c.weft, "/apis", v1.GroupVersion()},
		{&c.definitions, "/apis", npwg.GroupVersion()},
		{&c.claims, "/apis", npwg.ClaimGroupVersion()},
		{&c.policies, "/apis", npwg.PolicyGroupVersion()},
		{&c.admin, "/apis", adminpolicy.GroupVersion()},
	} {
		config := rest.CopyConfig(base)
		config.APIPath = kinds.root
		config.GroupVersion = &kinds.gv
		client, err := rest.RESTClientForConfigAndClient(config, transport)
		if err != nil {
			return nil, fmt.Errorf("make a client of %s: %w", kinds.gv, err)
		}
		*kinds.group = group{client, codec}
	}
	if c.kinds, err = metadata.NewForConfigAndClient(base, transport); err != nil {
		return nil, fmt.Errorf("make a client of metadata: %w", err)
	}
	return c, nil
}

// Connection returns how the client reaches the API server; the caller must not change it.
func (c *Client) Connection() *rest.Config { return c.connection }

// ExecURL returns the URL that runs a program in a container of a pod.
func (c *Client) ExecURL(namespace, pod string, options *corev1.PodExecOptions) *url.URL {
	return c.core.Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").VersionedParams(options,
		c.core.codec).URL()
}

// Host is the host of the API server, without port.
func (c *Client) Host() string { return c.core.Get().URL().Hostname() }

// oneLine is an error with its text in one line.
type oneLine struct{ error }

// Error returns the text without line breaks.
func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }

// Unwrap returns the original error.
func (e oneLine) Unwrap() error { return e.error }

// OneLine returns err with its text in one line.
func OneLine(err error) error { return oneLine{err} }
