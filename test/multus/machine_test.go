package multus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/server"
	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/server/api"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
)

// machine is a node of a cluster with Weft's agent and dataplane, and with Multus above weft-cni.
type machine struct {
	*node.Node
	t       *testing.T
	server  *k8stest.Server
	kubelet *kubelet // has the claim
	own     string   // its socket; Kubelet has the devices of limits, and a socket of its own
	runtime *node.Runtime
	conf    map[string]any // of Multus
}

// newMachine starts the agent and makes a runtime that executes Multus in one of its forms.
func newMachine(t *testing.T, programs, form string) *machine {
	t.Helper()
	m := &machine{t: t, server: k8stest.New(t), kubelet: &kubelet{}}
	blocks := []string{"10.8.1.0/24", "fd00:8:1::/64"}
	m.server.Put("nodes", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: "uid-n1"},
		Spec:       corev1.NodeSpec{PodCIDR: blocks[0], PodCIDRs: blocks},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
		},
	})
	for _, namespace := range []string{"shop", "kube-system"} {
		m.server.Put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	n, err := node.New(programs, node.Options{
		Kubeconfig: kubeconfig(t, m.server.Connection().Host),
		Memifs:     2, // for limits; there are two more for claims
		Embedded:   true,
	})
	must(t, err)
	m.Node = n
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(n.LogTails(60))
		}
		must(t, n.Close())
	})
	hide(t, "/var/run")
	hide(t, "/var/lib")
	reach(t, m.server.Connection().Host)
	m.own = serve(t, m.kubelet)
	must(t, os.MkdirAll(filepath.Dir(podResources), 0o700))
	m.listPods(m.own)
	must(t, os.MkdirAll(filepath.Join(m.kubeletDir(), "plugins_registry"), 0o700))
	must(t, n.StartAgent(t.Context(), "--kubernetes-multus", "--devices-memif-count=4", "--devices-memif-claims=2",
		"--devices-cdi-dir="+filepath.Join(n.Dir, "cdi"), "--devices-info-dir=/var/run/k8s.cni.cncf.io/devinfo/dp"))
	m.install(form)
	return m
}

// podResources is where Multus asks kubelet for the devices of pods.
const podResources = "/var/lib/kubelet/pod-resources/kubelet.sock"

// listPods makes Multus ask the kubelet with the socket.
func (m *machine) listPods(socket string) {
	m.t.Helper()
	if err := os.Remove(podResources); !errors.Is(err, fs.ErrNotExist) {
		must(m.t, err)
	}
	must(m.t, os.Symlink(socket, podResources))
}

func (m *machine) kubeletDir() string { return filepath.Join(m.Dir, "kubelet") }

// hide puts an empty directory above a directory of the machine, in which Multus has fixed paths.
func hide(t *testing.T, dir string) {
	t.Helper()
	real, err := filepath.EvalSymlinks(dir)
	must(t, err)
	must(t, unix.Mount("tmpfs", real, "tmpfs", 0, "mode=755"))
	t.Cleanup(func() { must(t, unix.Unmount(real, unix.MNT_DETACH)) })
}

// kubeconfig returns the path of a configuration with the address of an API server.
func kubeconfig(t *testing.T, host string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: host}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it"}
	config.CurrentContext = "it"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, file))
	return file
}

// reach lets Multus reach the API server as in a pod: with TLS, by the files of a service account. Multus writes in
// protobuf, which the server of the tests does not read.
func reach(t *testing.T, host string) {
	t.Helper()
	target, err := url.Parse(host)
	must(t, err)
	front := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		asJSON(t, r.Out)
	}})
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	const account = "/var/run/secrets/kubernetes.io/serviceaccount"
	must(t, os.MkdirAll(account, 0o700))
	must(t, os.WriteFile(account+"/token", []byte("token"), 0o600))
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	must(t, os.WriteFile(account+"/ca.crt", ca, 0o600))
	ip, port, err := net.SplitHostPort(front.Listener.Addr().String())
	must(t, err)
	t.Setenv("KUBERNETES_SERVICE_HOST", ip)
	t.Setenv("KUBERNETES_SERVICE_PORT", port)
}

// asJSON converts the body of a request.
func asJSON(t *testing.T, r *http.Request) {
	if r.Header.Get("Content-Type") != "application/vnd.kubernetes.protobuf" || r.Body == nil {
		return
	}
	raw, err := io.ReadAll(r.Body)
	if err == nil && len(raw) > 0 {
		o, _, problem := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err = problem; err == nil {
			raw, err = json.Marshal(o)
		}
	}
	if err != nil {
		t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Body = io.NopCloser(bytes.NewReader(raw))
	r.ContentLength = int64(len(raw))
}

// install makes the CNI configuration of Multus with Weft as its cluster network, and starts the daemon of the form
// "thick".
func (m *machine) install(form string) {
	m.t.Helper()
	self, err := os.Executable()
	must(m.t, err)
	plugins := m.t.TempDir()
	for _, name := range []string{thinPlugin, shimPlugin} {
		must(m.t, os.Symlink(self, filepath.Join(plugins, name)))
	}
	weft, err := m.Conflist()
	must(m.t, err)
	settings := map[string]any{
		"cniDir": filepath.Join(m.Dir, "multus"), "binDir": filepath.Dir(m.Program("weft-cni")),
		"logLevel": "verbose", "logToStderr": true,
	}
	m.conf = map[string]any{"type": thinPlugin, "delegates": []json.RawMessage{weft}}
	for key, value := range settings {
		m.conf[key] = value
	}
	if form == "thick" {
		m.conf["type"] = shimPlugin
		m.conf["daemonSocketDir"] = m.serve(settings)
	}
	list, err := json.Marshal(map[string]any{
		"cniVersion": "1.1.0", "name": "multus-cni-network", "plugins": []any{m.conf},
	})
	must(m.t, err)
	m.runtime, err = node.NewRuntime(list, []string{plugins}, filepath.Join(m.Dir, "cache"), m.t.Output())
	must(m.t, err)
}

// serve starts the daemon of thick Multus and returns the directory of its socket.
func (m *machine) serve(settings map[string]any) (dir string) {
	m.t.Helper()
	dir = filepath.Join(m.Dir, "daemon")
	prometheus.DefaultRegisterer = prometheus.NewRegistry() // the daemon registers once in a process
	must(m.t, server.FilesystemPreRequirements(dir))
	config, err := json.Marshal(settings)
	must(m.t, err)
	daemon, err := server.NewCNIServer(&server.ControllerNetConf{SocketDir: dir}, config, false)
	must(m.t, err)
	listener, err := server.GetListener(api.SocketPath(dir))
	must(m.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	daemon.Start(ctx, listener)
	m.t.Cleanup(func() {
		cancel()
		must(m.t, daemon.Close())
	})
	return dir
}
