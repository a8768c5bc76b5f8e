package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/pod"
)

// mostList bounds the list of a container's memifs, in bytes: a container of a node that lets it may have changed it.
const mostList = 64 << 10

// findMemif goes by the memif's socket to its allocation, which knows the attachment, and by the list that its container
// was given to the rest.
func (a *Agent) findMemif(p vpp.Port, f ipnet.Found) (ipnet.Found, error) {
	f.Type = pod.TypeMemif
	allocation, err := a.allocationOf(p)
	if err != nil {
		return f, err
	}
	f.Netns = allocation.Netns
	inode, device, err := linux.Inspect(f.Netns.Path)
	switch {
	case err != nil:
		return f, err
	case inode != f.Netns.Inode || device != f.Netns.Device:
		return f, fmt.Errorf("network namespace %s is another one by now: that of the memif is %w", f.Netns.Path, linux.ErrGone)
	}
	list, err := readList(ipnet.ListPath(allocation))
	if err != nil {
		return f, err
	}
	told, err := ipnet.FoundMemif(p.Name, allocation, list)
	told.Labels, told.Neighbours = f.Labels, f.Neighbours
	switch {
	case err != nil:
		return told, err
	case !p.MadeAs(a.network.MemifAsMade(told)):
		return told, fmt.Errorf("the memif was not made as its container was told")
	case !p.PeerMAC.IsZero() && p.PeerMAC != told.MAC:
		return told, fmt.Errorf("the dataplane knows MAC %s, and the container was told %s", p.PeerMAC, told.MAC)
	}
	return told, nil
}

// allocationOf is the allocation whose socket a memif is on.
func (a *Agent) allocationOf(p vpp.Port) (pod.Allocation, error) {
	if a.devices == nil {
		return pod.Allocation{}, errors.New("the node has no devices by its configuration")
	}
	id := path.Base(path.Dir(p.Socket))
	all := a.devices.Allocations()
	at := slices.IndexFunc(all, func(o pod.Allocation) bool { return o.ID == id && o.SocketPath() == p.Socket })
	if at < 0 || !all[at].Granted {
		return pod.Allocation{}, fmt.Errorf("socket %s is of no allocation that a pod has", p.Socket)
	}
	return all[at], nil
}

// readList reads a file in its directory; a link that leads elsewhere is an error.
func readList(name string) ([]byte, error) {
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return nil, fmt.Errorf("list of memifs: %w", err)
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.Base(name), os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would have us wait
	if err != nil {
		return nil, fmt.Errorf("list of memifs: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("list of memifs: %s is no file", name)
	}
	return io.ReadAll(io.LimitReader(f, mostList))
}
