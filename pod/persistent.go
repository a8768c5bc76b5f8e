package pod

import (
	"errors"
	"fmt"
)

// errPersistentName means that the name of an interface cannot be a part of its claim's name: a dot would make the
// claims of two pods equal, and objects of Kubernetes have no capital letters.
var errPersistentName = errors.New("persistentIPs: the name of the interface is a part of the name of its IPAMClaim; " +
	"use small letters, digits and -")

// errClaimAndPersistent means that an interface has both options.
var errClaimAndPersistent = errors.New("persistentIPs: ipamClaim names the claim already; remove one of both")

// errPersistentClaim means that a ResourceClaim has the option.
var errPersistentClaim = errors.New("persistentIPs: a ResourceClaim cannot have this option; " +
	"name an IPAMClaim by the option ipamClaim")

// ReplicaClaim returns the name of the IPAMClaim of an interface with the option persistentIPs, as KubeVirt and
// OVN-Kubernetes name theirs. The pods of a StatefulSet keep their names, so the next pod has the same claim.
func ReplicaClaim(podName, interfaceName string) string { return podName + "." + interfaceName }

// NotOfStatefulSet is the error of the option persistentIPs of a pod with another controller, such as "ReplicaSet web".
func NotOfStatefulSet(controller string) error {
	return fmt.Errorf("persistentIPs: only pods of a StatefulSet keep their names, and this one belongs to %s; "+
		"name an IPAMClaim by the option ipamClaim instead", controller)
}

// checkPersistent rejects the option persistentIPs beside ipamClaim, and for an interface with a name that a claim
// cannot have. It is for options as users write them: later the claim is named.
func (o InterfaceOptions) checkPersistent(interfaceName string) error {
	switch {
	case !o.PersistentIPs:
		return nil
	case o.IPAMClaim != "":
		return errClaimAndPersistent
	case !IsLabel(interfaceName):
		return errPersistentName
	}
	return nil
}

// nameClaim sets the name of the claim of an interface with the option persistentIPs. Its errors have code 103.
func (r *InterfaceRequest) nameClaim(id ID) error {
	claim := ReplicaClaim(id.Name, r.Name)
	if !r.Options.PersistentIPs || r.Options.IPAMClaim == claim {
		return nil
	}
	if err := r.Options.checkPersistent(r.Name); err != nil {
		return Errorf(CodeInvalidAnnotation, "%s: interface %s: %w", r.OptionsSource(), r.Name, err)
	}
	r.Options.IPAMClaim = claim
	return nil
}

// NameClaim sets the name of the claim of the main interface, if its options have persistentIPs. Its errors have code
// 103.
func (r *Request) NameClaim() error {
	main := InterfaceRequest{Name: r.Key.IfName, Options: r.Requested.Options}
	if err := main.nameClaim(r.ID); err != nil {
		return err
	}
	r.Requested.Options.IPAMClaim = main.Options.IPAMClaim
	return nil
}
