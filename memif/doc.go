// Package memif moves packets through shared memory, with memif 2.0 of VPP, DPDK and libmemif, in either role.
//
// # Roles
//
// The server listens on a unix socket and serves any number of interfaces on it, told apart by their ids. A client
// connects to one of them; the memory is the client's: it makes the regions, lays out the rings in them and hands the
// server the descriptors. VPP calls the roles master and slave. A program in a pod is a client, the node's dataplane
// the server.
//
// # A program in a pod
//
// [FromEnv] connects to the interfaces of the environment; each [Client] reconnects by itself and has ReadPacket and
// WritePacket, and the same for bursts. [Dial] does it for one interface with a configuration of its own.
//
// # A dataplane
//
// [Listen] binds a socket, [Listener.Add] puts an interface on it. When a client has connected, Config.Connected gets a
// [Conn]: its queues belong from then on to the goroutine that polls them. One goroutine at a time may use an [RxQueue]
// or a [TxQueue]; none of their methods blocks, allocates or locks. When the peer goes, Config.Disconnected tells; the
// memory stays mapped until the owner has stopped polling and calls [Conn.Release], and only then the interface takes
// the next connection.
//
//	n := rx.Receive(bufs)        // copies packets into bufs[0:n] and gives the slots back
//	tx.Send(bufs[:n])            // copies packets into the ring, publishes them, rings the peer if it sleeps
//
// Zero-copy access: [RxQueue.Peek] and [RxQueue.Release], [TxQueue.Reserve] and [TxQueue.Commit].
//
// A receiver that wants to sleep puts its queues into a [Waiter], calls [RxQueue.Arm] on each, looks at the result of
// Arm, and waits for [Waiter.FD] to be readable; awake again it calls [RxQueue.Disarm] and [Waiter.Clear].
//
// # Trust
//
// A server does not trust a client's writes: regions, offsets, lengths, indexes and chains are checked where they are
// used, on a copy. An invalid packet is dropped and counted ([QueueStats]); an impossible ring index ends the
// connection. Regions must be shared memory of the kernel (tmpfs, memfd, hugetlbfs). They are sealed against shrinking;
// if a client forbids sealing, a guard turns a fault into the end of its connection. Pages that a server touches first
// are accounted to it: a client may leave no more to it than its rings need, and regions with such pages and with rings
// are emptied when the connection is released and the client has hung up, or half a second later.
//
// # Units
//
// Lengths and sizes are bytes, ring sizes are slots: powers of two, at most 16384. A packet is what goes over the wire
// without a checksum: from the destination address for an Ethernet interface, from the IP header for an IP interface.
package memif
