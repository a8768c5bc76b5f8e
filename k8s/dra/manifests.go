package dra

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/weftnet/weft/pod"
)

// Manifests are claims, claim templates and DeviceClasses of a file, for the plan of a pod. The zero value is empty.
type Manifests struct {
	specs   map[string]*resourceapi.ResourceClaimSpec // by kind and namespace/name
	classes map[string]*resourceapi.DeviceClass
}

// Add adds an object, JSON. Objects of other kinds are ignored.
func (m *Manifests) Add(apiVersion, kind string, object []byte) (err error) {
	if !strings.HasPrefix(apiVersion, resourceapi.GroupName+"/") {
		return nil
	}
	if m.specs == nil {
		m.specs = make(map[string]*resourceapi.ResourceClaimSpec)
		m.classes = make(map[string]*resourceapi.DeviceClass)
	}
	switch kind {
	case "ResourceClaim":
		var c resourceapi.ResourceClaim
		err = json.Unmarshal(object, &c)
		m.specs[keyOf(kind, c.Namespace, c.Name)] = &c.Spec
	case "ResourceClaimTemplate":
		var t resourceapi.ResourceClaimTemplate
		err = json.Unmarshal(object, &t)
		m.specs[keyOf(kind, t.Namespace, t.Name)] = &t.Spec.Spec
	case "DeviceClass":
		var c resourceapi.DeviceClass
		err = json.Unmarshal(object, &c)
		m.classes[c.Name] = &c
	}
	return err
}

func keyOf(kind, namespace, name string) string {
	return kind + " " + cmp.Or(namespace, "default") + "/" + name
}

// PodClaim is a claim in the spec of a pod: of one of the two names.
type PodClaim struct {
	Name                      string `json:"name"`
	ResourceClaimName         string `json:"resourceClaimName"`
	ResourceClaimTemplateName string `json:"resourceClaimTemplateName"`
}

// Devices returns the memifs of a pod's claims, as the driver prepares them when the scheduler has allocated the
// claims. missing names the claims that are not in the manifests.
func (m *Manifests) Devices(id pod.ID, claims []PodClaim) (devices []pod.ClaimedDevice, missing []string, _ error) {
	for _, c := range claims {
		claim := &resourceapi.ResourceClaim{}
		claim.Namespace = id.Namespace
		claim.Name = id.Name + "-" + c.Name
		var key string
		switch {
		case c.ResourceClaimName != "":
			claim.Name = c.ResourceClaimName
			key = keyOf("ResourceClaim", id.Namespace, claim.Name)
		default:
			key = keyOf("ResourceClaimTemplate", id.Namespace, c.ResourceClaimTemplateName)
		}
		spec := m.specs[key]
		if spec == nil {
			missing = append(missing, key)
			continue
		}
		claim.Status.Allocation = &resourceapi.AllocationResult{Devices: m.allocated(spec)}
		found, err := requestedDevices(claim, plannedPool)
		if err != nil {
			return nil, nil, err
		}
		devices = append(devices, found...)
	}
	return devices, missing, nil
}

// plannedPool stands for the node of a plan.
const plannedPool = "planned"

// allocated returns an allocation of all memifs of a claim: of alternatives the first one, and one device for a request
// of all devices.
func (m *Manifests) allocated(spec *resourceapi.ResourceClaimSpec) (a resourceapi.DeviceAllocationResult) {
	for _, r := range spec.Devices.Requests {
		name := r.Name
		class := ""
		count := int64(1)
		switch {
		case r.Exactly != nil:
			class = r.Exactly.DeviceClassName
			count = r.Exactly.Count
		case len(r.FirstAvailable) > 0:
			first := r.FirstAvailable[0]
			name = r.Name + "/" + first.Name
			class = first.DeviceClassName
			count = first.Count
		}
		configs, isMemif := m.configsOf(class, name)
		if !isMemif && !slices.ContainsFunc(spec.Devices.Config, func(c resourceapi.DeviceClaimConfiguration) bool {
			isForSome := len(c.Requests) > 0 // parameters for all requests do not say which one is for a memif
			return isForSome && isForDriver(c.DeviceConfiguration) && pod.ConcernsRequest(c.Requests, name)
		}) {
			continue
		}
		a.Config = append(a.Config, configs...)
		for range min(max(count, 1), pod.MaxCustomInterfaces+1) { // more are refused
			device := fmt.Sprint("planned-", len(a.Results)+1)
			a.Results = append(a.Results, resourceapi.DeviceRequestAllocationResult{
				Request: name,
				Driver:  pod.ClaimDriver,
				Pool:    plannedPool,
				Device:  device,
			})
		}
	}
	for _, c := range spec.Devices.Config {
		a.Config = append(a.Config, resourceapi.DeviceAllocationConfiguration{
			Source:              resourceapi.AllocationConfigSourceClaim,
			Requests:            c.Requests,
			DeviceConfiguration: c.DeviceConfiguration,
		})
	}
	return a
}

// configsOf returns the parameters that a DeviceClass has for a request, and whether the class is one of memifs, which
// it is by its name or its parameters.
func (m *Manifests) configsOf(
	class, request string,
) (configs []resourceapi.DeviceAllocationConfiguration, isMemif bool) {
	isMemif = class == pod.ClaimDriver
	if m.classes[class] == nil {
		return nil, isMemif
	}
	for _, c := range m.classes[class].Spec.Config {
		isMemif = isMemif || isForDriver(c.DeviceConfiguration)
		configs = append(configs, resourceapi.DeviceAllocationConfiguration{
			Source:              resourceapi.AllocationConfigSourceClass,
			Requests:            []string{request},
			DeviceConfiguration: c.DeviceConfiguration,
		})
	}
	return configs, isMemif
}

func isForDriver(c resourceapi.DeviceConfiguration) bool {
	return c.Opaque != nil && c.Opaque.Driver == pod.ClaimDriver
}
