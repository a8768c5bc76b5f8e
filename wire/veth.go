package wire

// Veth is a pair of Linux links, both made in the namespaces where they stay. Kind linux.veth; its name is that of the
// vpp.interface of type af_packet that holds the host's end. That end is the dataplane's alone: the kernel has no address
// on it and takes nothing that comes by it.
type Veth struct {
	Namespace string `json:"namespace,omitempty"` // path of the pod's network namespace, an object of kind linux.netns; "" = the node's own
	Name      string `json:"name"`                // in the pod, at most 15 bytes
	MAC       MAC    `json:"mac"`                 // in the pod
	HostName  string `json:"hostName"`            // in the namespace of agent and dataplane, at most 15 bytes
	HostMAC   MAC    `json:"hostMAC"`
	MTU       int    `json:"mtu"`   // of both ends, bytes; 0 = the kernel's
	Alias     string `json:"alias"` // of both ends (ifalias): who they belong to
	Up        bool   `json:"up"`

	RxQueues int `json:"rxQueues,omitempty"` // that the pod reads from, at most MaxQueues; 0 = the kernel's, which is one
	TxQueues int `json:"txQueues,omitempty"` // that the pod writes to; 0 = the kernel's, which is one
}

// VethKey is the key of the pair that belongs to the interface of that name.
func VethKey(iface string) string { return Key(KindVeth, iface) }
