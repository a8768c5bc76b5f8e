package secrets_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/netns"
)

// place is an output of the programs.
type place struct {
	name  string
	proof string // text that it must contain, because an empty output proves nothing
	read  func() (string, error)
	kept  []string // entry places of secrets that it may contain
}

// readers are the read-only commands of weftctl, with text that they must show.
func (s *scene) readers() map[string]string {
	id := s.pod.ContainerID[:12]
	return map[string]string{
		"attachments":             id,
		"events --last 0":         id,
		"transactions 1000 --ops": "eth0",
		"objects":                 "vpp.interface/",
		"why " + waiting:          "nowhere",
		"addresses":               "10.1.0.",
		"status":                  "ready",
		"objects linux.file/":     "secret",
		"objects vpp.":            "eth0",
		"counters":                "eth0",
		"devices":                 "vnf",
		"settings":                "stateDir",
		"pod shop/a":              id,
		"event 1":                 "external",
		"transaction 1":           "resync",
		"diff":                    "compared",
		"dataplane interfaces":    "eth0",
		"dataplane memifs":        "memif",
		"dataplane fib":           "10.1.0.",
		"dataplane neighbours":    "10.1.0.",
	}
}

// others are commands of weftctl that show only names, phases and numbers, packets of pods, schemas, or what another
// command shows, too. The test of bundle is in test/failures; a plan has the redacted values of the objects.
var others = []string{
	"audit", "bundle", "capture", "check", "completion", "configure", "gc", "graph", "help", "install", "lint",
	"log-level", "plan", "policy", "profile", "quarantine",
	"resync", "schema", "trace", "ui", "upgrade",
}

// dataplaneSays is text that the dataplane's log must have; VPP's has the probe for taps only.
func dataplaneSays() string {
	switch {
	case dataplane.Prefix() == "":
		return "dataplane ready"
	case dataplane.HasTaps():
		return ""
	}
	return "vhost-net"
}

// everywhere returns all outputs while the agent runs.
func (s *scene) everywhere() []place {
	all := []place{
		s.file("the agent's log", s.node.AgentLog(), s.pod.ContainerID),
		s.file("the dataplane's log", s.node.DataplaneLog(), dataplaneSays()),
		s.file("the plugin's log", s.log, s.pod.ContainerID),
		{name: "the aliases of links", proof: "weft:weft/" + s.pod.ContainerID, read: s.aliases},
		{name: "the dataplane", proof: "weft-", read: s.dataplane},
		{name: "the files beside a memif's secret", proof: "m0", read: s.besideSecret},
		{name: "the command lines", proof: "--external-config", read: s.commandLines},
	}
	for command, proof := range s.readers() {
		for _, format := range []string{"wide", "json", "yaml"} {
			args := append(strings.Fields(command), "-o", format)
			ask := func() (string, error) { return s.node.Weftctl(s.Context(), args...) }
			all = append(all, place{name: "weftctl " + strings.Join(args, " "), proof: proof, read: ask})
		}
	}
	return all
}

func (s *scene) file(name, path, proof string) place {
	return place{
		name:  name,
		proof: proof,
		read:  func() (string, error) { text, err := os.ReadFile(path); return string(text), err },
	}
}

// state returns all files of the agent's state, which may have some of the secrets.
func (s *scene) state(proof string) place {
	kept := []string{unknownAnnotation, "a file with " + secretFile, "values with " + secretFile, memifSecret}
	return place{name: "the agent's state", proof: proof, kept: kept, read: func() (string, error) {
		var all strings.Builder
		err := filepath.WalkDir(s.node.State(), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			fmt.Fprintf(&all, "%s\n%s\n", path, text)
			return err
		})
		return all.String(), err
	}}
}

// aliases returns the names and aliases of all links of the node and of the pod.
func (s *scene) aliases() (string, error) {
	var all strings.Builder
	for _, path := range []string{s.home, s.pod.Netns} {
		err := netns.Do(path, func() error {
			links, err := netlink.LinkList()
			for _, l := range links {
				fmt.Fprintln(&all, l.Attrs().Name, l.Attrs().Alias)
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return all.String(), nil
}

// dataplane returns all dumps of the dataplane: interfaces with tags, routes, neighbours, bridge domains, ACLs.
func (s *scene) dataplane() (string, error) {
	all, err := leftovers.Take(s.Context(), leftovers.Places{Dataplane: s.node.DataplaneSocket()})
	return strings.Join(all.Since(leftovers.Snapshot{}), "\n"), err
}

// commandLines returns the command lines that every user can read.
func (s *scene) commandLines() (string, error) {
	var all strings.Builder
	for _, pid := range []int{s.node.AgentPID(), s.node.DataplanePID()} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&all, strings.ReplaceAll(string(text), "\x00", " "))
	}
	return all.String(), nil
}
