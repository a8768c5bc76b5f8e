package secrets_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/must"
)

// memifSecret is the secret that Weft generates. It is in the agent's state and in its reply to kubelet.
const memifSecret = "the secret of a memif"

// allocate makes kubelet allocate a memif for the pod; from then on the test searches its secret.
func (s *scene) allocate() {
	s.Helper()
	containers, err := s.node.Admit(s.Context(), s.pod, kubelettest.Container{Name: "vnf", Limit: 1})
	must.Succeed(s.T, err)
	s.vnf = containers[0]
	s.markers[memifSecret] = s.vnf.Envs[memif.SecretVariable]
	if len(s.markers[memifSecret]) < enough {
		s.Fatal("the memif has no secret")
	}
}

// inDirectory returns the path of a file in the container's directory on the node.
func (s *scene) inDirectory(name string) string {
	return filepath.Join(s.vnf.Mounts[0].GetHostPath(), name)
}

// guess connects to the memif with a wrong secret, and with the right one.
func (s *scene) guess() {
	s.Helper()
	for _, secret := range []string{s.markers.add("a wrong secret of a client"), s.markers[memifSecret]} {
		conn, err := memif.Connect(s.Context(), memif.ClientConfig{
			Socket: s.inDirectory("memif.sock"),
			ID:     1,
			Secret: memif.Secret(secret),
		})
		if right := secret == s.markers[memifSecret]; (err == nil) != right {
			s.Errorf("connection with the right secret %t: %v", right, err)
		}
		if err != nil {
			fmt.Fprintln(&s.output, err)
			continue
		}
		conn.Close()
		conn.Release()
	}
}

// besideSecret returns all data on the node about the memif, except the file with the secret and kubelet's data for the
// container.
func (s *scene) besideSecret() (string, error) {
	var all strings.Builder
	fmt.Fprintln(&all, s.vnf.Annotations, s.vnf.Mounts)
	infos, err := filepath.Glob(filepath.Join(s.node.DeviceInfo(), "*"))
	if err != nil {
		return "", err
	}
	for _, path := range append(infos, s.inDirectory(memif.DescriptionFile),
		strings.TrimSuffix(s.inDirectory(""), "/")+".json") {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&all, "%s\n%s\n", path, text)
	}
	return all.String(), nil
}
