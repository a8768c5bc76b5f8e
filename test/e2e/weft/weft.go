// Package weft connects pods with Weft, installed by its own manifests.
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

// Where the repository is, seen from the tests.
const (
	programs  = "../../bin"
	manifests = "../../k8s/manifests"
)

const (
	// Image is what the manifests call it.
	Image = "localhost/weft:v0.1.0-dev"
	// NextImage is that of a later release, NextVersion, whose agent and plugin are built from the same sources.
	NextImage   = "localhost/weft:" + NextVersion
	NextVersion = "v9.9.9"
)

// Weft is this repository's.
type Weft struct{}

// Name is what reports call it.
func (Weft) Name() string { return "weft" }

// Images are the one of all containers, and of an example of a program in a pod, the one that agents are upgraded to, and that of
// VPP if the nodes run on one.
func (Weft) Images(ctx context.Context) ([]image.Image, error) {
	files, err := find("weft-agent", "weft-cni", "weft-vswitch", "weftctl", "icmpresponder")
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

// find says which program is where in an image.
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

// settings has nodes give back soon the blocks of networks and pools that tests have made and deleted.
const settings = `
apiVersion: contivpp.io/v1
kind: WeftConfig
metadata: {name: default}
spec: {addresses: {releaseAfter: 1s}}
`

// Install applies the types of objects, the rights, the DaemonSets, and settings.
func (Weft) Install(ctx context.Context, c *cluster.Cluster) error {
	types, err := filepath.Glob(filepath.Join(manifests, "crds", "*.yaml"))
	if err != nil || len(types) == 0 {
		return errors.Join(err, errors.New("there are no types of objects in the manifests"))
	}
	slices.Sort(types)
	daemons := "weft.yaml"
	if OnVPP() {
		daemons = "weft-vpp.yaml"
	}
	for _, name := range append(types, "rbac.yaml", "admission.yaml", "annotate.yaml", daemons) {
		if !strings.Contains(name, "/") {
			name = filepath.Join(manifests, name)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		// The image is loaded onto the nodes; there is no registry to pull it from.
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

// NodeUp has nothing to do: the DaemonSets come by themselves, and the agents' tunnels lead to the other nodes.
func (Weft) NodeUp(context.Context, *cluster.Node) error { return nil }

// nodeAliases are those of the links that stay as long as the agent serves the node, with both ends of veths: the host link, and
// the one for packets of tunnels.
var nodeAliases = []string{"weft:host", "weft:vtep"}

// Leftovers are directories of memifs and links of pods that are gone.
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
