// Package slow does what a worker has no time for: ARP, neighbour discovery, neighbour resolution, ICMP echo and errors.
package slow
