package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the name of the API group.
const Group = "contivpp.io"

// GroupVersion returns the group with its version.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: "v1"} }

// AddToScheme adds the group's kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(),
		&CustomNetwork{}, &CustomNetworkList{},
		&ExternalInterface{}, &ExternalInterfaceList{},
		&IPBlock{}, &IPBlockList{},
		&IPPool{}, &IPPoolList{},
		&NodeNetwork{}, &NodeNetworkList{},
		&PodInterfaces{}, &PodInterfacesList{},
		&WeftConfig{}, &WeftConfigList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
