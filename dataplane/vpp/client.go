// Package vpp realises the desired values of a dataplane over VPP's binary API.
//
// A Client owns the connection; Register adds the kinds of package wire with their backends. Messages come from
// govpp's bindings. The client matches answers to requests by their context and drops an answer that comes after the
// deadline of its request (govpp's streams would pass it to the next stream).
package vpp

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weftnet/weft/internal/statssocket"
)

// Options tune a Client. The zero value is usable. Run calls the callbacks one at a time.
type Options struct {
	Logger  *slog.Logger  // default: discard
	Limit   time.Duration // of the wait for one answer; default 5 s
	Probe   time.Duration // between two probes of the dataplane's health; default 1 s
	Redial  time.Duration // between two attempts to connect; default 100 ms
	Sockets string        // directory of our memif sockets; default /run/weft/memif

	StatsSocket  string // of the stats segment; default: statssocket.Of the API socket
	RunDir       string // a directory that only root can write to; default os.TempDir()
	CountMatches bool   // count matches of rules of ACLs, for Statistics.ACLMatches
	Hold         bool   // refuse changes after a reconnection until Client.Hold's function is called
	AFPacket     AFPacketOptions
	Events       Events
	// InTheWay returns why a network namespace ("": the node's) can have no new link of a name; nil: no reason is
	// known. It explains why the dataplane refused a tap.
	InTheWay func(namespace, name string) error
}

// AFPacketOptions are about interfaces of type af_packet.
type AFPacketOptions struct {
	Rings Rings
	// PerThread limits the receive queues of each thread of VPP; default MaxVethsPerThread, negative: unlimited.
	// weft-vswitch has no limit.
	PerThread int
	// NodeLink reports whether the node itself needs the named interface: it gets room before interfaces of pods.
	NodeLink     func(name string) bool
	GracePeriods *GracePeriods // expedited for these interfaces; nil: never
}

// Events are callbacks about the connection. Each may be nil.
type Events struct {
	Connected    func(version string) // a connection is usable: read the dataplane back
	NotConnected func(error)          // Run could not connect, for a new reason
	Lost         func(error)          // the connection broke; the outcome of pending operations is unknown
	Disturbed    func(Index)          // an interface was deleted or set down; must not block
}

// Client changes and reads a dataplane. It survives the dataplane's restarts as long as Run runs. Its methods may be
// called from anywhere.
type Client struct {
	connection
	stats *stats
}

// New returns a client of the dataplane at socket. Run connects it.
func New(socket string, o Options) *Client {
	o.defaults()
	o.StatsSocket = cmp.Or(o.StatsSocket, statssocket.Of(socket))
	return &Client{
		connection: connection{socket: socket, options: o, reason: errors.New("never connected")},
		stats:      &stats{socket: o.StatsSocket, dir: o.RunDir},
	}
}

// Close ends the connection. Call it after Run has returned.
func (c *Client) Close() error {
	c.connection.close()
	c.stats.close()
	return nil
}

// Inventory returns the inventory of the dataplane.
func (c *Client) Inventory() Inventory { return Inventory{c} }

// Statistics returns the statistics of the dataplane.
func (c *Client) Statistics() Statistics { return Statistics{c} }

func (o *Options) defaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Limit = cmp.Or(o.Limit, 5*time.Second)
	o.Probe = cmp.Or(o.Probe, time.Second)
	o.Redial = cmp.Or(o.Redial, 100*time.Millisecond)
	o.Sockets = cmp.Or(o.Sockets, "/run/weft/memif")
	o.AFPacket.defaults()
	o.Events.defaults()
}

func (o *AFPacketOptions) defaults() {
	o.Rings = o.Rings.withDefaults()
	o.PerThread = cmp.Or(o.PerThread, MaxVethsPerThread)
	if o.NodeLink == nil {
		o.NodeLink = func(string) bool { return false }
	}
}

func (e *Events) defaults() {
	if e.Connected == nil {
		e.Connected = func(string) {}
	}
	if e.NotConnected == nil {
		e.NotConnected = func(error) {}
	}
	if e.Lost == nil {
		e.Lost = func(error) {}
	}
	if e.Disturbed == nil {
		e.Disturbed = func(Index) {}
	}
}

// exposure names the users besides root that may connect to the API socket. They could configure the dataplane and read
// its secrets. It returns "" if only root can, or if that is unknown.
func exposure(socket string) string {
	info, err := os.Stat(socket)
	if err != nil {
		return ""
	}
	who := class(info, 0o020, 0o002)
	for dir := filepath.Dir(socket); who != 0; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return ""
		}
		who &= searchers(info)
		if dir == filepath.Dir(dir) {
			break
		}
	}
	switch {
	case who&0o007 != 0:
		return "every user"
	case who != 0:
		return "its group"
	}
	return ""
}

func searchers(info fs.FileInfo) fs.FileMode {
	who := class(info, 0o010, 0o001)
	if who&0o007 != 0 {
		who |= 0o070 // members of the socket's group can be "others" of a directory with another group
	}
	return who
}

// class returns the classes of users, 0o070 and 0o007, with one of the permissions. Group 0 counts as root.
func class(info fs.FileInfo, group, other fs.FileMode) (who fs.FileMode) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if info.Mode()&group != 0 && ok && st.Gid != 0 {
		who |= 0o070
	}
	if info.Mode()&other != 0 {
		who |= 0o007
	}
	return who
}
