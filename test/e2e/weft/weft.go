// Package weft connects pods with Weft, installed with its own manifests.
package weft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/image"
)

// Paths of the repository, relative to the tests.
const (
	programs  = "../../bin"
	manifests = "../../k8s/manifests"
)

const (
	// Image is the image of the manifests.
	Image = "localhost/weft:v0.1.0-dev"
	// NextImage is the image of a later release, NextVersion, with agent and plugin of the same sources.
	NextImage   = "localhost/weft:" + NextVersion
	NextVersion = "v9.9.9"
)

// Weft is the CNI of this repository.
type Weft struct{}

// Name returns the name in reports.
func (Weft) Name() string { return "weft" }

// Images returns the image of all containers, with examples of programs in pods, the image for upgrades of agents, and
// VPP's image if the nodes run on VPP.
func (Weft) Images(ctx context.Context) ([]image.Image, error) {
	files, err := find("weft-agent", "weft-cni", "weft-vswitch", "weftctl", "icmpresponder", "memiftap", "pingcounter")
	if err != nil {
		return nil, err
	}
	next, err := find("next/weft-agent", "next/weft-cni", "weftctl")
	if err != nil {
		return nil, err
	}
	images := []image.Image{{Name: Image, Files: files}, {Name: NextImage, Files: next}}
	if prefix := os.Getenv(PrefixVariable); prefix != "" {
		vpp, err := vppImage(ctx, prefix)
		if err != nil {
			return nil, err
		}
		images = append(images, vpp)
	}
	return images, nil
}

// find returns the programs' paths, by their paths in an image.
func find(names ...string) (map[string]string, error) {
	files := map[string]string{}
	for _, name := range names {
		path, err := filepath.Abs(filepath.Join(programs, name))
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("find the programs: %w: make e2e builds them", err)
		}
		files["/usr/local/bin/"+filepath.Base(name)] = path
	}
	return files, nil
}

// settings make nodes release blocks of deleted networks and pools soon.
const settings = `
apiVersion: contivpp.io/v1
kind: WeftConfig
metadata: {name: default}
spec: {addresses: {releaseAfter: 1s}}
`

// Install applies CRDs, rights, DaemonSets, and settings.
func (Weft) Install(ctx context.Context, c *cluster.Cluster) error {
	types, err := filepath.Glob(filepath.Join(manifests, "crds", "*.yaml"))
	if err != nil || len(types) == 0 {
		return errors.Join(err, errors.New("the manifests have no CRDs"))
	}
	slices.Sort(types)
	daemons := "weft.yaml"
	if OnVPP() {
		daemons = "weft-vpp.yaml"
	}
	for _, name := range append(types, "rbac.yaml", "admission.yaml", "annotate.yaml", "network-status.yaml",
		"pods.yaml", "claim-parameters.yaml", daemons) {
		if !strings.Contains(name, "/") {
			name = filepath.Join(manifests, name)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		// The image is imported on the nodes; there is no registry.
		text = bytes.ReplaceAll(text, []byte("imagePullPolicy: IfNotPresent"), []byte("imagePullPolicy: Never"))
		// Tests do not wait ten seconds for the next readiness probe.
		text = bytes.ReplaceAll(text, []byte("periodSeconds: 10"), []byte("periodSeconds: 2"))
		if _, err := c.Kubectl(ctx, text, "apply", "-f", "-"); err != nil {
			return fmt.Errorf("apply %s: %w", filepath.Base(name), err)
		}
	}
	if _, err := c.Kubectl(ctx, nil, "wait", "--for=condition=Established", "crd/weftconfigs.contivpp.io"); err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, []byte(settings), "apply", "-f", "-")
	return err
}

// NodeUp does nothing: the DaemonSets start by themselves, and the agents make tunnels to other nodes.
func (Weft) NodeUp(context.Context, *cluster.Node) error { return nil }

// nodeAliases are the aliases of the node's own links, with both ends of veths: the host link, and the link for tunnel
// packets.
var nodeAliases = []string{"weft:host", "weft:vtep"}

// Leftovers lists directories of memifs and links of pods that are gone.
func (Weft) Leftovers(_ context.Context, n *cluster.Node) ([]string, error) {
	files, err := n.Files("/run/weft/memif")
	if err != nil {
		return nil, err
	}
	left := slices.Clone(files)
	err = n.Do(func() error {
		links, err := netlink.LinkList()
		for _, link := range links {
			a := link.Attrs()
			if strings.HasPrefix(a.Name, "weft") && !slices.Contains(nodeAliases, a.Alias) {
				left = append(left, "interface "+a.Name)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return left, nil
}
