// Package ipnet turns what connects a pod into desired values of the machine.
//
//	         pod's namespace          |           dataplane, VRF weft:pods            |        node
//	                                  |                                               |
//	eth0 10.1.0.5/32 <------ tap ------> weft-<hash>-eth0        weft-host <---- tap ----> weft0 10.1.0.1/32
//	default via 169.254.1.1           |  unnumbered: weft-gateway 169.254.1.1/32      |    10.1.0.0/24 via 169.254.1.1
//	default via fe80::1               |  fe80::1 on each; 10.1.0.5/32 -> its tap      |
//
// All neighbours are static: no packet waits for ARP or ND. Everything here is pure: handlers make values and keep
// which attachments are wired; others bring the machine there.
package ipnet
