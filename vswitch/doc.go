// Package vswitch runs the embedded dataplane: the packet path, the model that drives it, and the server of VPP's binary API before it.
package vswitch
