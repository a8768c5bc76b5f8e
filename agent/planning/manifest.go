package planning

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/weftnet/weft/internal/yamltext"
	"github.com/weftnet/weft/k8s/dra"
	"github.com/weftnet/weft/pod"
)

// maxManifest bounds a manifest, in bytes: the API server's bound for an object.
const maxManifest = 3 << 20

// maxDevices bounds the devices of one container: more than a node can have.
const maxDevices = 1 << 16

// manifest is the part of a Pod that an ADD depends on.
type manifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name         string            `json:"name"`
		GenerateName string            `json:"generateName"`
		Namespace    string            `json:"namespace"`
		UID          string            `json:"uid"`
		Annotations  map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		InitContainers []container `json:"initContainers"`
		Containers     []container `json:"containers"`
		HostNetwork    bool        `json:"hostNetwork"`

		ResourceClaims []dra.PodClaim `json:"resourceClaims"`
	} `json:"spec"`

	others dra.Manifests // of the same file
}

type container struct {
	Name      string `json:"name"`
	Resources struct {
		Limits map[string]any `json:"limits"`
	} `json:"resources"`
}

// parseManifest reads the manifest of one Pod, YAML or JSON, with the claims, templates and DeviceClasses beside it.
func parseManifest(document []byte) (*manifest, error) {
	if len(document) > maxManifest {
		return nil, fmt.Errorf("manifest: it has %d bytes, at most %d are possible", len(document), maxManifest)
	}
	m, err := readManifest(document)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	switch {
	case m.APIVersion != "v1" || m.Kind != "Pod":
		return nil, fmt.Errorf("manifest: it is %s %s, not v1 Pod: for a controller give the Pod of its template",
			cmp.Or(m.APIVersion, "of no apiVersion"), cmp.Or(m.Kind, "and no kind"))
	case m.Metadata.Name == "" && m.Metadata.GenerateName == "":
		return nil, errors.New("manifest: metadata.name is missing")
	case m.Spec.HostNetwork:
		return nil, errors.New("manifest: spec.hostNetwork is true: such a pod has the network of the node, and no ADD")
	}
	return m, nil
}

// readManifest returns the first Pod of a file, or its last object if it has no Pod.
func readManifest(file []byte) (*manifest, error) {
	found := &manifest{}
	var others dra.Manifests
	pods := 0
	for _, d := range yamltext.Documents(file) {
		content, err := d.Decode()
		if err != nil {
			return nil, err
		}
		object, err := json.Marshal(content)
		if err != nil {
			return nil, err
		}
		m := &manifest{}
		if err := json.Unmarshal(object, m); err != nil {
			return nil, err
		}
		if err := others.Add(m.APIVersion, m.Kind, object); err != nil {
			return nil, fmt.Errorf("%s %s: %w", m.Kind, m.Metadata.Name, err)
		}
		isPod := m.APIVersion == "v1" && m.Kind == "Pod"
		if isPod {
			pods++
		}
		if isPod || pods == 0 {
			found = m
		}
	}
	if pods > 1 {
		return nil, fmt.Errorf("it has %d Pods: give one", pods)
	}
	found.others = others
	return found, nil
}

// id returns the pod. A name that the API server would generate ends in "planned".
func (m *manifest) id() pod.ID {
	return pod.ID{
		Namespace: cmp.Or(m.Metadata.Namespace, "default"),
		Name:      cmp.Or(m.Metadata.Name, m.Metadata.GenerateName+"planned"),
		UID:       m.Metadata.UID,
	}
}

// claimed returns a device for each memif of the pod's claims, and a note for each claim that the file does not have.
func (m *manifest) claimed() (grants []pod.Grant, notes []string, _ error) {
	devices, missing, err := m.others.Devices(m.id(), m.Spec.ResourceClaims)
	if err != nil {
		return nil, nil, fmt.Errorf("manifest: %w", err)
	}
	for i, d := range devices {
		name := fmt.Sprint("planned-claim-", i+1)
		grants = append(grants, pod.Grant{GID: pod.UnknownGroup, Allocation: pod.Allocation{
			ID: name, Directory: "/planned/" + name, Devices: []string{d.Device}, Claim: &d,
		}})
	}
	for _, claim := range missing {
		notes = append(notes, claim+" is not in the file: its memifs are not in the plan")
	}
	return grants, notes, nil
}

// grants returns devices as kubelet would grant them by the limits of the containers, in the order of the containers.
func (m *manifest) grants() ([]pod.Grant, error) {
	var grants []pod.Grant
	for _, c := range append(m.Spec.InitContainers, m.Spec.Containers...) {
		limit, has := c.Resources.Limits[pod.Resource]
		if !has {
			continue
		}
		count, err := strconv.ParseUint(fmt.Sprint(limit), 10, 32)
		if err != nil || count > maxDevices {
			return nil, fmt.Errorf("manifest: container %s: limit %s: %q is not a number of devices", c.Name,
				pod.Resource, fmt.Sprint(limit))
		}
		g := pod.Grant{Container: c.Name, GID: pod.UnknownGroup}
		g.Allocation.ID = "planned-" + c.Name
		g.Allocation.Directory = "/planned/" + c.Name
		for i := range count {
			g.Allocation.Devices = append(g.Allocation.Devices, fmt.Sprint("planned-", i+1))
		}
		if count > 0 {
			grants = append(grants, g)
		}
	}
	return grants, nil
}
