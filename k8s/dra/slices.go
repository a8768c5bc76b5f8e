package dra

import (
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/weftnet/weft/pod"
)

// attributes of a device, in the driver's domain.
const (
	attributeNode      = "node"
	attributeRole      = "role"     // of the pod's end
	attributeDataplane = "nodeRole" // of the dataplane's end
	attributeNumber    = "number"   // of the device
	attributeRing      = "maxRingSize"
	attributeBuffer    = "maxBufferSize"
	attributeQueues    = "maxQueues"
)

// attributes of the Network Plumbing Working Group: Multus gives a device to a NetworkAttachmentDefinition with the
// device's resourceName in its annotation, and passes the device's id to the plugin. It ignores devices without them.
const (
	attributeMultusResource = "k8s.cni.cncf.io/resourceName"
	attributeMultusDevice   = "k8s.cni.cncf.io/deviceID"
)

// attributes with the NUMA node of a device, for constraints that align it with processors, memory and cards. The first
// is Kubernetes' own since 1.37 (KEP-6072), drivers for networks used the second before.
const (
	attributeNUMA    = "resource.kubernetes.io/numaNode"
	attributeNUMANet = "dra.net/numaNode"
)

// offer are the devices that the driver offers to the scheduler.
type offer struct{ config *Config }

// resources returns the devices as ResourceSlices: one pool, which has the name of the node.
func (o *offer) resources() resourceslice.DriverResources {
	var all []resourceapi.Device
	for _, id := range o.config.Devices.Claimable() {
		all = append(all, o.device(id))
	}
	var pool resourceslice.Pool
	for len(all) > 0 {
		n := min(len(all), resourceapi.ResourceSliceMaxDevices)
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: all[:n]})
		all = all[n:]
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{o.config.Node: pool}}
}

func (o *offer) device(id string) resourceapi.Device {
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: ptr.To(s)} }
	number := func(n int) resourceapi.DeviceAttribute {
		return resourceapi.DeviceAttribute{IntValue: ptr.To(int64(n))}
	}
	attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		attributeMultusResource: text(pod.Resource), attributeMultusDevice: text(id),
		attributeRole: text("client"), attributeDataplane: text("server"),
		attributeRing: number(o.config.Limits.RingSize), attributeBuffer: number(o.config.Limits.BufferSize),
		attributeQueues: number(o.config.Limits.Queues),
	}
	if len(o.config.Node) <= resourceapi.DeviceAttributeMaxValueLength {
		attributes[attributeNode] = text(o.config.Node)
	}
	if node := o.config.NUMANode; node != nil {
		attributes[attributeNUMA] = number(*node)
		attributes[attributeNUMANet] = number(*node)
	}
	if n, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:]); err == nil {
		attributes[attributeNumber] = number(n)
	}
	return resourceapi.Device{Name: id, Attributes: attributes}
}
