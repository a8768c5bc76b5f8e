package secrets_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/memif"
)

// memifSecret is the one secret that Weft makes itself. It is kept in the agent's state, and told to kubelet.
const memifSecret = "the secret of a memif"

// allocate lets kubelet allocate a memif for the pod, whose secret must not be seen from then on.
func (s *scene) allocate() {
	s.Helper()
	containers, err := s.node.Admit(s.Context(), s.pod, kubelettest.Container{Name: "vnf", Limit: 1})
	try(s.T, err)
	s.vnf = containers[0]
	s.markers[memifSecret] = s.vnf.Envs[memif.SecretVariable]
	if len(s.markers[memifSecret]) < enough {
		s.Fatal("there is no secret to look for")
	}
}

// inDirectory is a file of the container's directory on the node.
func (s *scene) inDirectory(name string) string {
	return filepath.Join(s.vnf.Mounts[0].GetHostPath(), name)
}

// guess connects to the memif with a wrong secret, and with the right one.
func (s *scene) guess() {
	s.Helper()
	for _, secret := range []string{s.markers.add("what a stranger takes for the secret"), s.markers[memifSecret]} {
		conn, err := memif.Connect(s.Context(), memif.ClientConfig{Socket: s.inDirectory("memif.sock"), ID: 1, Secret: memif.Secret(secret)})
		if right := secret == s.markers[memifSecret]; (err == nil) != right {
			s.Errorf("connecting, the secret being right: %t: %v", right, err)
		}
		if err != nil {
			fmt.Fprintln(&s.said, err)
			continue
		}
		conn.Close()
		conn.Release()
	}
}

// besideSecret is all that stands on the node for the memif but the file that holds the secret, and what kubelet was told
// that is not for the container's own eyes.
func (s *scene) besideSecret() (string, error) {
	var all strings.Builder
	fmt.Fprintln(&all, s.vnf.Annotations, s.vnf.Mounts)
	infos, err := filepath.Glob(filepath.Join(s.node.DeviceInfo(), "*"))
	if err != nil {
		return "", err
	}
	for _, path := range append(infos, s.inDirectory(memif.DescriptionFile), strings.TrimSuffix(s.inDirectory(""), "/")+".json") {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&all, "%s\n%s\n", path, text)
	}
	return all.String(), nil
}
