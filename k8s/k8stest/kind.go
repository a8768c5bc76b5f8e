package k8stest

import "strings"

// kindOf is the version and the kind of a resource's objects, which clients expect in all that they read.
func kindOf(resource string) (version, kind string) {
	name, group, custom := strings.Cut(resource, ".")
	kinds := map[string]string{
		"pods": "Pod", "nodes": "Node", "namespaces": "Namespace", "customnetworks": "CustomNetwork", "ippools": "IPPool",
		"ipblocks": "IPBlock", "nodenetworks": "NodeNetwork", "externalinterfaces": "ExternalInterface",
		"podinterfaces": "PodInterfaces", "weftconfigs": "WeftConfig", "network-attachment-definitions": "NetworkAttachmentDefinition",
		"configmaps": "ConfigMap", "events": "Event", "leases": "Lease", "services": "Service", "endpointslices": "EndpointSlice",
		"servicecidrs": "ServiceCIDR", "networkpolicies": "NetworkPolicy",
	}
	if !custom {
		return "v1", kinds[name]
	}
	return group + "/v1", kinds[name]
}
