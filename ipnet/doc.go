// Package ipnet turns what connects a pod into desired values of the machine.
//
//	         pod's namespace          |           dataplane, VRF weft:pods            |        node
//	                                  |                                               |
//	eth0 10.1.0.5/32 <------ tap ------> weft-<hash>-eth0        weft-host <---- tap ----> weft0 10.1.0.1/32
//	default via 169.254.1.1           |  unnumbered: weft-gateway 169.254.1.1/32      |    10.1.0.0/24 via 169.254.1.1
//	default via fe80::1               |  fe80::1 on each; 10.1.0.5/32 -> its tap      |
//
// Extra interfaces, tap or veth, are on the same VRF, on nothing, or on a custom network:
//
//	x1 10.5.0.2/32 <-- L3 blue ------> weft-<hash>-x1 in VRF weft:blue, unnumbered: weft-gw-blue 10.5.0.1/32
//	10.5.0.0/24 via 10.5.0.1          |
//	x2 10.6.0.2/24 <-- L2 red -------> weft-<hash>-x2 in bridge domain weft:red, BVI: weft-gw-red 10.6.0.1/24
//
// Pods of other nodes are reached, on the network default and on custom networks whose VNI was chosen, by a tunnel to each node.
// A routed network enters them by a loopback, and all there is static; a bridged one has them as members:
//
//	VRF weft:pods -- weft-bvi-default -- bridge domain weft:vxlan:default -- weft-vx-default-2 <== VXLAN ==> node 2
//	   10.1.2.0/26 via its address            its MAC: by its tunnel      \- weft-vx-default-3 <== VXLAN ==> node 3
//
// All neighbours that are routed to are static: no packet waits for ARP or ND. Everything here is pure: handlers make values and keep
// which attachments are wired; others bring the machine there.
package ipnet
