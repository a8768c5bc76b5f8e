// Package slow handles the packets that workers punt: ARP, neighbour discovery, neighbour resolution, ICMP echo and errors.
package slow
