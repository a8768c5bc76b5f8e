package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/weftnet/weft/test/e2e/pki"
	"github.com/weftnet/weft/test/e2e/service"
)

// The cluster's address ranges: IPv4 first, so the Service of the API server is IPv4.
const (
	podCIDRs     = "10.244.0.0/16,fd00:244::/48"
	serviceCIDRs = "10.96.0.0/16,fd00:96::/112"
	etcdURL      = "http://127.0.0.1:2379"
	etcdPeerURL  = "http://127.0.0.1:2380"
)

// apiService is the address of the API server's Service: the first of the services' range.
var apiService = netip.MustParseAddr("10.96.0.1")

// Control is the control plane, in the network namespace of this process. Each service can be stopped, killed, frozen
// and started again; etcd keeps the API server's objects.
type Control struct {
	Etcd, APIServer, ControllerManager, Scheduler *service.Service

	// URL is the API server's URL for nodes and tests.
	URL string

	authority *pki.Authority
	dir       string
	client    *kubernetes.Clientset
	access    *rest.Config
}

// newControl makes keys and files, and starts nothing.
func newControl(config Config, router []netip.Addr) (*Control, error) {
	authority, err := pki.NewAuthority("weft-e2e")
	if err != nil {
		return nil, err
	}
	c := &Control{
		URL:       "https://" + netip.AddrPortFrom(router[0], 6443).String(),
		authority: authority, dir: filepath.Join(config.Stage.Disk(), "control"),
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the control plane's directory: %w", err)
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	if err := c.writeFiles(router); err != nil {
		return nil, err
	}
	make := func(name string, arguments ...string) *service.Service {
		return service.New(service.Daemon{
			Name: name, Path: config.Programs.Path(name), Args: arguments, Env: config.Programs.Env(),
			Log: filepath.Join(config.Stage.Logs(), name+".log"), Start: (*exec.Cmd).Start,
		})
	}
	c.Etcd = make("etcd", c.etcdArguments()...)
	c.APIServer = make("kube-apiserver", c.apiServerArguments(router[0])...)
	c.ControllerManager = make("kube-controller-manager", c.managerArguments()...)
	c.Scheduler = make("kube-scheduler", "--kubeconfig="+c.file("scheduler.kubeconfig"), "--leader-elect=false",
		"--bind-address=127.0.0.1")
	return c, nil
}

// connect makes the administrator's client.
func (c *Control) connect() error {
	admin, err := c.authority.Issue(pki.Subject{Name: "admin", Groups: []string{"system:masters"}})
	if err != nil {
		return err
	}
	c.access = c.authority.Client(c.URL, admin)
	c.access.QPS = -1 // no rate limit of the test's client
	if c.client, err = kubernetes.NewForConfig(c.access); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	file, err := c.authority.Kubeconfig(c.URL, admin)
	if err != nil {
		return err
	}
	return c.write("admin.kubeconfig", file)
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Control) Kubeconfig() string { return c.file("admin.kubeconfig") }

func (c *Control) file(name string) string { return filepath.Join(c.dir, name) }

func (c *Control) write(name string, content []byte) error {
	if err := os.WriteFile(c.file(name), content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// writeFiles makes the certificates, keys and kubeconfigs of the control plane.
func (c *Control) writeFiles(router []netip.Addr) error {
	serving, err := c.authority.Issue(pki.Subject{
		Name:      "kube-apiserver",
		DNS:       []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		Addresses: append([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback(), apiService}, router...),
	})
	if err != nil {
		return err
	}
	toKubelets, err := c.authority.Issue(pki.Subject{
		Name:   "kube-apiserver-kubelet-client",
		Groups: []string{"system:masters"},
	})
	if err != nil {
		return err
	}
	tokens, err := pki.SigningKey()
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"ca.crt": c.authority.Cert, "ca.key": c.authority.Key, "tokens.key": tokens,
		"serving.crt": serving.Cert, "serving.key": serving.Key, "kubelets.crt": toKubelets.Cert,
		"kubelets.key": toKubelets.Key,
	}
	for file, user := range map[string]string{
		"manager.kubeconfig":   "system:kube-controller-manager",
		"scheduler.kubeconfig": "system:kube-scheduler",
	} {
		if files[file], err = c.kubeconfig(pki.Subject{Name: user}); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := c.write(name, content); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig issues a client certificate for a user and returns a kubeconfig with it.
func (c *Control) kubeconfig(s pki.Subject) ([]byte, error) {
	pair, err := c.authority.Issue(s)
	if err != nil {
		return nil, err
	}
	return c.authority.Kubeconfig(c.URL, pair)
}

func (c *Control) etcdArguments() []string {
	return []string{
		"--data-dir=" + c.file("etcd"), "--unsafe-no-fsync", "--listen-client-urls=" + etcdURL,
		"--advertise-client-urls=" + etcdURL,
		"--listen-peer-urls=" + etcdPeerURL, "--initial-advertise-peer-urls=" + etcdPeerURL,
		"--initial-cluster=default=" + etcdPeerURL,
	}
}

func (c *Control) apiServerArguments(advertised netip.Addr) []string {
	return []string{
		"--etcd-servers=" + etcdURL, "--bind-address=::", "--advertise-address=" + advertised.String(),
		"--tls-cert-file=" + c.file("serving.crt"), "--tls-private-key-file=" + c.file("serving.key"),
		"--client-ca-file=" + c.file("ca.crt"),
		"--kubelet-client-certificate=" + c.file("kubelets.crt"), "--kubelet-client-key=" + c.file("kubelets.key"),
		"--kubelet-certificate-authority=" + c.file("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + c.file("tokens.key"),
		"--service-account-signing-key-file=" + c.file("tokens.key"), "--service-cluster-ip-range=" + serviceCIDRs,
		"--authorization-mode=Node,RBAC", "--allow-privileged=true", "--profiling=false",
	}
}

func (c *Control) managerArguments() []string {
	return []string{
		"--kubeconfig=" + c.file("manager.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1",
		// Without these, there are no default service accounts, and new nodes keep their taints.
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.file("tokens.key"), "--root-ca-file=" + c.file("ca.crt"),
		"--cluster-signing-cert-file=" + c.file("ca.crt"), "--cluster-signing-key-file=" + c.file("ca.key"),
		"--allocate-node-cidrs=true", "--cluster-cidr=" + podCIDRs, "--node-cidr-mask-size-ipv4=24",
		"--node-cidr-mask-size-ipv6=64",
		"--service-cluster-ip-range=" + serviceCIDRs,
		"--node-monitor-period=1s", // removes the taints of a node that is ready again soon
	}
}

// start starts the control plane and waits until the API server is ready.
func (c *Control) start(ctx context.Context) error {
	for _, s := range []*service.Service{c.Etcd, c.APIServer} {
		if err := s.Start(); err != nil {
			return err
		}
	}
	if err := c.AwaitAPI(ctx); err != nil {
		return err
	}
	return errors.Join(c.ControllerManager.Start(), c.Scheduler.Start())
}

// AwaitAPI waits until the API server is ready.
func (c *Control) AwaitAPI(ctx context.Context) error {
	return Eventually(ctx, "the API server is ready", func(ctx context.Context) error {
		if err := errors.Join(c.Etcd.Ended(), c.APIServer.Ended()); err != nil {
			return hopeless(err)
		}
		_, err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
}

// kill kills the control plane.
func (c *Control) kill() error {
	var failed error
	for _, s := range []*service.Service{c.Scheduler, c.ControllerManager, c.APIServer, c.Etcd} {
		if s != nil {
			failed = errors.Join(failed, s.Kill())
		}
	}
	return failed
}
